"""What a cell of the scalability study does: ranks that train one model on mini-batches from one system's loader.

The loop is written here, by hand and once for all systems, with torch's ``DistributedDataParallel`` and Adam. An epoch begins with a barrier and ends with
the last step of the slowest rank; the first epoch starts the workers and does not count. The model is hoptrain's ``GNN`` for all. Its weights are
evaluated at the end by exact inference over full neighbourhoods, for all by the same code.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hoptrain.benchmarks.common.grid import FOUND, SKIPPED
from hoptrain.benchmarks.common.trial import BEGIN, RAISED, say
from hoptrain.benchmarks.peers.systems import FAMILY
from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array

SYSTEMS = ("hoptrain", "pyg", "dgl", "papers")
HAVE = {"neighbor": SYSTEMS[:3], "cluster": SYSTEMS[:3], "ladies": ("hoptrain", "papers"), "fastgcn": ("hoptrain", "papers")}
"""Who has which algorithm."""
PHASES = ("wait", "copy", "train", "all_reduce", "other")
"""Of the trainer's time, in the order of a step; together they are the epoch."""
ALLOCATORS = ("malloc", "tcmalloc")
_TICK_S = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One point of the grid.

    Attributes:
        system: whose loader.
        arch: sage or gat.
        ranks: training processes.
        workers: loader processes of each rank; 0 loads in the rank's own.
        batch_size: seeds per rank and step.
        dataset: name, as in ``load_dataset``.
        scale: of a synthetic set.
        fanouts: from the seeds outward.
        expand: of hoptrain's sampler, "all" as DGL or "new" as PyG.
        hidden: width between layers.
        heads: of gat.
        dropout: share of hidden inputs dropped.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        epochs: that count.
        num_seeds: seeds of an epoch over all ranks, taken from the training split at random; None takes all.
        threads: torch's threads of a rank; None takes the rank's share of the cores, as Lightning does, at least 1.
        allocator: what the processes' memory comes from, for all systems alike.
        test_nodes: vertices of the test split that are evaluated; None takes all, 0 evaluates nothing.
        seed: of weights and batches.
        algorithm: of sampling; ``bench scale`` has "neighbor" alone. The number of fanouts is that of layers for all.
        clusters: of cluster; a batch has ``batch_size`` of them.
        layer_sizes: draws of ladies and fastgcn, from the seeds outward.
    """

    system: str
    arch: str = "sage"
    ranks: int = 1
    workers: int = 2
    batch_size: int = 1024
    dataset: str = "synthetic:reddit"
    scale: float = 1.0
    fanouts: tuple[int, ...] = (25, 10)
    expand: str = "all"
    hidden: int = 256
    heads: int = 8
    dropout: float = 0.5
    lr: float = 0.005
    weight_decay: float = 0.0005
    epochs: int = 2
    num_seeds: int | None = None
    threads: int | None = None
    allocator: str = "malloc"
    test_nodes: int | None = None
    seed: int = 0
    algorithm: str = "neighbor"
    clusters: int = 0
    layer_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, known in (
            ("arch", ("sage", "gat")),
            ("expand", ("all", "new")),
            ("allocator", ALLOCATORS),
            ("algorithm", tuple(HAVE)),
            ("system", HAVE.get(self.algorithm, ())),
        ):
            if getattr(self, name) not in known:
                raise InputError(f"{name} is {getattr(self, name)!r}: choose one of {', '.join(known)}")
        least = min(self.ranks, self.batch_size, self.epochs, self.hidden, self.threads or 1, len(self.fanouts))
        if least < 1 or self.workers < 0 or (self.num_seeds is not None and self.num_seeds < self.ranks):
            raise InputError(
                f"{self.ranks} ranks, batches of {self.batch_size}, {self.epochs} epochs, {self.workers} workers, {self.num_seeds} seeds: all are at "
                "least 1 (workers 0), and there is a seed for each rank; correct them"
            )
        wants = {"cluster": self.clusters > 0, "ladies": bool(self.layer_sizes), "fastgcn": bool(self.layer_sizes)}
        if not wants.get(self.algorithm, True) or (self.algorithm != "neighbor" and self.ranks > 1):
            raise InputError(
                f"{self.algorithm} with {self.clusters} clusters, layer_sizes {list(self.layer_sizes)} and {self.ranks} ranks: cluster needs clusters, "
                "ladies and fastgcn need layer_sizes, and all three are compared with one rank; correct them"
            )


class Place(NamedTuple):
    """Where a rank stands: its number, and the seeds (N,) of an epoch over all ranks."""

    rank: int
    seeds: Array


def command_of(cell: Cell, folder: Path) -> list[str]:
    """What runs a cell on the data set in ``folder``."""
    return [sys.executable, "-m", "hoptrain.benchmarks.study.cell", json.dumps(asdict(cell)), str(folder)]


def main(arguments: Sequence[str]) -> None:
    """Run a cell, its ranks in processes of their own, and print what was found; with a rank as the fourth argument, be that rank."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(arguments[0]).items()}
    cell = Cell(**values)
    if len(arguments) > 2:
        _be_rank(cell, Path(arguments[1]), Path(arguments[2]), int(arguments[3]))
        return
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
    from hoptrain.benchmarks.peers.loaders import tcmalloc
    from hoptrain.benchmarks.peers.samplers import require
    from hoptrain.benchmarks.study.loaders import NEEDS

    if cell.allocator == "tcmalloc" and tcmalloc() is None:
        return "tcmalloc is not installed (Debian: libtcmalloc-minimal4)"
    package = NEEDS[cell.system]
    try:
        if package is not None:
            require(package)
    except InputError as error:
        return f"{package}: {error}"
    return None


