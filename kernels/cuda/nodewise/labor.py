"""LABOR with equal importances on CUDA, see ``hoptrain.kernels.cpu.nodewise.labor``: one pass over the columns counts, a second one writes.

A request's column is split into 2**lane_bits equal pieces, one for each thread. The kept edges of a piece are written after those of the
preceding pieces, so that they are in the column's order.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.draw import write_edge
from hoptrain.kernels.cuda.group import num_requests, request_at
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared.double import single_quotient
from hoptrain.kernels.shared.labor import CERTAIN, even_threshold, is_kept
from hoptrain.kernels.shared.philox import four_words

_U0 = np.uint64(0)


@device_function
def keeps(address, b, source, threshold):
    """Return whether batch ``b`` keeps an edge from ``source``, by the source's random word."""
    word, _, _, _ = four_words(address[0], address[1], address[2] + np.uint64(b), address[3], np.uint64(source), _U0)
    return is_kept(word, threshold)


@id_kernel(
    "void(ID[::1], ID[::1], ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], int64[::1], int64, uint64[::1], int64, ID[:, ::1])"
)
def count_kept(indptr, indices, nodes, low, high, grouped, members, counters, fanout, address, lane_bits, pieces):
    """Write the number of kept edges of each piece of a column to ``pieces`` (K, N << lane_bits)."""
    unit = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    while unit < num_requests(cuda.blockIdx.y, low, high, grouped, counters) << lane_bits:
        b, i = request_at(unit >> lane_bits, cuda.blockIdx.y, low, grouped, members)
        piece = unit & ((1 << lane_bits) - 1)
        begin = np.int64(indptr[nodes[b, i]])
        degree = np.int64(indptr[nodes[b, i] + 1]) - begin
        threshold = np.uint64(even_threshold(degree, fanout))
        offset, last = (degree * piece) >> lane_bits, (degree * (piece + 1)) >> lane_bits
        kept = last - offset
        if threshold != CERTAIN:
            kept = np.int64(0)
            while offset < last:
                if keeps(address, b, indices[np.uint64(begin + offset)], threshold):
                    kept += 1
                offset += 1
        pieces[b, (i << lane_bits) + piece] = kept
        unit += cuda.gridDim.x * cuda.blockDim.x


@id_kernel("void(int64[::1], int64[::1], int64, ID[:, ::1], ID[:, ::1])")
def add_pieces(low, high, lane_bits, pieces, counts):
    """Write the number of kept edges of each request to ``counts``."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        total = np.int64(0)
        for piece in range(i << lane_bits, (i + 1) << lane_bits):
            total += pieces[b, piece]
        counts[b, i] = total


@id_kernel(
    "void(ID[::1], ID[::1], ID[:, ::1], int64[::1], int64[::1], int64, int64[::1], int64[::1], int64, uint64[::1], int64, ID[:, ::1], "
    "ID[:, ::1], ID[:, ::1], ID[:, ::1])"
)
def write_kept(
    indptr, indices, nodes, low, high, grouped, members, counters, fanout, address, lane_bits, pieces, out_indptr, out_edges, out_neighbors
):
    """Write the kept edges of each piece of a column after those of the preceding pieces."""
    unit = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    while unit < num_requests(cuda.blockIdx.y, low, high, grouped, counters) << lane_bits:
        b, i = request_at(unit >> lane_bits, cuda.blockIdx.y, low, grouped, members)
        piece = unit & ((1 << lane_bits) - 1)
        begin = np.int64(indptr[nodes[b, i]])
        degree = np.int64(indptr[nodes[b, i] + 1]) - begin
        threshold = np.uint64(even_threshold(degree, fanout))
        place = np.int64(out_indptr[b, i])
        for before in range(i << lane_bits, (i << lane_bits) + piece):
            place += pieces[b, before]
        offset, last = (degree * piece) >> lane_bits, (degree * (piece + 1)) >> lane_bits
        while offset < last:
            if threshold == CERTAIN or keeps(address, b, indices[np.uint64(begin + offset)], threshold):
                write_edge(indices, begin, begin, offset, b, place, out_edges, out_neighbors)
                place += 1
            offset += 1
        unit += cuda.gridDim.x * cuda.blockDim.x


@id_kernel("void(ID[::1], ID[:, ::1], int64[::1], int64[::1], int64, int64, ID[:, ::1], uint32[:, ::1])")
def weigh_kept(indptr, nodes, low, high, fanout, lane_bits, out_indptr, weights):
    """Write the weights of each request's edges as bits of float32 numbers, by 2**lane_bits adjacent threads for each request."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    i = low[b] + (thread >> lane_bits)
    while i < high[b]:
        e = out_indptr[b, i] + (thread & ((1 << lane_bits) - 1))
        if e < out_indptr[b, i + 1]:
            degree = np.int64(indptr[nodes[b, i] + 1]) - np.int64(indptr[nodes[b, i]])
            bits = single_quotient(CERTAIN, even_threshold(degree, fanout))
            while e < out_indptr[b, i + 1]:
                weights[b, e] = bits
                e += 1 << lane_bits
        i += (cuda.gridDim.x * cuda.blockDim.x) >> lane_bits
