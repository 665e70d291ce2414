from itertools import combinations
from math import comb

import numpy as np
import pytest
from reference import neighbor as reference
from scipy.stats import chisquare

from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.csc import coo_to_csc
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.relabel import relabel
from hoptrain.samplers.buffers.workspace import RelabelTable

KEY = (17, 2, 5, 1)  # seed, epoch, batch, hop
NO_TABLES = np.zeros(0, np.uint32), np.zeros(0, np.int32)


def column_graph(degrees):
    """Return a CSC graph with the in-degrees ``degrees``; all sources differ, so that a source identifies its edge."""
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    return indptr, np.arange(1000, 1000 + indptr[-1], dtype=np.int32)


def scratch(fanout, weighted=False):
    """Return scratch arrays filled with garbage."""
    words, offsets = kernels.scratch_shapes(fanout, weighted)
    fill = 0x5A5A5A5A
    chunk = offsets[1]
    return kernels.HopScratch(
        np.full(words, fill, np.uint32), np.full(offsets, fill, np.int32), np.full((5, chunk), fill), np.full(chunk, fill, np.int32)
    )


def sample(indptr, indices, nodes, fanout, replace=False, key=KEY, tables=None):
    """Sample one hop, and return offsets, edge ids and neighbours."""
    nodes = np.asarray(nodes, dtype=indices.dtype)
    columns = kernels.CscColumns(indptr, indices, *(tables or NO_TABLES))
    rule = kernels.DrawOptions(fanout, replace, tables is not None)
    total = kernels.count_edges(columns, nodes, 0, len(nodes), rule)
    edges = kernels.HopEdges(np.full(len(nodes) + 1, -99, np.int64), np.full(total, -99, np.int64), np.full(total, -99, indices.dtype))
    edges.indptr[0] = 0
    address = HopAddress(*map(np.uint64, key))
    drawn = kernels.draw_hop(columns, nodes, 0, len(nodes), rule, address, scratch(fanout, rule.weighted), edges, 0)
    assert drawn == total
    return edges.indptr, edges.edge_ids, edges.indices


def offsets_of(indptr, nodes, out_indptr, edges):
    """Return, for each node, the positions of the drawn edges within its column."""
    return [(edges[out_indptr[i] : out_indptr[i + 1]] - indptr[v]).tolist() for i, v in enumerate(nodes)]


DEGREES = [0, 1, 2, 3, 5, 8, 63, 64, 65, 66, 100, 128, 129, 200, 5000]
FANOUTS = [0, 1, 2, 3, 4, 5, 8, 63, 64, 65, 100, 129, 199]


@pytest.mark.parametrize("fanout", FANOUTS)
def test_without_replacement(fanout):
    indptr, indices = column_graph(DEGREES)
    nodes = range(len(DEGREES))
    out_indptr, edges, neighbors = sample(indptr, indices, nodes, fanout)
    assert np.diff(out_indptr).tolist() == [min(degree, fanout) for degree in DEGREES]
    assert out_indptr[0] == 0
    for degree, drawn in zip(DEGREES, offsets_of(indptr, nodes, out_indptr, edges), strict=True):
        assert len(set(drawn)) == len(drawn)
        assert all(0 <= offset < degree for offset in drawn)
        if degree <= fanout:
            assert drawn == list(range(degree))
    assert np.array_equal(neighbors, indices[edges])


@pytest.mark.parametrize("fanout", FANOUTS)
def test_with_replacement(fanout):
    indptr, indices = column_graph(DEGREES)
    nodes = range(len(DEGREES))
    out_indptr, edges, neighbors = sample(indptr, indices, nodes, fanout, replace=True)
    assert np.diff(out_indptr).tolist() == [fanout if degree else 0 for degree in DEGREES]
    for degree, drawn in zip(DEGREES, offsets_of(indptr, nodes, out_indptr, edges), strict=True):
        assert all(0 <= offset < degree for offset in drawn)
    assert np.array_equal(neighbors, indices[edges])


