"""GraphSAINT's draws on the CPU: nodes by weight, the ends of edges, random walks; and a subgraph's weights.

Each draw has a stream of random words of its own: that of "node" ``draw + (attempt << 32)`` at the batch's address. Its first two words
choose where it starts, the following ones an edge each. Draws are made some at a time, each pass asking for what the next one reads.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.offsets import random_words
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch, prefetch_many
from hoptrain.kernels.shared.draws import alias_offset, bounded, bounded_wide

CHUNK = 128
_START_WORDS = 2
_AHEAD = 32


def words_shape(length):
    """The shape of ``words`` for draws that start and then take ``length`` further words."""
    return 4, (_START_WORDS + length + 3) // 4 * CHUNK


@cpu_kernel
def draw_weighted(num_draws, address, attempt, threshold, alias, words, lanes, drawn):
    """``drawn`` (num_draws,): nodes by the alias table over all V of them, with replacement."""
    w0, w1, w2 = words[0], words[1], words[2]
    num_graph_nodes = len(threshold)
    for begin in range(0, num_draws, CHUNK):
        number = _start(begin, num_draws, address, attempt, 1, words, lanes)
        for i in range(number):
            lanes[i] = bounded_wide(w0[i], w1[i], num_graph_nodes)
            prefetch_many(threshold, lanes[i])
            prefetch_many(alias, lanes[i])
        for i in range(number):
            vertex = unsigned(lanes[i])
            drawn[begin + i] = alias_offset(lanes[i], w2[i], threshold[vertex], np.int64(alias[vertex]))


@cpu_kernel
def draw_walks(num_walks, length, address, attempt, roots, in_turn, indptr, indices, words, lanes, drawn):
    """``drawn`` (num_walks * (length+1),): walks of ``length`` steps against the edges.

    They begin at the ``roots`` (N,): at one after the other if ``in_turn``, else each at one that is drawn with replacement. A step takes a
    uniform in-edge; a node without any is stayed at.
    """
    stride = length + 1
    w0, w1 = words[0], words[1]
    num_roots = len(roots)
    for begin in range(0, num_walks, CHUNK):
        number = _start(begin, num_walks, address, attempt, (_START_WORDS + length + 3) // 4, words, lanes)
        for i in range(number):
            lanes[i] = begin + i if in_turn else bounded_wide(w0[i], w1[i], num_roots)
            prefetch_many(roots, lanes[i])
        for i in range(number):
            vertex = np.int64(roots[lanes[i]])
            drawn[(begin + i) * stride] = vertex
            prefetch_many(indptr, vertex)
        for step in range(length):
            word = _START_WORDS + step
            _step(
                begin,
                number,
                words[word & 3, (word >> 2) * number : ((word >> 2) + 1) * number],
                step,
                stride,
                indptr,
                indices,
                lanes,
                drawn,
            )


@cpu_kernel
def _step(begin, number, row, step, stride, indptr, indices, lanes, drawn):
    """One step of a chunk's walks, a word each."""
    for i in range(number):
        vertex = np.int64(drawn[unsigned((begin + i) * stride + step)])
        column = np.int64(indptr[unsigned(vertex)])
        degree = np.int64(indptr[unsigned(vertex + 1)]) - column
        lanes[i] = column + bounded(row[i], degree) if degree > 0 else -1
        prefetch_many(indices, max(lanes[i], 0))
    for i in range(number):
        here = (begin + i) * stride + step
        vertex = np.int64(indices[unsigned(lanes[i])]) if lanes[i] >= 0 else np.int64(drawn[unsigned(here)])
        drawn[unsigned(here + 1)] = vertex
        prefetch_many(indptr, vertex)


@cpu_kernel
def _start(begin, num_draws, address, attempt, num_groups, words, lanes):
    """The random words of a chunk of draws; returns how many they are."""
    number = min(CHUNK, num_draws - begin)
    for i in range(number):
        lanes[i] = begin + i + (attempt << 32)
    random_words(lanes, number, num_groups, address.seed, address.epoch, address.batch, address.hop, words)
    return number


@cpu_kernel
def squared_columns(indptr, indices, weights):
    """``weights`` (V,) float64: for every node the sum of 1 / d**2 over its out-edges, d being the in-degree of the edge's destination.

    Sums run in the order of the edges: they are the same on every machine.
    """
    weights[:] = 0.0
    for v in range(len(indptr) - 1):
        degree = np.float64(indptr[v + 1] - indptr[v])
        for j in places(indptr[v], indptr[v + 1]):
            weights[unsigned(indices[j])] += 1.0 / (degree * degree)


@cpu_kernel
def edge_weights(edge_ids, of_edges, weights):
    """``weights`` (M,) float32: those of the subgraph's edges."""
    num_edges = len(edge_ids)
    for j in range(num_edges):
        prefetch(of_edges, edge_ids[unsigned(min(j + _AHEAD, num_edges - 1))])
        weights[j] = of_edges[unsigned(edge_ids[j])]


@cpu_kernel
def loss_weights(nodes, of_nodes, weights):
    """``weights`` (B,) float32: those of the first B nodes, times B."""
    scale = np.float32(len(weights))
    for i in range(len(weights)):
        weights[i] = scale * of_nodes[nodes[i]]
