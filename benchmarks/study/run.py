"""Run one cell of a study: start the ranks, which train a model on mini-batches from one system's loader.

The training loop, ``hoptrain.benchmarks.study.train``, is hand-written and the same for all systems, with torch's ``DistributedDataParallel`` and Adam. An
epoch lasts from a barrier to the last step of the slowest rank. The first epoch starts the workers and is not counted. All systems train hoptrain's
``GNN``, which is evaluated at the end with full-neighbour inference by the same code.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hoptrain.benchmarks.baselines.installed import require, tcmalloc
from hoptrain.benchmarks.common.grid import FOUND, SKIPPED, with_tuples
from hoptrain.benchmarks.common.trial import BEGIN, say
from hoptrain.benchmarks.study.cell import Cell
from hoptrain.engine import InputError
from hoptrain.kernels.child_process import import_path, python

_NEEDS = {"pyg": "torch_geometric", "dgl": "dgl", "papers": "scipy"}
_TICK_S = 0.05


def command_of(cell: Cell, folder: Path) -> list[str]:
    """Return the command that runs a cell on the data set in ``folder``."""
    return python("-m", "hoptrain.benchmarks.study.run", json.dumps(asdict(cell)), folder)


def main(arguments: Sequence[str]) -> None:
    """Run a cell, with each rank in its own process, and print the results."""
    cell = Cell(**with_tuples(json.loads(arguments[0])))
    say(BEGIN)
    reason = _missing(cell)
    if reason is not None:
        say(f"{SKIPPED}{reason}")
        return
    with tempfile.TemporaryDirectory() as scratch:
        _run_ranks(arguments, cell.ranks, Path(scratch))
        found = [json.loads((Path(scratch) / f"{rank}.json").read_text()) for rank in range(cell.ranks)]
    say(FOUND + json.dumps(merge(found)))


def _missing(cell: Cell) -> str | None:
    if cell.allocator == "tcmalloc" and tcmalloc() is None:
        return "tcmalloc is not installed (Debian: libtcmalloc-minimal4)"
    package = _NEEDS.get(cell.system)
    try:
        if package is not None:
            require(package)
    except InputError as error:
        return f"{package}: {error}"
    return None


def _run_ranks(arguments: Sequence[str], ranks: int, scratch: Path) -> None:
    """Launch one process per rank; if one fails, end the others."""
    command = python("-m", "hoptrain.benchmarks.study.train", *arguments, scratch)
    environment = os.environ | import_path() | {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    processes = [
        subprocess.Popen([*command, str(rank)], env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, start_new_session=True)
        for rank in range(ranks)
    ]
    try:
        while (codes := [process.poll() for process in processes]) and None in codes and not any(codes):
            time.sleep(_TICK_S)
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # kills also the rank's workers, which wait for the next epoch
            process.wait()
    if any(codes):
        raise SystemExit(next(1 for code in codes if code))


def merge(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the merged results of the ranks: times of the slowest rank in the median epoch, summed memory, and rank 0's accuracy."""
    epochs = [one["epochs"] for one in found]
    slowest = [max(ranks, key=lambda one: float(one["seconds"])) for ranks in zip(*epochs, strict=True)]
    middle = sorted(slowest, key=lambda one: float(one["seconds"]))[(len(slowest) - 1) // 2]
    return {
        "epoch_s": middle["seconds"],
        "first_epoch_s": max(one["first_epoch_s"] for one in found),
        "phases": middle["phases"],
        **{name: [own[-1][name] for own in epochs] for name in ("steps", "seeds", "edges", "rows")},
        **{name: statistics.mean(one[name] for own in epochs for one in own) for name in ("sample_s", "gather_s", "trainer_cpu_s")},
        **{name: sum(one[name] for one in found) for name in ("peak_rss", "pss", "shared", "gpu_bytes")},
        **{name: found[0][name] for name in ("accuracy", "loss", "parameters", "threads", "pinned", "device", "gradient_bytes")},
    }


if __name__ == "__main__":
    main(sys.argv[1:])
