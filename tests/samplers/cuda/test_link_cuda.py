"""Edges as seeds, with their neighbourhoods, on CUDA: each mini-batch is bit-identical to that of the CPU."""

import numpy as np
import pytest
from cases.mistakes import refused
from conftest import make_graph
from cuda_case import needs_cuda
from nodewise_cuda_case import check_equal, on_cuda

from hoptrain.engine import Graph
from hoptrain.samplers import LaborSampler, LinkSampler, NeighborSampler, ShadowSampler, TemporalSampler

pytestmark = needs_cuda


@pytest.fixture(scope="module")
def both_ways():
    """Return a graph in which every edge has its reverse, so that many edges are excluded."""
    plain = make_graph(30, 90)
    src, dst = plain.indices, np.repeat(np.arange(30), plain.in_degrees())
    return Graph.from_edges(np.r_[src, dst], np.r_[dst, src], 30, times=np.random.default_rng(1).integers(0, 50, 180))


@pytest.mark.parametrize(
    ("inner", "options"),
    [
        (NeighborSampler([3, 2]), {}),
        (NeighborSampler([-1, 3], expand="new"), {"negatives": "degree", "num_negatives": 2}),
        (NeighborSampler([4]), {"negatives": "in_batch", "exclude": "none"}),
        (NeighborSampler([2]), {"negatives": "filtered", "num_negatives": 2, "with_edge_ids": True}),
        (LaborSampler([3]), {"exclude": "self", "num_negatives": 0}),
        (TemporalSampler([3]), {}),
    ],
)
def test_equal_to_the_cpu(both_ways, inner, options):
    sampler, workspace = LinkSampler(inner, **options), on_cuda()
    for bulk in ([[3, 70, 11], [100, 4]], [[8]]):
        check_equal(sampler, both_ways, [np.array(edges) for edges in bulk], workspace)


def test_a_bulk_of_16(both_ways):
    check_equal(LinkSampler(NeighborSampler([1])), both_ways, [np.array([7 * i]) for i in range(16)], on_cuda())


def test_edges_are_dropped_on_the_device(both_ways):
    """Excluded edges are missing from batches on CUDA, so the other tests compare batches that have lost edges."""
    bulk = [np.arange(0, 90, 9)]
    dropped, whole = (LinkSampler(NeighborSampler([-1]), exclude=how) for how in ("reverse", "none"))
    (batch,) = check_equal(dropped, both_ways, bulk, on_cuda())
    assert batch.num_edges <= whole.sample_bulk(both_ways, bulk)[0].num_edges - 10


def test_subgraphs_keep_their_edges(both_ways):
    with refused("exclude='reverse'", 'ShadowSampler device="cuda" node-wise', 'exclude="none" device="cpu"'):
        LinkSampler(ShadowSampler(1, 2)).sample(both_ways, np.array([0]), workspace=on_cuda())
