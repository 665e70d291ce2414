"""What the processes of a machine hold beyond those of a run with hardly any data, beside the machine's share of the data."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hoptrain.benchmarks.common.processes import family, memory
from hoptrain.benchmarks.machines.training import outcome_of, started, tell_logs
from hoptrain.engine import Dataset
from hoptrain.engine.partition.folder import part_folder, write_partition

_LOOK_S = 1.0
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
    """A record of each run, with the largest ``memory_over_share`` of its machines, of one rank each."""
    records = []
    for number in machines:
        for method, topology in ways:
            print(f"{data.name}: {number} machines, parts by {method}, graph {topology}: memory", file=sys.stderr)
            outcome, held, shares = _run(data, number, method, topology, args)
            other, base, _ = _run(hardly_any, number, method, topology, args)
            cache = args.cache_mib << 20
            beyond = [each - plain for each, plain in zip(held, base, strict=True)]
            worst = max(range(number), key=lambda machine: beyond[machine] / (shares[machine] + cache))
            is_whole = outcome == other == "ended"
            records.append(
                {"graph": data.name, "topology": topology, "machines": number, "parts": method, "cache": cache, "share": shares[worst]}
                | {"base": base[worst], "beyond": beyond[worst], "outcome": outcome if outcome != "ended" else other}
                | {"memory_over_share": beyond[worst] / (shares[worst] + cache) if is_whole else None}
            )
    return records


def _run(data: Dataset, number: int, method: str, topology: str, args: Any) -> tuple[str, list[int], list[int]]:
    """How a run ended, and of each machine the most bytes that its processes held, and those of its folder, of which none has another's files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # without evaluation, whose memory is that of one layer's rows
        write_partition(
            replace(data, splits={"train": data.split("train")}, validate=False), folder / "parts", number, method, graph=topology
        )
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
        told += ("--data.sampler.fanouts", str(args.fanouts), "--data.memory", f"{args.cache_mib}MiB")
        processes = started(folder, number, number, (*_FIT, *told))
        held, is_over = [0] * number, threading.Event()
        looking = threading.Thread(target=_look, args=(processes, held, is_over))
        looking.start()
        outcome = outcome_of(processes)
        is_over.set()
        looking.join()
        if outcome != "ended":
            tell_logs(folder)
        return outcome, held, shares


def _own_copy(parts: Path, machine: int, number: int, own: Path) -> int:
    """Copy what a machine needs; returns its bytes."""
    others = {part_folder(parts, part).name for part in range(number)} - {part_folder(parts, machine).name}
    shutil.copytree(parts, own, ignore=lambda folder, names: others & set(names) if Path(folder) == parts else set())
    return sum(file.stat().st_size for file in own.rglob("*") if file.is_file())


def _look(processes: Sequence[subprocess.Popen[bytes]], held: list[int], is_over: threading.Event) -> None:
    while not is_over.wait(_LOOK_S):
        for machine, process in enumerate(processes):
            held[machine] = max(held[machine], memory(family(process.pid))["pss"])
