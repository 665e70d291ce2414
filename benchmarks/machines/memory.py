"""Memory of a machine's processes beyond that of a run with a tiny data set, compared with the machine's share of the data."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hoptrain.benchmarks.common.processes import family, memory
from hoptrain.benchmarks.machines.training import outcome_of, started, tell_logs
from hoptrain.engine import Dataset
from hoptrain.engine.partition.folder import part_folder, write_partition

_LOOK_S, _LOOKS = 0.5, 5
_PLAIN_RUNS = 3
_FIT = (
    *("--data.partitions", "parts", "--data.sampler", "NeighborSampler", "--data.num_workers", "1", "--model.hidden_channels", "64"),
    *(
        "--trainer.max_epochs",
        "1",
        "--trainer.accelerator",
        "cpu",
        "--trainer.enable_progress_bar",
        "false",
        "--trainer.enable_model_summary",
        "false",
    ),
)


def cells(data: Dataset, hardly_any: Dataset, machines: Sequence[int], ways: Sequence[tuple[str, str]], args: Any) -> list[dict[str, Any]]:
    """Return a record of each run, for the machine with the largest ``memory_over_share``; each machine has one rank."""
    records, cache = [], args.cache_mib << 20
    plain: dict[tuple[int, str], tuple[str, int]] = {}
    for number in machines:
        for method, topology in ways:
            if (number, topology) not in plain:
                plain[number, topology] = _plain(hardly_any, number, topology, args)
            other, base = plain[number, topology]
            print(f"{data.name}: {number} machines, partitioned by {method}, graph {topology}: measuring memory", file=sys.stderr)
            outcome, held, shares = _run(data, number, method, topology, args)
            beyond = [each - base for each in held]
            worst = max(range(number), key=lambda machine: beyond[machine] / (shares[machine] + cache))
            is_whole = outcome == other == "ended"
            records.append(
                {"graph": data.name, "topology": topology, "machines": number, "parts": method, "cache": cache, "share": shares[worst]}
                | {"base": base, "beyond": beyond[worst], "outcome": outcome if outcome != "ended" else other}
                | {"memory_over_share": beyond[worst] / (shares[worst] + cache) if is_whole else None}
            )
    return records


def _plain(hardly_any: Dataset, number: int, topology: str, args: Any) -> tuple[str, int]:
    """Measure the memory of training runs on a tiny data set.

    Returns:
        The outcome of the runs, and the memory of a machine's processes minus its files: the median of all machines and runs, in bytes.
    """
    found, runs = [], 1 if args.quick else _PLAIN_RUNS
    for run in range(runs):
        print(f"{hardly_any.name}: {number} machines, graph {topology}: run {run + 1} of {runs} on a tiny data set", file=sys.stderr)
        outcome, held, shares = _run(hardly_any, number, "range", topology, args)
        found += [each - share for each, share in zip(held, shares, strict=True)]
        if outcome != "ended":
            break
    return outcome, int(statistics.median(found))


def _run(data: Dataset, number: int, method: str, topology: str, args: Any) -> tuple[str, list[int], list[int]]:
    """Run a training in which each machine has a folder with only its own files.

    Returns:
        The outcome of the run, and for each machine the most bytes that its processes held, and the bytes of its folder.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_partition(data, folder / "parts", number, method, graph=topology)
        shares = [_own_copy(folder / "parts", machine, number, folder / str(machine) / "parts") for machine in range(number)]
        shutil.rmtree(folder / "parts")
        told: tuple[str, ...] = (
            "--data.dataset",
            data.name,
            "--data.scale",
            str(data.meta.get("scale", 1.0)),
            "--data.batch_size",
            str(args.batch_size),
        )
        told += ("--data.sampler.fanouts", str(args.fanouts), "--data.feature_cache", f"{args.cache_mib}MiB")
        processes = started(folder, number, number, (*_FIT, *told))
        looks: list[list[int]] = [[] for _ in range(number)]
        is_over = threading.Event()
        looking = threading.Thread(target=_look, args=(processes, looks, is_over))
        looking.start()
        outcome = outcome_of(processes)
        is_over.set()
        looking.join()
        if outcome != "ended":
            tell_logs(folder)
        return outcome, [_most(own) for own in looks], shares


def _own_copy(parts: Path, machine: int, number: int, own: Path) -> int:
    """Copy the files that a machine needs, and return their bytes."""
    others = {part_folder(parts, part).name for part in range(number)} - {part_folder(parts, machine).name}
    shutil.copytree(parts, own, ignore=lambda folder, names: others & set(names) if Path(folder) == parts else set())
    return sum(file.stat().st_size for file in own.rglob("*") if file.is_file())


def _look(processes: Sequence[subprocess.Popen[bytes]], looks: list[list[int]], is_over: threading.Event) -> None:
    while not is_over.wait(_LOOK_S):
        for own, process in zip(looks, processes, strict=True):
            own.append(memory(family(process.pid))["pss"])


def _most(looks: Sequence[int]) -> int:
    """Return the largest median of ``_LOOKS`` consecutive measurements.

    A single measurement can be too large: the processes are measured one by one, so a shared page counts twice if one of two processes ends in between.
    """
    return int(max((statistics.median(looks[i : i + _LOOKS]) for i in range(max(1, len(looks) - _LOOKS + 1))), default=0)) if looks else 0
