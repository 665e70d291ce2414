"""A cell of a study of whole trainings: what is trained, on whose mini-batches. The program that does it is ``hoptrain.benchmarks.study.run``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array

SYSTEMS = ("hoptrain", "pyg", "dgl", "papers")
HAVE = {"neighbor": SYSTEMS[:3], "cluster": SYSTEMS[:3], "ladies": ("hoptrain", "papers"), "fastgcn": ("hoptrain", "papers")}
"""The systems that have each algorithm."""
PHASES = ("wait", "copy", "train", "all_reduce", "other")
"""Phases of the trainer's time, in the order of a step; together they make up the epoch."""
ALLOCATORS = ("malloc", "tcmalloc")


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
        test_nodes: nodes of the test split that are evaluated; None takes all, 0 evaluates nothing.
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
                f"{self.ranks} ranks, batches of {self.batch_size}, {self.epochs} epochs, {self.workers} workers, {self.num_seeds} seeds: all must be at "
                "least 1 (workers 0), with a seed for each rank; give larger numbers"
            )
        wants = {"cluster": self.clusters > 0, "ladies": bool(self.layer_sizes), "fastgcn": bool(self.layer_sizes)}
        if not wants.get(self.algorithm, True) or (self.algorithm != "neighbor" and self.ranks > 1):
            raise InputError(
                f"{self.algorithm} with {self.clusters} clusters, layer_sizes {list(self.layer_sizes)} and {self.ranks} ranks: cluster needs clusters, "
                "ladies and fastgcn need layer_sizes, and all three run with one rank; give these options"
            )

    @property
    def sampler_arguments(self) -> dict[str, Any]:
        """Arguments of hoptrain's sampler class for the algorithm."""
        arguments: dict[str, dict[str, Any]] = {
            "neighbor": {"fanouts": self.fanouts, "expand": self.expand},
            "cluster": {"num_clusters": self.clusters, "num_layers": len(self.fanouts)},
            "ladies": {"layer_sizes": self.layer_sizes, "normalize": True},
            "fastgcn": {"layer_sizes": self.layer_sizes},
        }
        return arguments[self.algorithm]


class Place(NamedTuple):
    """A rank's number, and the seeds (N,) of an epoch over all ranks."""

    rank: int
    seeds: Array