def test_with_replacement_repeats():
    indptr, indices = column_graph([3])
    _, edges, _ = sample(indptr, indices, [0], 60, replace=True)
    assert sorted(set(edges.tolist())) == [0, 1, 2]


@pytest.mark.parametrize("replace", [False, True])
def test_all_neighbours_in_stored_order(replace):
    indptr, indices = column_graph(DEGREES)
    out_indptr, edges, neighbors = sample(indptr, indices, range(len(DEGREES)), -1, replace)
    assert np.array_equal(out_indptr, indptr)
    assert np.array_equal(edges, np.arange(len(indices)))
    assert np.array_equal(neighbors, indices)


def test_no_destinations():
    out_indptr, edges, neighbors = sample(*column_graph(DEGREES), [], 3)
    assert out_indptr.tolist() == [0]
    assert len(edges) == len(neighbors) == 0


def test_self_loops_and_multi_edges_are_kept():
    indptr = np.array([0, 5, 7], np.int64)
    indices = np.array([0, 1, 1, 1, 0, 1, 1], np.int32)
    out_indptr, edges, neighbors = sample(indptr, indices, [0, 1], 4)
    assert out_indptr.tolist() == [0, 4, 6]
    assert len(set(edges.tolist())) == 6, "edges differ, though nodes repeat"
    assert np.array_equal(neighbors, indices[edges])


@pytest.mark.parametrize(("degree", "fanout"), [(2, 1), (4, 2), (5, 3), (6, 5), (7, 1), (66, 1), (66, 65)])
def test_every_subset_equally_likely_over_nodes(degree, fanout):
    repeats = 300 * comb(degree, fanout)
    indptr, indices = column_graph([degree] * repeats)
    out_indptr, edges, _ = sample(indptr, indices, range(repeats), fanout)
    check_subsets(offsets_of(indptr, range(repeats), out_indptr, edges), degree, fanout)


@pytest.mark.parametrize("field", [0, 1, 2, 3], ids=["seed", "epoch", "batch", "hop"])
def test_every_subset_equally_likely_over_addresses(field):
    indptr, indices = column_graph([5])
    drawn = []
    for value in range(2000):
        key = [*KEY[:field], value, *KEY[field + 1 :]]
        drawn.append(sample(indptr, indices, [0], 2, key=key)[1].tolist())
    check_subsets(drawn, 5, 2)


def check_subsets(drawn, degree, fanout):
    number = {subset: i for i, subset in enumerate(combinations(range(degree), fanout))}
    counts = np.bincount([number[tuple(sorted(offsets))] for offsets in drawn], minlength=len(number))
    assert chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize(("degree", "fanout"), [(100, 10), (300, 70)])
def test_every_neighbour_equally_likely(degree, fanout):
    """Each neighbour is drawn with the same frequency; for columns beyond 64 neighbours there are too many subsets to count."""
    indptr, indices = column_graph([degree] * 2000)
    out_indptr, edges, _ = sample(indptr, indices, range(2000), fanout)
    counts = np.bincount(np.concatenate(offsets_of(indptr, range(2000), out_indptr, edges)), minlength=degree)
    # Draws within a node exclude one another, which makes the counts more even than independent ones: scale the variance.
    statistic = ((counts - counts.mean()) ** 2).sum() / (counts.mean() * (1 - fanout / degree)) * (degree - 1) / degree
    assert abs(statistic - (degree - 1)) < 5 * np.sqrt(2 * (degree - 1))


def test_with_replacement_uniform():
    indptr, indices = column_graph([70] * 3000)
    out_indptr, edges, _ = sample(indptr, indices, range(3000), 11, replace=True)
    counts = np.bincount(np.concatenate(offsets_of(indptr, range(3000), out_indptr, edges)), minlength=70)
    assert chisquare(counts).pvalue > 1e-4


