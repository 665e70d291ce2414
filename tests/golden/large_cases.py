"""Cases of realistic size for every sampler with a CUDA driver, on a graph of any size; ``test_bulks_cuda.py`` runs them."""

from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from golden_samplers import Layer, Sage

from hoptrain import samplers as s
from hoptrain.benchmarks.cases.samplers import ALGORITHMS, TIMED, Workload
from hoptrain.engine import Graph, HeteroGraph, load_dataset


@dataclass(frozen=True)
class SyntheticProducts:
    """The synthetic ogbn-products graph with weights and times; ``split`` are the training nodes."""

    graph: Graph
    split: np.ndarray

    @classmethod
    def of(cls, scale):
        data, rng = load_dataset("synthetic:products", scale=scale), np.random.default_rng(0)
        graph = data.graph.in_memory()
        extra = {"weights": rng.random(graph.num_edges, dtype=np.float32), "times": rng.integers(0, 1000, graph.num_edges)}
        return cls(Graph(graph.indptr, graph.indices, **extra, is_sorted=graph.is_sorted, validate=False), data.splits["train"])

    def as_hetero(self):
        """Return the graph's edges as three relations: within a type, into it from a second type, and back into the second type."""
        columns, relations = (self.graph.indptr, self.graph.indices), (("p", "near", "p"), ("q", "far", "p"), ("p", "of", "q"))
        return HeteroGraph({"p": self.graph.num_nodes, "q": self.graph.num_nodes}, dict.fromkeys(relations, columns))


def work(sampler: Any, products: SyntheticProducts, graph: Any = None, batch_size: int = 1024) -> Workload:
    """Return the sampler, prepared as the loader does, with its items and options."""
    graph = graph or products.graph
    ready = sampler.prepare(graph, products.split)
    units = ready.items(graph, products.split)
    return Workload(graph=graph, options={}, batch_size=min(batch_size, len(units)), sampler=ready, units=units)


def timed(name):
    """Return a case of ``hoptrain bench algorithms``, with clusters by a formula, since METIS may be missing."""

    def make(products):
        with patch("hoptrain.samplers.subgraphs.cluster.partition", lambda graph, number: np.arange(graph.num_nodes) * 7 % number):
            return ALGORITHMS[name].workload(products.graph, products.split, quick=True)

    return make


LARGE = {name: timed(name) for name in TIMED} | {
    "vrgcn": lambda products: work(s.VRGCNSampler([2, 2]), products),
    "temporal": lambda products: work(s.TemporalSampler([10, 5], seed_times=np.arange(products.graph.num_nodes) % 1000), products),
    "temporal, recent": lambda products: work(
        s.TemporalSampler([10, 5], seed_times=np.full(products.graph.num_nodes, 500), strategy="recent"), products
    ),
    "typed": lambda products: work(s.HeteroSampler([10, 5], "p"), products, products.as_hetero()),
    "asgcn": lambda products: work(s.ASGCNSampler([512, 512]), products, batch_size=512),
    "program, blocks": lambda products: work(Sage([10, 5]), products),
    "program, collective": lambda products: work(Layer(), products, batch_size=256),
    "metapath": lambda products: work(s.MetapathWalk(np.arange(products.graph.num_edges) % 3, [0, 1, 2], length=9, num_walks=2), products),
    "ripple": lambda products: work(s.RippleWalkSampler(1000), products, batch_size=1),
    "shadow, ppr": lambda products: work(s.ShadowPPRSampler(top=50, alpha=0.25, epsilon=1e-3), products, batch_size=64),
    "links": lambda products: work(s.LinkSampler(s.NeighborSampler([10, 5])), products),
    "links, temporal": lambda products: work(s.LinkSampler(s.TemporalSampler([5, 3]), "degree", num_negatives=2), products, batch_size=512),
    "mvs": lambda products: work(s.MVSSampler(s.NeighborSampler([10, 5]), num_draws=512), products),
    "weighted seeds": lambda products: work(
        s.WeightedSeedSampler(s.NeighborSampler([10, 5]), 1 + np.arange(products.graph.num_nodes) % 9), products, batch_size=512
    ),
}
"""Functions that make a case from a ``SyntheticProducts``, by name. Every CUDA driver has one (``test_golden_cuda.py``)."""
