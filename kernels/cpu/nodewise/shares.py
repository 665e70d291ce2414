"""Neighbour sampling of one hop on the CPU with a fanout that is a share of the degree. It processes node by node, without lanes.

``draw_hop`` and ``draw_places`` take the arguments of the functions with these names in ``hoptrain.kernels.cpu.nodewise.neighbor``.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.nodewise.neighbor import column_of
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch
from hoptrain.kernels.shared.draws import alias_offset, bounded, num_draws, selects, takes_all, word_at
from hoptrain.kernels.shared.philox import four_words

_AHEAD = 32
_U3 = np.uint64(3)
_U2 = np.uint64(2)


@cpu_kernel
def draw_hop(columns, nodes, first, last, rule, address, scratch, edges, num_edges):
    """Draw edges into the destinations ``nodes[first:last]``; ``edges`` already holds ``num_edges``. Return the number of edges."""
    indices, edge_ids, out_indices = columns.indices, edges.edge_ids, edges.indices
    total = draw_places(columns, nodes, first, last, rule, address, scratch, edges, num_edges)
    for j in places(num_edges, total):
        out_indices[j] = indices[unsigned(edge_ids[j])]
    return total


@cpu_kernel
def draw_places(columns, nodes, first, last, rule, address, scratch, edges, num_edges):
    """Draw only the edge ids, without reading ``indices``, which need not be in memory. Return the number of edges."""
    indptr, edge_ids = columns.indptr, edges.edge_ids
    threshold, alias, weighted, replace = columns.threshold, columns.alias, rule.weighted, rule.replace
    for i in range(first, last):
        prefetch(indptr, np.int64(nodes[min(i + _AHEAD, last - 1)]))
        column, degree = column_of(indptr, alias, weighted, nodes[i])
        count = num_draws(degree, rule.fanout, replace)
        if takes_all(degree, rule.fanout, replace):
            for j in range(count):
                edge_ids[unsigned(num_edges + j)] = column + j
        elif replace:
            draw_repeatedly(np.uint64(nodes[i]), column, degree, count, weighted, threshold, alias, address, edge_ids, num_edges)
        else:
            select(np.uint64(nodes[i]), column, degree, count, address, edge_ids, num_edges)
        num_edges += count
        edges.indptr[i + 1] = num_edges
    return num_edges


@cpu_kernel
def draw_repeatedly(vertex, column, degree, count, weighted, threshold, alias, address, edge_ids, num_edges):
    """Draw ``count`` edges with replacement, uniformly or by weight, and write them to ``edge_ids`` from ``num_edges`` on."""
    seed, epoch, batch, hop = address
    size = np.uint64(2 if weighted else 1)
    for j in range(np.uint64(count)):
        place = j * size
        if place & _U3 == 0:
            words = four_words(seed, epoch, batch, hop, vertex, place >> _U2)
        offset = bounded(word_at(place & _U3, *words), degree)
        if weighted:
            at = unsigned(column + offset)
            offset = alias_offset(offset, word_at((place & _U3) + np.uint64(1), *words), threshold[at], np.int64(alias[at]))
        edge_ids[unsigned(num_edges) + j] = column + offset


@cpu_kernel
def select(vertex, column, degree, rest, address, edge_ids, num_edges):
    """Draw ``rest`` distinct edges by selection sampling, and write them to ``edge_ids`` from ``num_edges`` on.

    See ``hoptrain.kernels.shared.draws`` for the method.
    """
    seed, epoch, batch, hop = address
    offset = 0
    while rest > 0:
        if offset & 3 == 0:
            words = four_words(seed, epoch, batch, hop, vertex, np.uint64(offset >> 2))
        if selects(word_at(offset & 3, *words), degree - offset, rest):
            edge_ids[unsigned(num_edges)] = column + offset
            num_edges += 1
            rest -= 1
        offset += 1