def _run_ranks(arguments: Sequence[str], ranks: int, scratch: Path) -> None:
    """As a launcher does: one process a rank; when one fails, the others are ended."""
    command = [sys.executable, "-m", "hoptrain.benchmarks.study.cell", *arguments, str(scratch)]
    environment = os.environ | {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
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
                os.killpg(process.pid, signal.SIGKILL)  # also the workers that wait for the next epoch
            process.wait()
    if any(codes):
        raise SystemExit(next(1 for code in codes if code))


def merge(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the ranks found, together: times of the slowest rank in the middle one of the epochs, memory as sums, and rank 0's accuracy."""
    epochs = list(zip(*(one["epochs"] for one in found), strict=True))
    slowest = [max(ranks, key=lambda one: float(one["seconds"])) for ranks in epochs]
    middle = sorted(slowest, key=lambda one: float(one["seconds"]))[(len(slowest) - 1) // 2]
    return {
        "epoch_s": middle["seconds"],
        "first_epoch_s": max(one["first_epoch_s"] for one in found),
        "steps": [one["epochs"][-1]["steps"] for one in found],
        "seeds": [one["epochs"][-1]["seeds"] for one in found],
        "edges": [one["epochs"][-1]["edges"] for one in found],
        "rows": [one["epochs"][-1]["rows"] for one in found],
        "phases": middle["phases"],
        "sample_s": float(np.mean([one["sample_s"] for ranks in epochs for one in ranks])),
        "gather_s": float(np.mean([one["gather_s"] for ranks in epochs for one in ranks])),
        "trainer_cpu_s": float(np.mean([one["trainer_cpu_s"] for ranks in epochs for one in ranks])),
        "peak_rss": sum(one["memory"]["peak_rss"] for one in found),
        "pss": sum(one["memory"]["pss"] for one in found),
        "shared": sum(one["memory"]["shared"] for one in found),
        "gpu_bytes": sum(one["gpu_bytes"] for one in found),
        **{name: found[0][name] for name in ("accuracy", "loss", "parameters", "threads", "pinned", "device", "gradient_bytes")},
    }


def _be_rank(cell: Cell, folder: Path, scratch: Path, rank: int) -> None:
    import faulthandler

    faulthandler.register(signal.SIGUSR1, all_threads=False)
    from hoptrain.benchmarks.study.train import train

    try:
        found = train(cell, folder, scratch, rank)
    except InputError as error:
        say(f"{RAISED if cell.system == FAMILY else SKIPPED}{error}")  # a peer that cannot be used
        raise
    except BaseException as error:
        say(f"{RAISED}{type(error).__name__}: {error}")
        raise
    (scratch / f"{rank}.json").write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # how long libraries take to end is another question


if __name__ == "__main__":
    main(sys.argv[1:])
