"""Draws by weight without replacement, see ``hoptrain.kernels.cpu.nodewise.weighted``: a thread a request, since draw follows draw.

Weights are the bits of float64 numbers: larger ones are larger integers, and no kernel computes with doubles.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.draw import is_drawn, words_at, write_edge
from hoptrain.kernels.cuda.group import num_requests, request_at
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared.draws import alias_offset, bounded, bounded64
from hoptrain.kernels.shared.weighted import most_attempts, weight_share

_U0 = np.uint64(0)


@id_kernel("void(int32[::1], ID[:, ::1], int64[::1], int64[::1], int64, ID[:, ::1])")
def count_weighted(positive, nodes, low, high, fanout, counts):
    """How many edges each request gives, at its place in ``counts``; ``positive`` (V,): edges of a column that have weight."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        number = np.int64(positive[nodes[b, i]])
        counts[b, i] = number if fanout < 0 else min(number, fanout)


@id_kernel(
    "void(ID[::1], ID[::1], uint32[::1], int32[::1], uint64[::1], int32[::1], ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], "
    "int64[::1], int64, uint64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1], int32[:, ::1])"
)
def draw_weighted(
    indptr, indices, threshold, alias, weights, positive, nodes, low, high, grouped, members, counters,
    fanout, address, out_indptr, out_edges, out_neighbors, found,
):  # fmt: skip
    """Draw by the alias tables without the repeats, up to ``most_attempts``; ``found`` (K, N) receives how many edges a request has then."""
    k = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    while k < num_requests(cuda.blockIdx.y, low, high, grouped, counters):
        b, i = request_at(k, cuda.blockIdx.y, low, grouped, members)
        vertex = nodes[b, i]
        begin = np.int64(indptr[vertex])
        degree = np.int64(indptr[vertex + 1]) - begin
        first = np.int64(out_indptr[b, i])
        if fanout < 0 or positive[vertex] <= fanout:
            found[b, i] = take_weighted(indices, weights, begin, degree, b, first, out_edges, out_neighbors)
        else:
            found[b, i] = draw_distinct(
                indices, threshold, alias, begin, degree, fanout, address, vertex, b, first, out_edges, out_neighbors
            )
        k += cuda.gridDim.x * cuda.blockDim.x


@device_function
def take_weighted(indices, weights, begin, degree, b, first, out_edges, out_neighbors):
    """Take all edges that have weight; returns their number."""
    taken = np.int64(0)
    offset = np.int64(0)
    while offset < degree:
        if weights[np.uint64(begin + offset)] != _U0:
            write_edge(indices, begin, begin, offset, b, first + taken, out_edges, out_neighbors)
            taken += 1
        offset += 1
    return taken


@device_function
def draw_distinct(indices, threshold, alias, begin, degree, fanout, address, vertex, b, first, out_edges, out_neighbors):
    """Draw with replacement and leave out repeats; returns how many edges that gave."""
    taken = np.int64(0)
    attempt = np.int64(0)
    word0 = word1 = word2 = word3 = np.uint32(0)
    while taken < fanout and attempt < most_attempts(fanout):
        if attempt & 1 == 0:
            word0, word1, word2, word3 = words_at(address, b, vertex, attempt >> 1)
        else:
            word0, word1 = word2, word3
        offset = bounded(word0, degree)
        offset = alias_offset(offset, word1, threshold[np.uint64(begin + offset)], np.int64(alias[np.uint64(begin + offset)]))
        if not is_drawn(out_edges, b, first, taken, begin + offset):
            write_edge(indices, begin, begin, offset, b, first + taken, out_edges, out_neighbors)
            taken += 1
        attempt += 1
    return taken


@id_kernel(
    "void(ID[::1], ID[::1], uint64[::1], int32[::1], ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], int64[::1], int64, uint64[::1], "
    "ID[:, ::1], ID[:, ::1], ID[:, ::1], int32[:, ::1])"
)
def draw_rest(
    indptr, indices, weights, positive, nodes, low, high, grouped, members, counters,
    fanout, address, out_indptr, out_edges, out_neighbors, found,
):  # fmt: skip
    """Complete the requests that ``draw_weighted`` left with fewer than ``fanout`` edges, each draw among what is left of the column."""
    k = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    while k < num_requests(cuda.blockIdx.y, low, high, grouped, counters):
        b, i = request_at(k, cuda.blockIdx.y, low, grouped, members)
        vertex = nodes[b, i]
        if fanout >= 0 and positive[vertex] > fanout:
            begin = np.int64(indptr[vertex])
            degree = np.int64(indptr[vertex + 1]) - begin
            first = np.int64(out_indptr[b, i])
            taken = np.int64(found[b, i])
            while taken < fanout:
                high_word, low_word, _, _ = words_at(address, b, vertex, (most_attempts(fanout) >> 1) + taken)
                offset = offset_in_rest(weights, begin, degree, high_word, low_word, out_edges, b, first, taken)
                write_edge(indices, begin, begin, offset, b, first + taken, out_edges, out_neighbors)
                taken += 1
        k += cuda.gridDim.x * cuda.blockDim.x


@device_function
def offset_in_rest(weights, begin, degree, high, low, out_edges, b, first, taken):
    """The offset of an edge that is not among the ``taken`` ones, by weight; there is one with weight."""
    largest = _U0
    offset = np.int64(0)
    while offset < degree:
        if weights[begin + offset] > largest and not is_drawn(out_edges, b, first, taken, begin + offset):
            largest = weights[begin + offset]
        offset += 1
    total = _U0
    offset = np.int64(0)
    while offset < degree:
        if not is_drawn(out_edges, b, first, taken, begin + offset):
            total += np.uint64(weight_share(weights[begin + offset], largest))
        offset += 1
    rest = np.uint64(bounded64(high, low, total))
    offset = np.int64(0)
    while offset < degree - 1:
        if not is_drawn(out_edges, b, first, taken, begin + offset):
            share = np.uint64(weight_share(weights[begin + offset], largest))
            if rest < share:
                break
            rest -= share
        offset += 1
    return offset
