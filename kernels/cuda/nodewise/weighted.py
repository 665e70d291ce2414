"""Weighted draws without replacement on CUDA, see ``hoptrain.kernels.cpu.nodewise.weighted``. Draws are sequential, so each request is processed by one thread.

Scans of a long column, or repeated scans, are done by a block: each thread has a piece of the column. Only integers are summed, so the order of the additions
does not matter. Weights are given as the bits of float64 numbers: larger numbers are larger integers, and no kernel computes with doubles.
"""

import numpy as np
from numba import cuda, int64

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.draw import is_drawn, words_at, write_edge
from hoptrain.kernels.cuda.group import num_requests, request_at
from hoptrain.kernels.cuda.scan import block_scan
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared.draws import alias_offset, bounded, bounded64, num_draws, takes_all
from hoptrain.kernels.shared.weighted import most_attempts, weight_share

_U0 = np.uint64(0)
LONG = 256
"""Column length above which a block of threads, instead of a single thread, copies all edges of a column."""


@id_kernel("void(int32[::1], ID[:, ::1], int64[::1], int64[::1], int64, ID[:, ::1])")
def count_weighted(positive, nodes, low, high, fanout, counts):
    """Write the number of edges to draw for each request to ``counts``. ``positive`` (V,) is each node's number of in-edges with positive weight."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        number = np.int64(positive[nodes[b, i]])
        counts[b, i] = num_draws(number, fanout, False)


@id_kernel(
    "void(ID[::1], ID[::1], uint32[::1], int32[::1], uint64[::1], int32[::1], ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], "
    "int64[::1], int64, uint64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1], int32[:, ::1], int64[::1], ID[:, ::1])"
)
def draw_weighted(
    indptr, indices, threshold, alias, weights, positive, nodes, low, high, grouped, members, counters,
    fanout, address, out_indptr, out_edges, out_neighbors, found, num_waiting, waiting,
):  # fmt: skip
    """Draw by the alias tables, dropping repeats, with up to ``most_attempts`` attempts.

    Requests with too few edges are listed in ``waiting`` (K, N), in any order, with their number of edges in ``found`` (K, N). ``num_waiting`` (K,), zero
    before, receives the number of these requests.
    """
    k = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    while k < num_requests(cuda.blockIdx.y, low, high, grouped, counters):
        b, i = request_at(k, cuda.blockIdx.y, low, grouped, members)
        vertex = nodes[b, i]
        begin = np.int64(indptr[vertex])
        degree = np.int64(indptr[vertex + 1]) - begin
        first = np.int64(out_indptr[b, i])
        wanted = np.int64(out_indptr[b, i + 1]) - first
        taken = np.int64(0)
        if draws_from(positive[vertex], fanout):
            taken = draw_distinct(indices, threshold, alias, begin, degree, wanted, address, vertex, b, first, out_edges, out_neighbors)
        elif degree <= LONG:
            taken = take_weighted(indices, weights, begin, np.int64(0), degree, b, first, out_edges, out_neighbors)
        if taken < wanted:
            found[b, i] = taken
            waiting[b, cuda.atomic.add(num_waiting, b, 1)] = i
        k += cuda.gridDim.x * cuda.blockDim.x


@device_function
def draws_from(positive, fanout):
    """Return whether a request draws from a column with ``positive`` edges of positive weight; otherwise it takes all of them."""
    return not takes_all(np.int64(positive), fanout, False)


@device_function
def take_weighted(indices, weights, begin, offset, last, b, place, out_edges, out_neighbors):
    """Write the edges in [offset, last) with positive weight to the output from ``place`` on, and return their number."""
    taken = np.int64(0)
    while offset < last:
        if weights[np.uint64(begin + offset)] != _U0:
            write_edge(indices, begin, begin, offset, b, place + taken, out_edges, out_neighbors)
            taken += 1
        offset += 1
    return taken


@device_function
def draw_distinct(indices, threshold, alias, begin, degree, wanted, address, vertex, b, first, out_edges, out_neighbors):
    """Draw up to ``wanted`` distinct edges by drawing with replacement and dropping repeats. Return their number."""
    taken = np.int64(0)
    attempt = np.int64(0)
    word0 = word1 = word2 = word3 = np.uint32(0)
    while taken < wanted and attempt < most_attempts(wanted):
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
    "void(ID[::1], ID[::1], uint64[::1], int32[::1], ID[:, ::1], int64, uint64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1], int32[:, ::1], "
    "int64[::1], ID[:, ::1])"
)
def draw_rest(
    indptr, indices, weights, positive, nodes, fanout, address, out_indptr, out_edges, out_neighbors, found, num_waiting, waiting,
):  # fmt: skip
    """Complete the waiting requests, with a block for each: take all edges, or draw each missing edge from the rest of the column."""
    buffer = cuda.shared.array(0, int64)
    b = cuda.blockIdx.y
    k = np.int64(cuda.blockIdx.x)
    while k < num_waiting[b]:
        i = np.int64(waiting[b, k])
        vertex = nodes[b, i]
        begin = np.int64(indptr[vertex])
        degree = np.int64(indptr[vertex + 1]) - begin
        first = np.int64(out_indptr[b, i])
        if draws_from(positive[vertex], fanout):
            taken, wanted = np.int64(found[b, i]), np.int64(out_indptr[b, i + 1]) - first
            while taken < wanted:
                high_word, low_word, _, _ = words_at(address, b, vertex, (most_attempts(wanted) >> 1) + taken)
                draw_left(indices, weights, begin, degree, high_word, low_word, b, first, taken, out_edges, out_neighbors, buffer)
                cuda.syncthreads()
                taken += 1
        else:
            take_together(indices, weights, begin, degree, b, first, out_edges, out_neighbors, buffer)
        k += cuda.gridDim.x


@device_function
def piece_of(degree):
    """Return the beginning and end of the part of a column that this thread processes."""
    return degree * cuda.threadIdx.x // cuda.blockDim.x, degree * (cuda.threadIdx.x + 1) // cuda.blockDim.x


@device_function
def take_together(indices, weights, begin, degree, b, first, out_edges, out_neighbors, buffer):
    """Write all edges of a column with positive weight, by all threads of a block."""
    offset, last = piece_of(degree)
    number = np.int64(0)
    for e in range(begin + offset, begin + last):
        if weights[np.uint64(e)] != _U0:
            number += 1
    before = block_scan(buffer, number) - number
    take_weighted(indices, weights, begin, offset, last, b, first + before, out_edges, out_neighbors)
    cuda.syncthreads()


@device_function
def draw_left(indices, weights, begin, degree, high, low, b, first, taken, out_edges, out_neighbors, buffer):
    """Draw by weight an edge that is not among the ``taken`` ones and append it to them, by all threads of a block."""
    offset, last = piece_of(degree)
    largest = largest_left(weights, begin, offset, last, out_edges, b, first, taken, buffer)
    share = np.int64(0)
    while offset < last:
        if not is_drawn(out_edges, b, first, taken, begin + offset):
            share += np.int64(weight_share(weights[np.uint64(begin + offset)], largest))
        offset += 1
    after = block_scan(buffer, share)
    rest = np.int64(bounded64(high, low, np.uint64(buffer[cuda.blockDim.x - 1])))
    cuda.syncthreads()
    if after - share <= rest < after:  # this condition holds for exactly one thread
        offset, _ = piece_of(degree)
        rest -= after - share
        while True:
            if not is_drawn(out_edges, b, first, taken, begin + offset):
                rest -= np.int64(weight_share(weights[np.uint64(begin + offset)], largest))
                if rest < 0:
                    break
            offset += 1
        write_edge(indices, begin, begin, offset, b, first + taken, out_edges, out_neighbors)


@device_function
def largest_left(weights, begin, offset, last, out_edges, b, first, taken, buffer):
    """Return the largest weight in a column without the ``taken`` edges, computed by all threads of a block."""
    largest = np.int64(0)  # int64 suffices, since the bits of weights are below 2**63
    while offset < last:
        weight = np.int64(weights[np.uint64(begin + offset)])
        if weight > largest and not is_drawn(out_edges, b, first, taken, begin + offset):
            largest = weight
        offset += 1
    buffer[cuda.threadIdx.x] = largest
    cuda.syncthreads()
    for thread in range(cuda.blockDim.x):
        largest = max(largest, buffer[thread])
    cuda.syncthreads()
    return np.uint64(largest)
