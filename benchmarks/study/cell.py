"""A cell of ``hoptrain bench scale``: the model to train, and the loader that feeds it. ``hoptrain.benchmarks.study.run`` is the program that runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array

SYSTEMS = ("hoptrain", "pyg", "dgl", "papers")
HAVE = {"neighbor": SYSTEMS[:3], "cluster": SYSTEMS[:3], "ladies": ("hoptrain", "papers"), "fastgcn": ("hoptrain", "papers")}
"""Name of an algorithm -> names of the systems that implement it."""
PHASES = ("wait", "copy", "train", "all_reduce", "other")
"""Phases of the trainer's time, in the order in which they occur in a step. Their times add up to the time of the epoch."""
ALLOCATORS = ("malloc", "tcmalloc")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One combination of the grid's values.

    Attributes:
        system: library whose loader is used; a name in ``SYSTEMS``.
        arch: architecture, sage or gat.
        ranks: number of training processes.
        workers: loader processes of each rank; 0 loads in the training process.
        batch_size: seeds per rank and step.
        dataset: name of the data set, as in ``load_dataset``.
        scale: scale of a synthetic data set, in (0, 1].
        fanouts: neighbours per hop from the seeds outward.
        expand: nodes that a hop of hoptrain's sampler expands, "all" as in DGL or "new" as in PyG.
        hidden: hidden channels.
        heads: attention heads of gat.
        dropout: dropout probability of hidden inputs.
        lr: learning rate of Adam.
        weight_decay: weight decay of Adam.
        epochs: timed epochs, after one warm-up epoch.
        num_seeds: seeds of an epoch over all ranks, a random subset of the training split; None takes all.
        threads: torch's threads in each rank; None takes the rank's share of the cores, at least 1, as Lightning does.
        allocator: memory allocator of the processes, the same for all systems.
        test_nodes: nodes of the test split that are evaluated; None takes all, 0 evaluates none.
        seed: seed of weights and batches.
        algorithm: sampling algorithm; a key of ``HAVE``. For all of them the number of layers is the number of fanouts.
        clusters: number of clusters, for "cluster"; a batch has ``batch_size`` of them.
        layer_sizes: nodes to sample per layer from the seeds outward, for "ladies" and "fastgcn".
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
                "least 1 (workers at least 0), with at least one seed for each rank; give larger numbers"
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
    """The index of a rank, and the seeds (N,) of an epoch over all ranks."""

    rank: int
    seeds: Array
