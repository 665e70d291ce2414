"""LABOR with importances, see ``find_importances`` in ``hoptrain.kernels.cpu.nodewise.importance``: its doubles as integers, a thread a destination.

Sums go along a column in its order, as on the CPU. Shapes: K batches; D destinations, T in-edges of theirs, N nodes with all sources.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.cuda.draw import write_edge
from hoptrain.kernels.cuda.nodewise.labor import keeps
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared.double import single_quotient
from hoptrain.kernels.shared.importance import goal_of, inverse, next_scale, product, reaches_one, threshold_of, total
from hoptrain.kernels.shared.labor import CERTAIN

_U0 = np.uint64(0)


@cuda_kernel("void(int64[::1], uint64[:, ::1], uint64[:, ::1], uint64[:, ::1])")
def multiply(count, importance, factor, inverses):
    """Multiply the importances (K, N) by their factors, which become 0, and find their inverses."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for v in range(thread, count[b], cuda.gridDim.x * cuda.blockDim.x):
        value = np.uint64(product(importance[b, v], factor[b, v]))
        importance[b, v] = value
        factor[b, v] = _U0
        if value != _U0:  # a destination that is nobody's source has none
            inverses[b, v] = inverse(value)


@cuda_kernel("void(int64[::1], uint64[:, ::1], uint64)")
def fill_first(count, rows, value):
    """Set the first ``count[b]`` entries of each row."""
    b = cuda.blockIdx.y
    for v in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        rows[b, v] = value


@id_kernel("void(int64[::1], ID[:, ::1], ID[:, ::1], int64, uint64[:, ::1], uint64[:, ::1], uint64[:, ::1], uint64[:, ::1])")
def find_scales(high, ends, sources, fanout, importance, inverses, scales, factor):
    """The c of each destination, ``scales`` (K, D); a source's ``factor`` rises to the largest of its destinations'.

    ``sources`` (K, T) are local ids, the columns of ``ends`` (K, D+1).
    """
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        first, last = np.int64(ends[b, i]), np.int64(ends[b, i + 1])
        c = scale_of(sources, b, first, last, fanout, importance, inverses)
        scales[b, i] = c
        for e in range(first, last):
            cuda.atomic.max(factor, (b, sources[b, e]), c)


@device_function
def scale_of(sources, b, first, last, fanout, importance, inverses):
    """``scale_of`` of the CPU."""
    c = _U0
    if last - first <= fanout:
        for e in range(first, last):
            c = max(c, inverses[b, sources[b, e]])
        return c
    settled = np.int32(-1)
    while True:
        count, rest = np.int32(0), _U0
        e = first
        while e < last:
            if reaches_one(c, importance[b, sources[b, e]]):
                count += np.int32(1)
            else:
                rest = np.uint64(total(rest, inverses[b, sources[b, e]]))
            e += 1
        if count <= settled:
            return c
        # The goal is found anew each time: there are few steps, and no register is left to keep it in.
        c, settled = np.uint64(next_scale(rest, goal_of(last - first, fanout), count)), count


@device_function
def threshold_at(sources, b, e, degree, fanout, scale, importance):
    """The threshold of candidate ``e``."""
    if degree <= fanout:
        return CERTAIN
    return np.uint64(threshold_of(scale, importance[b, sources[b, e]]))


@id_kernel("void(ID[:, ::1], int64[::1], ID[:, ::1], ID[:, ::1], int64, uint64[::1], uint64[:, ::1], uint64[:, ::1], ID[:, ::1])")
def count_important(nodes, high, ends, sources, fanout, address, importance, scales, counts):
    """How many edges each destination keeps, at its place in ``counts``; ``nodes`` (K, N) hold the sources."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        kept, degree = np.int64(0), np.int64(ends[b, i + 1]) - np.int64(ends[b, i])
        for e in range(ends[b, i], ends[b, i + 1]):
            threshold = threshold_at(sources, b, e, degree, fanout, scales[b, i], importance)
            if keeps(address, b, nodes[b, sources[b, e]], threshold):
                kept += 1
        counts[b, i] = kept


@id_kernel(
    "void(ID[::1], ID[::1], ID[:, ::1], int64[::1], ID[:, ::1], ID[:, ::1], int64, uint64[::1], uint64[:, ::1], uint64[:, ::1], ID[:, ::1], "
    "ID[:, ::1], ID[:, ::1], uint32[:, ::1])"
)
def write_important(
    indptr, indices, nodes, high, ends, sources, fanout, address, importance, scales, out_indptr, out_edges, out_neighbors, weights
):
    """Write the edges that are kept; ``weights`` receives their thresholds, of 2**32 modulo 2**32, for ``weigh_important``."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        begin, place = np.int64(indptr[nodes[b, i]]), np.int64(out_indptr[b, i])
        degree = np.int64(ends[b, i + 1]) - np.int64(ends[b, i])
        for offset in range(degree):
            threshold = threshold_at(sources, b, ends[b, i] + offset, degree, fanout, scales[b, i], importance)
            if keeps(address, b, indices[begin + offset], threshold):
                write_edge(indices, begin, begin, offset, b, place, out_edges, out_neighbors)
                weights[b, place] = np.uint32(threshold & (CERTAIN - np.uint64(1)))
                place += 1


@cuda_kernel("void(int64[::1], uint32[:, ::1])")
def weigh_important(num_edges, weights):
    """From thresholds to the bits of float32 weights."""
    b = cuda.blockIdx.y
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_edges[b], cuda.gridDim.x * cuda.blockDim.x):
        threshold = np.uint64(weights[b, e])
        weights[b, e] = single_quotient(CERTAIN, CERTAIN if threshold == _U0 else threshold)
