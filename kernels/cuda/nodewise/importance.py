"""LABOR with importances on CUDA, with the doubles of ``hoptrain.kernels.cpu.nodewise.importance`` represented as integers.

Sums have the same order as on the CPU: a thread sums a column in order; a block sums a long column piece by piece. Shapes: K batches; D destinations, T
in-edges of these, N nodes including all sources.
"""

import numpy as np
from numba import cuda, uint64

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.cuda.induce import row_at
from hoptrain.kernels.cuda.nodewise.labor import keeps
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared import shared
from hoptrain.kernels.shared.double import single_quotient
from hoptrain.kernels.shared.importance import LONG, PIECES, goal_of, inverse, next_scale, product, reaches_one, threshold_of, total
from hoptrain.kernels.shared.labor import CERTAIN

_U0, _U1, _UPIECES = np.uint64(0), np.uint64(1), np.uint64(PIECES)
PIECES_BYTES = 2 * 8 * PIECES
"""Size in bytes of the shared memory of a block of ``find_long_scales``."""


@cuda_kernel("void(int64[::1], uint64[:, ::1], uint64[:, ::1], uint64[:, ::1])")
def multiply(count, importance, factor, inverses):
    """Multiply the importances (K, N) by their factors, reset the factors to 0, and compute the inverses of the importances."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for v in range(thread, count[b], cuda.gridDim.x * cuda.blockDim.x):
        value = np.uint64(product(importance[b, v], factor[b, v]))
        importance[b, v] = value
        factor[b, v] = _U0
        if value != _U0:  # destinations that are not sources have importance 0, which has no inverse
            inverses[b, v] = inverse(value)


@cuda_kernel("void(int64[::1], uint64[:, ::1], uint64)")
def fill_first(count, rows, value):
    """Set the first ``count[b]`` entries of each row."""
    b = cuda.blockIdx.y
    for v in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        rows[b, v] = value


@id_kernel("void(int64[::1], ID[:, ::1], int64, int64[::1], ID[:, ::1])")
def list_long(high, ends, fanout, num_long, long):
    """List the destinations with long columns in ``long`` (K, D), in any order, and count them in ``num_long`` (K,), which is zero before."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, high[b], cuda.gridDim.x * cuda.blockDim.x):
        if is_long(np.int64(ends[b, i + 1]) - np.int64(ends[b, i]), fanout):
            long[b, cuda.atomic.add(num_long, b, 1)] = i


@shared
def is_long(degree, fanout):
    """Return whether a block, not a thread, sums a column. Columns up to the fanout are taken whole and need no sum."""
    return degree > LONG and degree > fanout


@id_kernel("void(int64[::1], ID[:, ::1], ID[:, ::1], int64, uint64[:, ::1], uint64[:, ::1], uint64[:, ::1], uint64[:, ::1])")
def find_scales(high, ends, sources, fanout, importance, inverses, scales, factor):
    """Write the factor c of each destination to ``scales`` (K, D), and raise each source's ``factor`` to the largest c of its destinations.

    ``sources`` (K, T) are local ids, column by column, with offsets ``ends`` (K, D+1). Long columns are skipped.
    """
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        first, last = np.int64(ends[b, i]), np.int64(ends[b, i + 1])
        if not is_long(last - first, fanout):
            c = scale_of(sources, b, first, last, fanout, importance, inverses)
            scales[b, i] = c
            for e in range(first, last):
                cuda.atomic.max(factor, (b, sources[b, e]), c)


@id_kernel("void(int64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1], int64, uint64[:, ::1], uint64[:, ::1], uint64[:, ::1], uint64[:, ::1])")
def find_long_scales(num_long, long, ends, sources, fanout, importance, inverses, scales, factor):
    """Find the factors of long columns as ``find_scales`` does, with a block for each. Shared memory holds ``PIECES`` sums and ``PIECES`` counts."""
    sums = cuda.shared.array(0, uint64)
    b = cuda.blockIdx.y
    k = np.int64(cuda.blockIdx.x)
    while k < num_long[b]:
        first, last = np.int64(ends[b, long[b, k]]), np.int64(ends[b, long[b, k] + 1])
        c = long_scale_of(sources, b, first, last, fanout, importance, inverses, sums)
        if cuda.threadIdx.x == 0:
            scales[b, long[b, k]] = c
        e = first + cuda.threadIdx.x
        while e < last:
            cuda.atomic.max(factor, (b, sources[b, e]), c)
            e += cuda.blockDim.x
        k += cuda.gridDim.x


@device_function
def scale_of(sources, b, first, last, fanout, importance, inverses):
    """Return the factor c of a destination, as ``scale_of`` on the CPU does."""
    c = _U0
    if last - first <= fanout:
        for e in range(first, last):
            c = max(c, inverses[b, sources[b, e]])
        return c
    settled = np.int32(-1)
    while True:
        count, rest = add_unsettled(sources, b, first, last, c, importance, inverses)
        if count <= settled:
            return c
        # The goal is recomputed in each step: there are few steps, and no register is left to keep it.
        c, settled = np.uint64(next_scale(rest, goal_of(last - first, fanout), count)), count


