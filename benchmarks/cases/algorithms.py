"""The algorithms of ``hoptrain bench algorithms``: their settings, what each system is given, and hoptrain as one of the systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from hoptrain.benchmarks.peers.systems import FAMILY, sample_whole
from hoptrain.engine import Address, Graph, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.samplers import (
    ClusterSampler,
    FastGCNSampler,
    LaborSampler,
    LadiesSampler,
    NeighborSampler,
    Node2Vec,
    PinSAGESampler,
    RandomWalk,
    SaintEdgeSampler,
    SaintNodeSampler,
    SaintWalkSampler,
    Sampler,
    ShadowSampler,
    Workspace,
)
from hoptrain.samplers.programs.cpu import walk
from hoptrain.samplers.programs.program import Program

SEED = 0
CLUSTER_VERTICES = 1500
"""Vertices of a cluster, about; Cluster-GCN's experiments on Reddit have 233 thousand in 1,500 clusters, 20 of which are a batch."""

Options: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Task:
    """An algorithm on a graph: what every system is given.

    Attributes:
        graph: in memory, with weights.
        options: the algorithm's numbers, by name.
        batch_size: seeds of a mini-batch (clusters, for Cluster-GCN; what a subgraph of GraphSAINT draws is among the options).
        sampler: hoptrain's.
        units: (U,) what the seeds of a mini-batch are taken from.
    """

    graph: Graph
    options: Options
    batch_size: int
    sampler: Sampler
    units: Array

    def batches(self, first: int, number: int) -> list[Array]:
        """The seeds of some mini-batches, epoch after epoch."""
        schedule = Schedule(seeds=self.units, batch_size=self.batch_size, seed=SEED)
        return [schedule.batch_seeds(*divmod(i, schedule.num_steps)) for i in range(first, first + number)]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Contender:
    """A system that runs a task.

    Attributes:
        family: whose it is.
        name: which variant.
        threads: threads it uses.
        sample: takes the seeds of some mini-batches and the number of the first; samples them and returns how many edges (or steps) they have.
        note: where it does something else than the others.
        counts: whether its results can be compared at all; else it is shown, and left out of the summary.
    """

    family: str
    name: str
    threads: int
    sample: Callable[[Sequence[Array], int], int]
    note: str = ""
    counts: bool = True