def test_draws_of_a_node_do_not_depend_on_other_destinations():
    indptr, indices = column_graph(DEGREES)
    alone = sample(indptr, indices, [12], 7)[2]
    out_indptr, _, neighbors = sample(indptr, indices, [3, 14, 12, 8], 7)
    assert np.array_equal(neighbors[out_indptr[2] : out_indptr[3]], alone)


# The whole hop against the reference.


def random_graph(source, num_nodes, num_edges, num_hubs):
    """Return random edges, half of which lead into a few hubs, with self loops, parallel edges and isolated nodes."""
    src = source.integers(0, num_nodes, num_edges)
    dst = source.integers(0, num_nodes, num_edges)
    half = num_edges // 2
    dst[:half] = source.integers(0, num_hubs, half)
    dst[dst == num_nodes - 1] = 0  # the last node has no neighbours
    indptr, indices, _ = coo_to_csc(src, dst, num_nodes, np.int32)
    return indptr, indices


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [-1, 0, 1, 4, 15, 70])
def test_hops_against_the_reference(fanout, replace):
    source = np.random.default_rng(fanout + 10)
    for num_nodes, num_edges in [(1, 3), (10, 40), (200, 500), (600, 3000)]:
        indptr, indices = random_graph(source, num_nodes, num_edges, num_hubs=min(2, num_nodes))
        columns = [indices[indptr[v] : indptr[v + 1]].tolist() for v in range(num_nodes)]
        seeds = source.permutation(num_nodes)[: max(1, num_nodes // 5)]
        nodes = np.unique(np.append(seeds, [0, num_nodes - 1]))[::-1].astype(np.int32)
        table = RelabelTable()
        table.start(num_nodes, num_nodes)
        assert table.enter(nodes, len(nodes)) == -1
        for hop in range(3):
            key = (2**63 + 11, 7, 2**32 - 1, hop)
            expected_offsets, expected_local, expected_nodes = reference.hop(columns, nodes.tolist(), fanout, replace, key)
            out_indptr, edges, local = sample(indptr, indices, nodes, fanout, replace, key)
            assert offsets_of(indptr, nodes, out_indptr, edges) == expected_offsets
            longer = np.append(nodes, np.empty(len(local) + 1, np.int32))
            count = relabel(local, 0, len(local), table.view(), longer, len(nodes))
            nodes = longer[:count].copy()
            assert local.tolist() == expected_local
            assert nodes.tolist() == expected_nodes


@pytest.mark.parametrize("fanout", [1, 5, 40])
def test_by_weight_against_the_reference(fanout):
    source = np.random.default_rng(fanout)
    indptr, indices = column_graph(DEGREES)
    threshold = source.integers(0, 1 << 32, len(indices), dtype=np.uint32)
    alias = np.concatenate([source.integers(0, degree, degree) for degree in DEGREES]).astype(np.int32)
    alias[indptr[4] : indptr[5]] = -1  # a column without any weight
    out_indptr, edges, _ = sample(indptr, indices, range(len(DEGREES)), fanout, True, tables=(threshold, alias))
    expected = []
    for v, degree in enumerate(DEGREES):
        column = slice(indptr[v], indptr[v + 1])
        tables = threshold[column].tolist(), alias[column].tolist()
        expected.append([] if v == 4 else reference.offsets(degree, fanout, True, KEY, v, tables))
    assert offsets_of(indptr, range(len(DEGREES)), out_indptr, edges) == expected


def test_a_huge_fanout_takes_fewer_lanes_and_draws_the_same():
    indptr, indices = column_graph([100_000, 7])
    (_, words), (count, chunk) = kernels.scratch_shapes(70_000, False)
    assert (count, chunk) == (70_000, 1)
    assert words >= 70_000 / 4
    _, edges, _ = sample(indptr, indices, [0, 1], 70_000, replace=True)
    assert edges[:40].tolist() == reference.offsets(100_000, 40, True, KEY, 0)
