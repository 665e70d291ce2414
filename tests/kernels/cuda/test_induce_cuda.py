"""In-edges selected for induced subgraphs: in the graph's order, however the work is divided."""

import numpy as np
import pytest
from cuda_case import TESTED, launch, needs_cuda, to_device, to_host  # noqa: F401

from hoptrain.kernels.cuda.induce import PAIR_BITS, pick_wanted, scan_in_edges
from hoptrain.kernels.cuda.relabel import clear_table, enter_nodes

pytestmark = needs_cuda

DEGREES = [0, 0, 3, 0, 1, 7, 0, 0, 2, 0]
INDPTR = np.concatenate([[0], np.cumsum(DEGREES)])
INDICES = np.random.default_rng(0).integers(0, 10, INDPTR[-1])
BATCHES = [[0, 1, 5, 3, 2, 8, 6, 7], [5], [3, 0], [8, 9]]


def expected(nodes, wanted):
    """Compute offsets, edge ids and values by loops.

    ``wanted`` maps a node to a value. If nodes are pairs (set, node), an edge stays within its set.
    """
    indptr, edges, values = [0], [], []
    for node in nodes:
        number, local = divmod(node, 1 << PAIR_BITS)
        for e in range(INDPTR[local], INDPTR[local + 1]):
            other = (number << PAIR_BITS) + int(INDICES[e])
            if other in wanted:
                edges.append(e)
                values.append(wanted[other])
        indptr.append(len(edges))
    return indptr, edges, values


def pick(batches, wanted, parts, capacity):
    """Return the edges that the kernels select for the nodes of each batch; ``wanted`` holds the table of each batch."""
    num, width = len(batches), max(len(nodes) for nodes in batches)
    run, zeros = launch(num), to_device(np.zeros(num))
    graph = to_device(INDPTR, np.int32), to_device(INDICES, np.int32)
    nodes = to_device([nodes + [0] * (width - len(nodes)) for nodes in batches])
    count = to_device([len(nodes) for nodes in batches])
    table = to_device(np.zeros((num, 32))), to_device(np.zeros((num, 32)), np.int32)
    clear_table(run, *table)
    entries = to_device([list(some) + [0] * (16 - len(some)) for some in wanted])
    run.rows(enter_nodes, 16, entries, to_device([len(some) for some in wanted]), *table, entries)
    offsets, sums, totals = to_device(np.zeros((num, width + 1)), np.int32), to_device(np.zeros((num, 50))), to_device(np.zeros(num))
    scan_in_edges(run, graph[0], nodes, width, count, offsets, sums, zeros, totals)
    assert to_host(totals).tolist() == [sum(DEGREES[n & 15] for n in nodes) for nodes in batches]
    output = [to_device(np.full((num, size), -7), np.int32) for size in (width + 1, capacity, capacity)]
    hits, found = to_device(np.zeros((num, parts + 1)), np.int32), to_device(np.zeros(num))
    pick_wanted(run, graph, nodes, count, offsets, table, (parts, to_device([parts] * num)), (hits, sums, zeros), output, found)
    return [to_host(array) for array in output], to_host(found)


@pytest.mark.parametrize("parts", [1, 2, 3, 13, 40])
def test_any_number_of_parts(parts):
    """The selected edges are the same for any number of parts.

    Columns without edges are at the beginning, in between and at the end; some batches have no edges at all.
    """
    (indptr, edges, values), found = pick(BATCHES, BATCHES, parts, 16)
    for b, nodes in enumerate(BATCHES):
        want = expected(nodes, {node: place for place, node in enumerate(nodes)})
        assert indptr[b, : len(nodes) + 1].tolist() == want[0]
        assert (edges[b, : found[b]].tolist(), values[b, : found[b]].tolist()) == want[1:]


def test_pairs_see_their_own_set_only():
    pairs = [(number << PAIR_BITS) + local for number, local in ((0, 5), (1, 5), (1, 2), (2, 8), (0, 4))]
    (indptr, edges, values), found = pick([pairs], [pairs], 3, 32)
    want = expected(pairs, {pair: place for place, pair in enumerate(pairs)})
    assert found[0] > 0
    assert (indptr[0].tolist(), edges[0, : found[0]].tolist(), values[0, : found[0]].tolist()) == want


def test_edges_beyond_the_capacity_are_counted_only():
    everything = [list(range(10))]
    (indptr, edges, _), found = pick(everything, everything, 4, 5)
    assert found.tolist() == [INDPTR[-1]]
    assert indptr[0].tolist() == INDPTR.tolist()
    assert edges[0].tolist() == [0, 1, 2, 3, 4]
