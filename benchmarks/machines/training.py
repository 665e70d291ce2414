"""Training with ``hoptrain fit`` in processes that count as machines, compared with one machine that has as many ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hoptrain.benchmarks.common.processes import family
from hoptrain.engine import load_dataset
from hoptrain.engine.partition.folder import part_folder, write_partition
from hoptrain.kernels.child_process import import_path, python

_DATA, _PATIENCE_S = "digits-knn", 300.0
_FIT = (
    *("--data.dataset", _DATA, "--data.sampler", "NeighborSampler", "--data.sampler.fanouts", "[4,3]", "--data.batch_size", "32"),
    *("--data.num_workers", "1", "--trainer.max_epochs", "2", "--trainer.accelerator", "cpu"),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
)


def cells(num_ranks: int, machines: Sequence[int], ways: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a record of each run, with the largest difference of its weights from those of one machine.

    Args:
        num_ranks: number of ranks, over all machines.
        machines: numbers of machines.
        ways: pairs of a partitioning method and a topology.
    """
    records = []
    with tempfile.TemporaryDirectory() as folder:
        _, plain = _run(Path(folder) / "one", num_ranks, 1, ())
        for number in machines:
            for method, topology in ways:
                own = Path(folder) / f"{method}{number}{topology}"
                own.mkdir()
                write_partition(load_dataset(_DATA), own / "parts", number, method, graph=topology)
                for memory in ("300KiB", "auto"):
                    print(
                        f"{_DATA}: {num_ranks} ranks on {number} machines, partitioned by {method}, graph {topology}, feature cache {memory}: training",
                        file=sys.stderr,
                    )
                    outcome, weights = _run(
                        own / memory, num_ranks, number, ("--data.partitions", "parts", "--data.feature_cache", memory), own / "parts"
                    )
                    worst = worst_difference(plain, weights)
                    facts = {
                        "graph": _DATA,
                        "topology": topology,
                        "machines": number,
                        "parts": method,
                        "memory": memory,
                        "outcome": outcome,
                    }
                    records.append(facts | {"weight_difference": worst})
    return records


def _run(folder: Path, num_ranks: int, number: int, options: Sequence[str], parts: Path | None = None) -> tuple[str, dict[str, Any] | None]:
    """Return the outcome of a run and its weights; each machine's folder has only its own partition."""
    for machine in range(number):
        own = folder / str(machine)
        own.mkdir(parents=True)
        link_parts(parts, machine, own / "parts")
    outcome = outcome_of(started(folder, num_ranks, number, (*_FIT, *options)))
    if outcome != "ended":
        tell_logs(folder)
        return outcome, None
    return outcome, weights_of(folder / "runs")


def started(folder: Path, num_ranks: int, number: int, options: Sequence[str]) -> list[subprocess.Popen[bytes]]:
    """Start the ranks of ``hoptrain fit`` as processes; those of machine m run in the folder ``folder/m``."""
    each = num_ranks // number
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(num_ranks), "TORCHELASTIC_RUN_ID": "bench"}
    shared |= {"OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": str(each)}
    sizes = ("--trainer.num_nodes", str(number), "--trainer.devices", str(each), "--trainer.default_root_dir", str(folder / "runs"))
    command, processes = python("-m", "hoptrain.trainers.cli", "fit", *sizes, *options), []
    for rank in range(num_ranks):
        machine, place = divmod(rank, each)
        own = folder / str(machine)
        variables = shared | {"RANK": str(rank), "LOCAL_RANK": str(place), "GROUP_RANK": str(machine), "HOPTRAIN_MACHINE": str(machine)}
        with (own / f"{rank}.txt").open("w") as told:
            processes.append(
                subprocess.Popen(
                    command, cwd=own, env=os.environ | import_path() | variables, stdout=told, stderr=told, start_new_session=True
                )
            )
    return processes


def tell_logs(folder: Path) -> None:
    """Print the last lines of the logs of all ranks."""
    for log in sorted(folder.glob("*/*.txt")):
        print(log.read_text()[-2000:], file=sys.stderr)


def weights_of(runs: Path) -> dict[str, Any]:
    """Return the weights at the end of the first run in the folder ``runs``, in double precision."""
    import torch  # imported here to keep --help fast

    found = torch.load(runs / "version_0/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    return {name: tensor.double() for name, tensor in found.items()}


def worst_difference(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> float | None:
    """Return the largest absolute difference of a weight, or None if one of the runs has no weights."""
    if one is None or other is None:
        return None
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def link_parts(parts: Path | None, machine: int, own: Path) -> None:
    """Link all files of a partitioned data set into the folder ``own``, except the partitions of other machines."""
    if parts is None:
        return
    own.mkdir()
    for entry in parts.iterdir():
        if not entry.name.startswith("part-") or entry == part_folder(parts, machine):
            (own / entry.name).symlink_to(entry)


def outcome_of(processes: Sequence[subprocess.Popen[bytes]]) -> str:
    """Wait for the processes, kill those that have not ended in time, and return "ended", "failed" or "hung"."""
    deadline = time.monotonic() + _PATIENCE_S
    try:
        for process in processes:
            process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "hung"
    finally:
        for process in processes:
            for each in reversed(family(process.pid)) if process.poll() is None else []:
                with suppress(Exception):
                    each.kill()
    return "ended" if all(process.returncode == 0 for process in processes) else "failed"
