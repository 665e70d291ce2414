"""The list of the samplers that are compared: how each is timed by ``hoptrain bench algorithms``, and trained with by ``hoptrain bench accuracy``.

``configs/bench/end_to_end.yaml`` takes some of them too, with numbers of its own configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from hoptrain.benchmarks.common.options import SEED
from hoptrain.engine import Graph, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.samplers import (
    ASGCNSampler,
    ClusterSampler,
    FastGCNSampler,
    LaborSampler,
    LadiesSampler,
    MVSSampler,
    NeighborSampler,
    Node2Vec,
    PinSAGESampler,
    RandomWalk,
    RippleWalkSampler,
    SaintEdgeSampler,
    SaintNodeSampler,
    SaintWalkSampler,
    Sampler,
    ShadowSampler,
    VRGCNSampler,
)

CLUSTER_VERTICES = 1500
"""Nodes of a cluster, about; Cluster-GCN's experiments on Reddit have 233 thousand in 1,500 clusters, 20 of which are a batch."""

Options: TypeAlias = Mapping[str, Any]
"""Arguments by name."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Workload:
    """An algorithm on a graph: what every system is given.

    Attributes:
        graph: in memory, with weights.
        options: the arguments of hoptrain's sampler, which peers take their own from.
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
        schedule = Schedule(items=self.units, batch_size=self.batch_size, seed=SEED)
        return [schedule.batch_items(*divmod(i, schedule.num_steps)) for i in range(first, first + number)]

    @property
    def cluster_of(self) -> Array:
        """(V,) int64, hoptrain's clusters, which all systems use."""
        if not isinstance(self.sampler, ClusterSampler):
            raise TypeError(f"{self.sampler} has no clusters")
        return self.sampler.cluster_of


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Timed:
    """How ``hoptrain bench algorithms`` times a sampler.

    Attributes:
        options: arguments of its class.
        batch_size: see ``Workload``.
        unit: what its cost is told for: an "edge" of the result, a "step" of a walk, or a "batch" where the results differ in size.
        quick: arguments for a small graph, in the place of those of ``options``.
    """

    options: Options
    batch_size: int = 1024
    unit: str = "edge"
    quick: Options = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """How a data set is trained on; ``draws``, ``budget`` and ``clusters`` are sizes that the samplers of layers and of subgraphs take.

    ``budget``, the draws of GraphSAINT by nodes, is some 40 % of the nodes: fewer, alone among many, have hardly an edge between them.
    """

    steps: int
    batch_size: int
    model: Options
    draws: int
    budget: int
    clusters: int


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Algorithm:
    """A sampler of the list.

    Attributes:
        sampler: hoptrain's class.
        deals: what a batch is made from: "seeds", "clusters", or "one" subgraph, drawn from all nodes as clusters are.
        timed: for ``hoptrain bench algorithms``, which leaves out those without.
        trained: from a data set's training to arguments, for ``hoptrain bench accuracy``, which leaves out those without.
        label: in the table of accuracies.
        claims: whether its paper claims the accuracy of full neighbourhoods.
    """

    sampler: type[Any]
    deals: str = "seeds"
    timed: Timed | None = None
    trained: Callable[[Training], Options] | None = None
    label: str = ""
    claims: bool = True

    def workload(self, graph: Graph, split: Array, quick: bool) -> Workload:
        """The algorithm on a graph; with ``quick`` with the options of a small one. Preparations are made here, and not timed."""
        if self.timed is None:
            raise TypeError(f"{self.sampler.__name__} is not timed")
        options = {**self.timed.options, **(self.timed.quick if quick else {})}
        if self.deals == "clusters":
            options["num_clusters"] = max(2 * self.timed.batch_size, graph.num_nodes // CLUSTER_VERTICES)
        vertices = split if self.deals == "seeds" else np.arange(graph.num_nodes)
        sampler = self.sampler(**options).prepare(graph, vertices)
        units = sampler.items(graph, vertices)
        return Workload(graph=graph, options=options, batch_size=min(self.timed.batch_size, len(units)), sampler=sampler, units=units)


_HOPS = {"fanouts": (15, 10, 5)}
_LAYERS = Timed(options={"layer_sizes": (512, 512)}, batch_size=512, unit="batch")
_NEIGHBORS: Options = {"class_path": "hoptrain.samplers.NeighborSampler", "init_args": {"fanouts": [10, 10]}}

ALGORITHMS: Mapping[str, Algorithm] = {
    "full": Algorithm(sampler=NeighborSampler, label="full neighbourhoods", trained=lambda _: {"fanouts": [-1, -1]}),
    "neighbor": Algorithm(
        sampler=NeighborSampler, label="neighbours [10,10]", timed=Timed(options=_HOPS), trained=lambda _: {"fanouts": [10, 10]}
    ),
    "weighted": Algorithm(sampler=NeighborSampler, timed=Timed(options={**_HOPS, "weighted": True})),
    "weighted_replace": Algorithm(sampler=NeighborSampler, timed=Timed(options={**_HOPS, "weighted": True, "replace": True})),
    "labor0": Algorithm(sampler=LaborSampler, label="LABOR-0 [10,10]", timed=Timed(options=_HOPS), trained=lambda _: {"fanouts": [10, 10]}),
    "labor1": Algorithm(
        sampler=LaborSampler,
        label="LABOR-1 [10,10]",
        timed=Timed(options={**_HOPS, "importance_rounds": 1}),
        trained=lambda _: {"fanouts": [10, 10], "importance_rounds": 1},
    ),
    "vrgcn": Algorithm(sampler=VRGCNSampler, label="VR-GCN [2,2]", trained=lambda _: {"fanouts": [2, 2]}),
    "mvs": Algorithm(
        sampler=MVSSampler, label="MVS, half", trained=lambda t: {"sampler": _NEIGHBORS, "num_draws": max(1, t.batch_size // 2)}
    ),
    "pinsage": Algorithm(
        sampler=PinSAGESampler,
        label="PinSAGE",
        timed=Timed(options={"num_neighbors": (5, 5), "num_walks": 20, "walk_length": 4, "restart": 0.5}, batch_size=128),
        trained=lambda _: {"num_neighbors": [10, 10], "num_walks": 20},
        claims=False,  # it learns from means over visits, which is another function than the one that is evaluated
    ),
    "walk": Algorithm(sampler=RandomWalk, timed=Timed(options={"length": 40}, batch_size=4096, unit="step")),
    "node2vec": Algorithm(sampler=Node2Vec, timed=Timed(options={"length": 40, "p": 0.5, "q": 2.0}, batch_size=4096, unit="step")),
    "fastgcn": Algorithm(sampler=FastGCNSampler, label="FastGCN", timed=_LAYERS, trained=lambda t: {"layer_sizes": [t.draws, 2 * t.draws]}),
    "ladies": Algorithm(sampler=LadiesSampler, label="LADIES", timed=_LAYERS, trained=lambda t: {"layer_sizes": [t.draws, t.draws]}),
    "asgcn": Algorithm(sampler=ASGCNSampler, label="AS-GCN", trained=lambda t: {"layer_sizes": [t.draws, t.draws]}),
    "cluster": Algorithm(
        sampler=ClusterSampler,
        label="Cluster-GCN",
        deals="clusters",
        timed=Timed(options={}, batch_size=5),
        trained=lambda t: {"num_clusters": t.clusters},
    ),
    "saint_node": Algorithm(
        sampler=SaintNodeSampler,
        label="SAINT nodes",
        deals="one",
        timed=Timed(options={"budget": 6000, "normalise": False}, batch_size=1, quick={"budget": 1000}),
        trained=lambda t: {"budget": t.budget},
    ),
    "saint_edge": Algorithm(
        sampler=SaintEdgeSampler,
        label="SAINT edges",
        deals="one",
        timed=Timed(options={"budget": 4000, "normalise": False}, batch_size=1, quick={"budget": 700}),
        trained=lambda t: {"budget": 2 * t.draws},
    ),
    "saint_walk": Algorithm(
        sampler=SaintWalkSampler,
        label="SAINT walks",
        deals="one",
        timed=Timed(options={"num_roots": 3000, "walk_length": 2, "normalise": False}, batch_size=1, quick={"num_roots": 400}),
        trained=lambda t: {"num_roots": t.draws, "walk_length": 2},
    ),
    "shadow": Algorithm(
        sampler=ShadowSampler,
        label="ShaDow",
        timed=Timed(options={"depth": 2, "num_neighbors": 10}, batch_size=256),
        trained=lambda _: {"depth": 2, "num_neighbors": 5, "num_layers": 2},
    ),
    "ripple": Algorithm(sampler=RippleWalkSampler, label="ripple walks", deals="one", trained=lambda t: {"size": 3 * t.draws}),
}
"""Algorithms by the name that the summary of ``hoptrain bench algorithms`` uses."""

TIMED: Mapping[str, Timed] = {name: algorithm.timed for name, algorithm in ALGORITHMS.items() if algorithm.timed is not None}
TRAINED: Mapping[str, Algorithm] = {algorithm.label: algorithm for algorithm in ALGORITHMS.values() if algorithm.trained is not None}
