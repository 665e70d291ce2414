"""Settings of all compared samplers, for timing in ``hoptrain bench algorithms`` and for training in ``hoptrain bench accuracy``.

``configs/bench/end_to_end.yaml`` also uses some of them, with its own settings.
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
"""Approximate number of nodes per cluster. In Cluster-GCN's experiments Reddit's 233 thousand nodes have 1,500 clusters, 20 of which form a batch."""

Options: TypeAlias = Mapping[str, Any]
"""Keyword arguments of a sampler class or of a model."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Workload:
    """An algorithm with the graph and settings that all systems are given.

    Attributes:
        graph: graph in memory, with edge weights.
        options: arguments of hoptrain's sampler, from which those of baselines are derived.
        batch_size: seeds of a mini-batch, or clusters for Cluster-GCN. The size of GraphSAINT's subgraphs is in ``options``.
        sampler: hoptrain's sampler.
        units: (U,) nodes or clusters from which mini-batches are formed.
    """

    graph: Graph
    options: Options
    batch_size: int
    sampler: Sampler
    units: Array

    def batches(self, first: int, number: int) -> list[Array]:
        """Return the seeds of ``number`` mini-batches, beginning with mini-batch ``first``, counted on over epochs."""
        schedule = Schedule(items=self.units, batch_size=self.batch_size, seed=SEED)
        return [schedule.batch_items(*divmod(i, schedule.num_steps)) for i in range(first, first + number)]

    @property
    def cluster_of(self) -> Array:
        """Cluster of each node as found by hoptrain, (V,) int64, which all systems use."""
        if not isinstance(self.sampler, ClusterSampler):
            raise TypeError(f"{type(self.sampler).__name__} does not divide nodes into clusters: use a ClusterSampler")
        return self.sampler.cluster_of


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Timed:
    """Settings with which ``hoptrain bench algorithms`` times a sampler.

    Attributes:
        options: arguments of the sampler's class.
        batch_size: seeds of a mini-batch, or clusters for Cluster-GCN.
        unit: unit of the reported cost: an "edge" of the result, a "step" of a walk, or a "batch" if the systems' results differ in size.
        quick: arguments for a small graph, which override those in ``options``.
    """

    options: Options
    batch_size: int = 1024
    unit: str = "edge"
    quick: Options = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Settings for training on a data set. ``draws``, ``budget`` and ``clusters`` are sizes for layer-wise and subgraph samplers.

    ``budget`` is the number of nodes that GraphSAINT's node sampler draws, about 40 % of all nodes. With fewer there would be almost no edges between them.
    """

    steps: int
    batch_size: int
    model: Options
    draws: int
    budget: int
    clusters: int


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Algorithm:
    """A sampling algorithm that the benchmarks time or train with.

    Attributes:
        sampler: hoptrain's class.
        deals: content of a batch: "seeds", "clusters", or "one" subgraph. Clusters and subgraphs are sampled from all nodes.
        timed: settings for ``hoptrain bench algorithms``; None if it does not time the sampler.
        trained: returns the sampler's arguments for a training in ``hoptrain bench accuracy``; None if that does not use the sampler.
        label: name in the table of accuracies.
        claims: whether its paper claims the accuracy of full neighbourhoods.
    """

    sampler: type[Any]
    deals: str = "seeds"
    timed: Timed | None = None
    trained: Callable[[Training], Options] | None = None
    label: str = ""
    claims: bool = True

    def workload(self, graph: Graph, split: Array, quick: bool) -> Workload:
        """Return the algorithm's workload on a graph; with ``quick``, a small workload. Precomputation happens here, and is not timed."""
        if self.timed is None:
            raise TypeError(f"{self.sampler.__name__} has no settings for timing: set Algorithm.timed")
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
        claims=False,  # PinSAGE trains with means weighted by visits, but is evaluated with plain means
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
"""Algorithms by their names in the summary of ``hoptrain bench algorithms``."""

TIMED: Mapping[str, Timed] = {name: algorithm.timed for name, algorithm in ALGORITHMS.items() if algorithm.timed is not None}
TRAINED: Mapping[str, Algorithm] = {algorithm.label: algorithm for algorithm in ALGORITHMS.values() if algorithm.trained is not None}