Sample: TypeAlias = Callable[[Array], int]
"""From the seeds of one mini-batch to the number of its edges (or steps)."""
Open: TypeAlias = Callable[[str, Task, Sequence[int]], Iterator[Contender]]
"""From an algorithm's name, the task and thread counts to the contenders: none where the system does not have the algorithm."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Algorithm:
    """An algorithm of the comparison.

    Attributes:
        make: from options and graph to hoptrain's sampler.
        options: its numbers.
        batch_size: see ``Task``.
        unit: what its cost is told for: an "edge" of the result, a "step" of a walk, or a "batch" where the results differ in size.
        deals_seeds: whether a mini-batch is asked for by its seeds, vertices of the training split; else all vertices are trained on.
        quick: numbers for a small graph, in the place of those of ``options``.
    """

    make: Callable[[Options], Sampler]
    options: Options
    batch_size: int = 1024
    unit: str = "edge"
    deals_seeds: bool = True
    quick: Options = field(default_factory=dict)

    def task(self, graph: Graph, split: Array, quick: bool) -> Task:
        """The algorithm on a graph; with ``quick`` with the options of a small one. Preparations are made here, and not timed."""
        options = dict(self.options) | (dict(self.quick) if quick else {})
        options["num_clusters"] = max(2 * self.batch_size, graph.num_nodes // CLUSTER_VERTICES)
        vertices = split if self.deals_seeds else np.arange(graph.num_nodes)
        sampler = self.make(options).prepare(graph, vertices)
        units = sampler.units(graph, vertices)
        return Task(graph=graph, options=options, batch_size=min(self.batch_size, len(units)), sampler=sampler, units=units)


def _hops(make: Callable[..., Sampler], **fixed: Any) -> Callable[[Options], Sampler]:
    return lambda options: make(options["fanouts"], **fixed)


_FANOUTS = {"fanouts": (15, 10, 5)}

ALGORITHMS: Mapping[str, Algorithm] = {
    "neighbor": Algorithm(make=_hops(NeighborSampler), options=_FANOUTS),
    "weighted": Algorithm(make=_hops(NeighborSampler, weighted=True), options=_FANOUTS),
    "weighted_replace": Algorithm(make=_hops(NeighborSampler, weighted=True, replace=True), options=_FANOUTS),
    "labor0": Algorithm(make=_hops(LaborSampler), options=_FANOUTS),
    "labor1": Algorithm(make=_hops(LaborSampler, importance_rounds=1), options=_FANOUTS),
    "pinsage": Algorithm(
        make=lambda o: PinSAGESampler([o["neighbors"]] * 2, o["walks"], o["length"], o["restart"]),
        options={"neighbors": 5, "walks": 20, "length": 4, "restart": 0.5},
        batch_size=128,
    ),
    "walk": Algorithm(make=lambda o: RandomWalk(o["length"]), options={"length": 40}, batch_size=4096, unit="step"),
    "node2vec": Algorithm(
        make=lambda o: Node2Vec(o["length"], p=o["p"], q=o["q"]), options={"length": 40, "p": 0.5, "q": 2.0}, batch_size=4096, unit="step"
    ),
    "fastgcn": Algorithm(make=lambda o: FastGCNSampler(o["sizes"]), options={"sizes": (512, 512)}, batch_size=512, unit="batch"),
    "ladies": Algorithm(make=lambda o: LadiesSampler(o["sizes"]), options={"sizes": (512, 512)}, batch_size=512, unit="batch"),
    "cluster": Algorithm(make=lambda o: ClusterSampler(o["num_clusters"]), options={}, batch_size=5, deals_seeds=False),
    "saint_node": Algorithm(
        make=lambda o: SaintNodeSampler(o["budget"], normalise=False),
        options={"budget": 6000},
        batch_size=1,
        deals_seeds=False,
        quick={"budget": 1000},
    ),
    "saint_edge": Algorithm(
        make=lambda o: SaintEdgeSampler(o["budget"], normalise=False),
        options={"budget": 4000},
        batch_size=1,
        deals_seeds=False,
        quick={"budget": 700},
    ),
    "saint_walk": Algorithm(
        make=lambda o: SaintWalkSampler(o["roots"], o["length"], normalise=False),
        options={"roots": 3000, "length": 2},
        batch_size=1,
        deals_seeds=False,
        quick={"roots": 400},
    ),
    "shadow": Algorithm(make=lambda o: ShadowSampler(o["depth"], o["neighbors"]), options={"depth": 2, "neighbors": 10}, batch_size=256),
}
"""By the name that the table and the summary use."""


def open_hoptrain(task: Task, threads: Sequence[int]) -> Iterator[Contender]:
    """Take hoptrain with different numbers of threads, which take whole mini-batches; all arrays are copied out into memory that is used again."""
    for count in threads:
        workspace, slots = Workspace(count), Workspace(count)
        sampler = task.sampler
        if isinstance(sampler, Program):
            sample = partial(_walk, sampler, task.graph, workspace, slots)
        else:
            sample = partial(sample_whole, sampler, task.graph, workspace, slots)
        yield Contender(family=FAMILY, name=FAMILY, threads=count, sample=sample)


def _walk(program: Program, graph: Graph, workspace: Workspace, slots: Workspace, seeds: Sequence[Array], first: int) -> int:
    """Walks in global ids, as the peers give them: the threads share each mini-batch's. Returns the number of steps."""
    steps = 0
    for i, roots in enumerate(seeds):
        walks = walk(program, graph, roots, Address(SEED, 0, first + i), workspace)
        out = slots.array("walks", walks.size, walks.dtype)
        np.copyto(out, walks.reshape(-1))
        steps += walks.size - len(walks)
    return steps


def pool_batches(pool: ThreadPoolExecutor, sample: Sample, seeds: Sequence[Array], first: int) -> int:
    """Whole mini-batches for each thread."""
    import torch

    torch.set_num_threads(1)
    return sum(pool.map(sample, seeds))


def cluster_of(task: Task) -> Array:
    """(V,) int64, hoptrain's clusters, which all systems use."""
    if not isinstance(task.sampler, ClusterSampler):
        raise TypeError(f"{task.sampler} has no clusters")
    return task.sampler.cluster_of


def num_steps(walks: Any) -> int:
    """Of a tensor of walks, one a row, which begin with their roots."""
    return int(walks.numel() - len(walks))