@device_function
def long_scale_of(sources, b, first, last, fanout, importance, inverses, sums):
    """Return the factor c of a destination, as ``scale_of`` on the CPU does, computed by a block; all threads return it."""
    c, settled = _U0, np.int32(-1)
    while True:
        piece = np.uint64(cuda.threadIdx.x)
        while piece < _UPIECES:
            begin, end = np.uint64(last - first) * piece // _UPIECES, np.uint64(last - first) * (piece + _U1) // _UPIECES
            count, rest = add_unsettled(sources, b, first + np.int64(begin), first + np.int64(end), c, importance, inverses)
            sums[piece], sums[_UPIECES + piece] = rest, np.uint64(count)
            piece += np.uint64(cuda.blockDim.x)
        cuda.syncthreads()
        count, rest, piece = np.int32(0), _U0, _U0
        while piece < _UPIECES:
            count += np.int32(sums[_UPIECES + piece])
            if sums[piece] != _U0:
                rest = np.uint64(total(rest, sums[piece]))
            piece += _U1
        cuda.syncthreads()
        if count <= settled:
            return c
        c, settled = np.uint64(next_scale(rest, goal_of(last - first, fanout), count)), count


@device_function
def add_unsettled(sources, b, first, last, c, importance, inverses):
    """Return the number of sources of the edges [first, last) with probability 1 at ``c``, and the sum of the other sources' inverse importances."""
    count, rest = np.int32(0), _U0
    e = first
    while e < last:
        if reaches_one(c, importance[b, sources[b, e]]):
            count += np.int32(1)
        else:
            rest = np.uint64(total(rest, inverses[b, sources[b, e]]))
        e += 1
    return count, rest


@device_function
def threshold_at(ends, b, i, source, fanout, scales, importance):
    """Return the threshold of an edge from ``source`` to destination ``i``."""
    if np.int64(ends[b, i + 1]) - np.int64(ends[b, i]) <= fanout:
        return CERTAIN
    return np.uint64(threshold_of(scales[b, i], importance[b, source]))


@id_kernel(
    "void(ID[:, ::1], int64[::1], int64[::1], ID[:, ::1], ID[:, ::1], int64, uint64[::1], uint64[:, ::1], uint64[:, ::1], ID[:, ::1])"
)
def decide_edges(nodes, high, num_edges, ends, sources, fanout, address, importance, scales, kept):
    """Set ``kept`` (K, T+1) to 1 for the in-edges that are kept, else to 0; ``nodes`` (K, N) holds the sources. Each edge has its own thread."""
    b = cuda.blockIdx.y
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_edges[b], cuda.gridDim.x * cuda.blockDim.x):
        i = row_at(ends, b, 0, high[b], e)
        threshold = threshold_at(ends, b, i, sources[b, e], fanout, scales, importance)
        kept[b, e] = 1 if keeps(address, b, nodes[b, sources[b, e]], threshold) else 0


@id_kernel("void(int64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def count_important(high, ends, kept, counts):
    """Write the number of kept edges of each destination to ``counts``; ``kept`` has been scanned."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, high[b], cuda.gridDim.x * cuda.blockDim.x):
        counts[b, i] = kept[b, ends[b, i + 1]] - kept[b, ends[b, i]]


@id_kernel(
    "void(ID[::1], ID[:, ::1], int64[::1], int64[::1], ID[:, ::1], ID[:, ::1], int64, uint64[:, ::1], uint64[:, ::1], ID[:, ::1], "
    "ID[:, ::1], ID[:, ::1], uint32[:, ::1])"
)
def write_important(
    indices, edge_ids, high, num_edges, ends, sources, fanout, importance, scales, kept, out_edges, out_neighbors, weights
):  # fmt: skip
    """Write the kept edges; ``weights`` receives their thresholds modulo 2**32, which ``weigh_important`` converts."""
    b = cuda.blockIdx.y
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_edges[b], cuda.gridDim.x * cuda.blockDim.x):
        place = np.int64(kept[b, e])
        if kept[b, e + 1] > place:
            i = row_at(ends, b, 0, high[b], e)
            out_edges[b, place] = edge_ids[b, e]
            out_neighbors[b, place] = indices[edge_ids[b, e]]
            threshold = threshold_at(ends, b, i, sources[b, e], fanout, scales, importance)
            weights[b, place] = np.uint32(threshold & (CERTAIN - np.uint64(1)))


@cuda_kernel("void(int64[::1], uint32[:, ::1])")
def weigh_important(num_edges, weights):
    """Replace thresholds by the bits of float32 weights."""
    b = cuda.blockIdx.y
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_edges[b], cuda.gridDim.x * cuda.blockDim.x):
        threshold = np.uint64(weights[b, e])
        weights[b, e] = single_quotient(CERTAIN, CERTAIN if threshold == _U0 else threshold)
