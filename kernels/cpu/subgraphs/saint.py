"""GraphSAINT's draws on the CPU: weighted nodes, ends of edges and random walks; and the weights of a subgraph.

Each draw has its own random stream, that of node number ``draw + (attempt << 32)`` at the batch's address. The first two words choose the start, and
each of the following words an edge. Draws are made in chunks, and each pass prefetches what the next one reads.
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
    """Return the shape of ``words`` for draws that use ``length`` words after the words that choose the start."""
    return 4, (_START_WORDS + length + 3) // 4 * CHUNK


@cpu_kernel
def draw_weighted(num_draws, address, attempt, threshold, alias, words, lanes, drawn):
    """Fill ``drawn`` (num_draws,) with nodes drawn with replacement by the alias table of all V nodes."""
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
    """Fill ``drawn`` (num_walks * (length+1),) with random walks of ``length`` steps against the edges.

    Walks begin at ``roots`` (N,): at each root in order if ``in_turn``, otherwise at roots drawn with replacement. A step takes a uniform in-edge; a
    walk stays at a node without in-edges.
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
    """Make one step of each walk of a chunk, with one random word each."""
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
    """Compute the random words of a chunk's draws, and return the number of draws in the chunk."""
    number = min(CHUNK, num_draws - begin)
    for i in range(number):
        lanes[i] = begin + i + (attempt << 32)
    random_words(lanes, number, num_groups, address.seed, address.epoch, address.batch, address.hop, words)
    return number


@cpu_kernel
def squared_columns(indptr, indices, weights):
    """Fill ``weights`` (V,) float64 with the sum of 1 / d**2 over the out-edges of each node, where d is the in-degree of the edge's destination.

    The sums are in the order of the edges, so they are bit-identical on every machine.
    """
    weights[:] = 0.0
    for v in range(len(indptr) - 1):
        degree = np.float64(indptr[v + 1] - indptr[v])
        for j in places(indptr[v], indptr[v + 1]):
            weights[unsigned(indices[j])] += 1.0 / (degree * degree)


@cpu_kernel
def edge_weights(edge_ids, of_edges, weights):
    """Fill ``weights`` (M,) float32 with the weights of the subgraph's edges, taken from the weights of all edges, ``of_edges`` (E,)."""
    num_edges = len(edge_ids)
    for j in range(num_edges):
        prefetch(of_edges, edge_ids[unsigned(min(j + _AHEAD, num_edges - 1))])
        weights[j] = of_edges[unsigned(edge_ids[j])]


@cpu_kernel
def loss_weights(nodes, of_nodes, weights):
    """Fill ``weights`` (B,) float32 with B times the weights of the first B nodes, taken from the weights of all nodes, ``of_nodes`` (V,)."""
    scale = np.float32(len(weights))
    for i in range(len(weights)):
        weights[i] = scale * of_nodes[nodes[i]]
