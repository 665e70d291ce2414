"""Golden cases of samplers: by name, a function that makes the sampler, its graph and the seeds of two batches."""

from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from golden_batches import contents
from golden_graphs import TRAIN, doubly_weighted, hetero_graph, large, small, spread, valued, wide

from hoptrain import samplers as s

ADDRESSES = ((0, 0, 0), (7, 3, 11), (2**64 - 3, 2**20 - 1, 2**32 - 2))
"""(seed, epoch, number of the first batch); the last entry is the largest valid address."""
SEEDS = (np.array([3, 0, 35, 8, 21]), np.array([38, 5, 17]))
MANY = (np.arange(0, 3000, 8), np.arange(1, 3000, 17))
EDGES = (np.array([3, 70, 11, 200]), np.array([100]))
ONE = (np.array([0]), np.array([1]))
ONE_OF_EACH = {
    "neighbor", "labor", "pinsage", "temporal", "vrgcn", "ladies", "fastgcn", "asgcn", "cluster", "saint, node", "saint, edge", "saint, walk", "ripple",
    "shadow", "shadow, ppr", "links", "mvs", "weighted seeds", "typed", "program", "walk", "node2vec", "metapath",
}  # fmt: skip
"""Cases that represent a class of samplers in ``make test`` on CUDA, where all cases would take too long."""


def one_of_each(name):
    """Return the mark of a case that ``make test`` always runs, or no mark."""
    return pytest.mark.promise if name in ONE_OF_EACH else ()


class Sampled(NamedTuple):
    """A sampler with its graph and the seeds of a bulk."""

    sampler: Any
    graph: Any
    bulk: Any

    def alone(self, **options):
        """Yield the contents of the batches, each sampled singly."""
        for seed, epoch, first in ADDRESSES:
            for i, units in enumerate(self.bulk):
                yield contents(self.sampler.sample(self.graph, units, seed=seed, epoch=epoch, batch=first + i, **options))

    def in_bulks(self, workspace, addresses=ADDRESSES, to_host=lambda array: array):
        """Yield the contents of the batches, sampled together."""
        for seed, epoch, first in addresses:
            options = {"seed": seed, "epoch": epoch, "first_batch": first, "workspace": workspace}
            for batch in self.sampler.sample_bulk(self.graph, self.bulk, **options):
                yield contents(batch.map(to_host))


class Sage(s.SamplingProgram):
    """A program that samples as ``NeighborSampler(fanouts, replace=True)``."""

    def __init__(self, fanouts):
        self.fanouts, self.steps = fanouts, len(fanouts)

    def sample_size(self, step):
        return self.fanouts[step]

    def next(self, transit, step, rng):
        return s.randint(rng, len(transit.neighbors))


class Layer(s.SamplingProgram):
    """A program that draws neighbours into a layer if at least two edges lead from them."""

    sampling_type = "collective"
    steps = 2

    def sample_size(self, step):
        return 9

    def next(self, transit, step, rng):
        place = s.randint(rng, len(transit.neighbors))
        return place if transit.weights[place] >= 2 else s.STOP


def on(sampler, bulk=SEEDS, graph=None):
    """Return a case for the small graph or a given one, with the sampler prepared as by the loader."""
    graph = graph or small()
    return Sampled(sampler.prepare(graph, TRAIN), graph, bulk)


def partitioned():
    """Return a case with clusters by a formula, since METIS may partition differently in another version."""
    with patch("hoptrain.samplers.subgraphs.cluster.partition", lambda graph, number: np.arange(graph.num_nodes) * 7 % number):
        return on(s.ClusterSampler(5), (np.array([2, 0]), np.array([4])))


def scored():
    sampler = s.ASGCNSampler([6, 4])
    sampler.set_scores(spread(40, 6) % 100 / 99)
    return on(sampler)


def by_norms(inner):
    case = on(s.MVSSampler(inner, num_draws=5), (np.arange(0, 40, 3), np.arange(1, 12)))
    case.sampler.update(np.arange(40), spread(40, 7) % 100 / 99)
    return case


HETERO_FANOUTS = {"p:cites:p": [2, 0], "a:writes:p": [0, -1], "p:of:a": [3, 2], "p:in:venue": [-1, 1]}
SEVERAL = (np.array([3, 36, 20, 1]), np.array([19, 38]))
"""Seeds of several types: 20 papers, 15 authors and 4 venues are numbered in this order."""
TIMES = 10 + np.arange(40)
KINDS = np.arange(240) % 3

SAMPLED = {
    "neighbor": lambda: on(s.NeighborSampler([3, 2])),
    "neighbor, all": lambda: on(s.NeighborSampler([-1, 2])),
    "neighbor, replace": lambda: on(s.NeighborSampler([3, 2], replace=True)),
    "neighbor, weighted": lambda: on(s.NeighborSampler([3, 2], weighted=True)),
    "neighbor, weighted, all": lambda: on(s.NeighborSampler([-1, 2], weighted=True)),
    "neighbor, weighted, float64": lambda: on(s.NeighborSampler([3, 2], weighted=True), graph=doubly_weighted()),
    "neighbor, weighted, replace": lambda: on(s.NeighborSampler([3, 2], weighted=True, replace=True)),
    "neighbor, new": lambda: on(s.NeighborSampler([3, 2], expand="new")),
    "neighbor, new, weighted, replace": lambda: on(s.NeighborSampler([3, -1], weighted=True, replace=True, expand="new")),
    "neighbor, int64": lambda: on(s.NeighborSampler([3, 2]), graph=wide()),
    "neighbor, large": lambda: on(s.NeighborSampler([15, 10]), MANY, large()),
    "neighbor, large, weighted": lambda: on(s.NeighborSampler([15, 10], weighted=True), MANY, large()),
    "neighbor, large, replace, new": lambda: on(s.NeighborSampler([15, 15], replace=True, expand="new"), MANY, large()),
    "neighbor, share": lambda: on(s.NeighborSampler([0.5, 2])),
    "neighbor, share, replace, new": lambda: on(s.NeighborSampler([0.3, 0.7], replace=True, expand="new")),
    "neighbor, share, weighted": lambda: on(s.NeighborSampler([3, 0.4], weighted=True)),
    "neighbor, share, weighted, replace": lambda: on(s.NeighborSampler([0.4, -1], weighted=True, replace=True)),
    "neighbor, large, share": lambda: on(s.NeighborSampler([0.2, 10]), MANY, large()),
    "labor": lambda: on(s.LaborSampler([3, 2])),
    "labor, share": lambda: on(s.LaborSampler([0.4, -1])),
    "labor, all": lambda: on(s.LaborSampler([-1, 2])),
    "labor, importance": lambda: on(s.LaborSampler([3, 2], importance_rounds=2)),
    "labor, int64": lambda: on(s.LaborSampler([3, 2]), graph=wide()),
    "labor, large": lambda: on(s.LaborSampler([15, 10]), MANY, large()),
    "labor, large, importance": lambda: on(s.LaborSampler([15, 10], importance_rounds=1), MANY, large()),
    "labor, large, weighted": lambda: on(s.LaborSampler([15, 10], 1, weighted=True), MANY, large()),
    "pinsage": lambda: on(s.PinSAGESampler([3, 2], num_walks=6, walk_length=3)),
    "pinsage, no restart": lambda: on(s.PinSAGESampler([2], num_walks=3, walk_length=5, restart=0.0)),
    "temporal": lambda: on(s.TemporalSampler([3, 2], seed_times=TIMES), (np.array([3, 35, 3]), np.array([38, 5]))),
    "temporal, replace": lambda: on(s.TemporalSampler([3, -1], seed_times=TIMES, replace=True)),
    "temporal, share": lambda: on(s.TemporalSampler([0.5, 0.3], seed_times=TIMES)),
    "temporal, recent": lambda: on(s.TemporalSampler([3, 2], seed_times=TIMES, strategy="recent")),
    "temporal, large fanouts, monotone": lambda: on(s.TemporalSampler([9, -1, 5], seed_times=20 * TIMES, monotone=True)),
    "vrgcn": lambda: on(s.VRGCNSampler([2, 2])),
    "ladies": lambda: on(s.LadiesSampler([6, 4])),
    "ladies, gcn, normalize": lambda: on(s.LadiesSampler([6, 4], norm="gcn", normalize=True)),
    "ladies, large": lambda: on(s.LadiesSampler([512, 512]), MANY, large()),
    "fastgcn": lambda: on(s.FastGCNSampler([12, 12])),
    "fastgcn, gcn": lambda: on(s.FastGCNSampler([12, 12], norm="gcn")),
    "asgcn": lambda: on(s.ASGCNSampler([6, 4])),
    "asgcn, scores": scored,
    "cluster": partitioned,
    "cluster, METIS": lambda: on(s.ClusterSampler(5), (np.array([2, 0]), np.array([4]))),
    "saint, node": lambda: on(s.SaintNodeSampler(9, num_subgraphs=2), ONE),
    "saint, edge": lambda: on(s.SaintEdgeSampler(5, num_subgraphs=2), ONE),
    "saint, walk": lambda: on(s.SaintWalkSampler(3, 4, num_subgraphs=2), ONE),
    "saint, walk, int64": lambda: on(s.SaintWalkSampler(3, 4, num_subgraphs=2), ONE, wide()),
    "ripple": lambda: on(s.RippleWalkSampler(15, num_subgraphs=2), ONE),
    "shadow": lambda: on(s.ShadowSampler(depth=2, num_neighbors=2, num_layers=2)),
    "shadow, ppr": lambda: on(s.ShadowPPRSampler(top=4, alpha=0.4, epsilon=0.02, num_layers=2)),
    "links": lambda: on(s.LinkSampler(s.NeighborSampler([3, 2])), EDGES),
    "links, degree": lambda: on(s.LinkSampler(s.LaborSampler([3]), "degree", num_negatives=2, exclude="self"), EDGES),
    "links, pairs": lambda: on(s.LinkSampler(s.NeighborSampler([3, 2]), "pairs", num_negatives=2), EDGES),
    "links, in batch": lambda: on(s.LinkSampler(s.NeighborSampler([-1, 3], expand="new"), "in_batch", exclude="none"), EDGES),
    "links, filtered": lambda: on(s.LinkSampler(s.NeighborSampler([2]), "filtered", num_negatives=3), EDGES),
    "links, among some": lambda: on(s.LinkSampler(s.NeighborSampler([2]), "filtered", num_negatives=3, dst_range=(10, 30)), EDGES),
    "links, temporal": lambda: on(s.LinkSampler(s.TemporalSampler([3])), EDGES),
    "mvs": lambda: by_norms(s.NeighborSampler([3, 2])),
    "mvs, vrgcn": lambda: by_norms(s.VRGCNSampler([2])),
    "weighted seeds": lambda: on(s.WeightedSeedSampler(s.NeighborSampler([3, 2]), spread(40, 8) % 5)),
    "weighted seeds, typed": lambda: Sampled(
        s.WeightedSeedSampler(s.HeteroSampler([2, 3], "p"), np.arange(20) % 7).prepare(hetero_graph(), np.arange(18)),
        hetero_graph(),
        (np.array([3, 7, 1]), np.arange(9)),
    ),
    "typed": lambda: Sampled(s.HeteroSampler([2, 3], "p"), hetero_graph(), (np.array([3, 7, 1]), np.array([19, 0]))),
    "typed, replace": lambda: Sampled(s.HeteroSampler([2, 3], "p", replace=True), hetero_graph(), (np.array([3, 7, 1]), np.array([19, 4]))),
    "typed, share": lambda: Sampled(s.HeteroSampler([0.5, 3], "p"), hetero_graph(), (np.array([3, 7, 1]), np.array([19, 0]))),
    "typed, by relation": lambda: Sampled(s.HeteroSampler(HETERO_FANOUTS, "p"), hetero_graph(), (np.array([3, 7, 1]), np.array([19, 0]))),
    "typed, new": lambda: Sampled(
        s.HeteroSampler(HETERO_FANOUTS, "p", expand="new"), hetero_graph(), (np.array([3, 7, 1]), np.array([19, 0]))
    ),
    "typed, weighted": lambda: Sampled(s.HeteroSampler([2, -1], "p", weighted=True), valued(), (np.array([3, 7, 1]), np.array([19, 0]))),
    "typed, several types": lambda: Sampled(s.HeteroSampler([2, 3]), hetero_graph(), SEVERAL),
    "typed, temporal": lambda: Sampled(
        s.HeteroTemporalSampler([2, 3], "p", {"p": TIMES[:20]}), valued(), (np.array([3, 7, 3]), np.array([19, 0]))
    ),
    "typed, temporal, recent": lambda: Sampled(
        s.HeteroTemporalSampler([2, 3], None, {"p": TIMES[:20], "a": TIMES[:15], "venue": TIMES[:4]}, strategy="recent"), valued(), SEVERAL
    ),
    "typed, labor": lambda: Sampled(s.HeteroLaborSampler([2, 3], "p"), hetero_graph(), (np.array([3, 7, 1]), np.array([19, 0]))),
    "typed, labor, importance": lambda: Sampled(
        s.HeteroLaborSampler([2, 3], "p", importance_rounds=2), hetero_graph(), (np.array([3, 7, 1]), np.array([19, 0]))
    ),
    "typed, labor, weighted": lambda: Sampled(
        s.HeteroLaborSampler([2, -1], "p", importance_rounds=1, weighted=True), valued(), (np.array([3, 7, 1]), np.array([19, 0]))
    ),
    "typed, links": lambda: Sampled(
        s.HeteroLinkSampler(s.HeteroSampler([2, 3], expand="new"), ("a", "writes", "p"), num_negatives=2, exclude="self"),
        hetero_graph(),
        (np.array([3, 40, 11]), np.array([7])),
    ),
    "typed, links, filtered": lambda: Sampled(
        s.HeteroLinkSampler(s.HeteroSampler([2, 3]), ("a", "writes", "p"), "filtered", 2, exclude="self"),
        hetero_graph(),
        (np.array([3, 40, 11]), np.array([7])),
    ),
    "typed, pinsage": lambda: Sampled(
        s.HeteroPinSAGESampler([3, 2], ["p:of:a", "a:writes:p"], num_walks=6), hetero_graph(), (np.array([3, 7, 1]), np.array([19, 0]))
    ),
    "hgt": lambda: Sampled(s.HGTSampler([3, 2], "p"), hetero_graph(), (np.array([3, 7, 1]), np.array([19, 0]))),
    "program": lambda: on(Sage([3, 2])),
    "program, collective": lambda: on(Layer()),
    "walk": lambda: on(s.RandomWalk(4)),
    "walk, int64": lambda: on(s.RandomWalk(4), graph=wide()),
    "walk, restart": lambda: on(s.RandomWalk(5, num_walks=2, restart=0.3)),
    "node2vec": lambda: on(s.Node2Vec(4, num_walks=2, p=0.5, q=2.0)),
    "metapath": lambda: on(s.MetapathWalk(KINDS, [0, 1], length=3, num_walks=2)),
}

ON_CPU = {
    name for name in SAMPLED if name.startswith("typed, ") and name not in ("typed, replace", "typed, share", "typed, by relation")
} | {"hgt"}
"""Cases without CUDA kernels."""
