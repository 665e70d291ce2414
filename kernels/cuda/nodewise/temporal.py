"""Temporal neighbour sampling on CUDA, see ``hoptrain.kernels.cpu.nodewise.temporal``: nodes are keys, and edges are drawn by their ranks in time.

Shapes: K batches, at most B seeds of a batch, each with a tree and a bound.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.draw import floyd_offset, words_at
from hoptrain.kernels.cuda.group import num_requests, request_at
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared.draws import ALL, bounded, num_draws, selects, takes_all, word_at
from hoptrain.kernels.shared.temporal import key_in, tree_of, vertex_of

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U63 = np.uint64(63)


@id_kernel("void(ID[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64, int64, ID[:, ::1], ID[:, ::1])")
def count_admitted(indptr, times, bounds, keys, low, high, fanout, replace, admitted, counts):
    """Write each request's number of edges up to its tree's time bound to ``admitted`` (K, N), and the number of edges to draw to ``counts``."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = vertex_of(keys[b, i])
        begin, last = np.int64(indptr[vertex]), np.int64(indptr[vertex + 1])
        bound = bounds[b, tree_of(keys[b, i])]
        first = begin
        while first < last:
            middle = (first + last) >> 1
            if times[middle] <= bound:
                first = middle + 1
            else:
                last = middle
        admitted[b, i] = first - begin
        counts[b, i] = num_draws(first - begin, fanout, replace != 0)


@id_kernel(
    "void(ID[::1], ID[::1], ID[::1], int64[:, ::1], int64[::1], int64[::1], int64, int64[::1], int64[::1], int64, int64, int64, uint64[::1], "
    "ID[:, ::1], ID[:, ::1], ID[:, ::1], int64[:, ::1])"
)
def draw_admitted(
    indptr, indices, by_time, keys, low, high, grouped, members, counters,
    fanout, replace, recent, address, admitted, out_indptr, out_edges, out_keys,
):  # fmt: skip
    """Draw each request's edges, and write the keys of their sources, with one thread for each request."""
    k = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    while k < num_requests(cuda.blockIdx.y, low, high, grouped, counters):
        b, i = request_at(k, cuda.blockIdx.y, low, grouped, members)
        begin = np.int64(indptr[vertex_of(keys[b, i])])
        number = np.int64(admitted[b, i])
        first, count = np.int64(out_indptr[b, i]), num_draws(number, fanout, replace != 0)
        if recent or takes_all(number, fanout, replace != 0):
            j = np.int64(0)
            while j < count:
                out_edges[b, first + j] = begin + number - count + j
                j += 1
        elif fanout < ALL and not replace:
            select_ranks(begin, number, count, address, b, i, first, out_edges)
        else:
            draw_ranks(begin, number, count, replace, address, b, i, first, out_edges)
        tree = tree_of(keys[b, i])
        j = first
        while j < first + count:
            edge = by_time[out_edges[b, j]]
            out_edges[b, j] = edge
            out_keys[b, j] = key_in(tree, indices[edge])
            j += 1
        k += cuda.gridDim.x * cuda.blockDim.x


@device_function
def draw_ranks(begin, number, count, replace, address, b, i, first, out_edges):
    """Draw ``count`` of the ``number`` ranks from ``begin`` on. Random words are addressed by the node's local id ``i``."""
    seen = _U0
    word0 = word1 = word2 = word3 = np.uint32(0)
    j = np.int64(0)
    while j < count:
        if j & 3 == 0:
            word0, word1, word2, word3 = words_at(address, b, i, j >> 2)
        word = word_at(j & 3, word0, word1, word2, word3)
        if replace:
            offset = bounded(word, number)
        else:
            offset = floyd_offset(word, number - count + j, number, seen, out_edges, b, first, j, begin)
            seen |= _U1 << (np.uint64(offset) & _U63)
        out_edges[np.uint64(b), np.uint64(first + j)] = begin + offset
        j += 1


@device_function
def select_ranks(begin, number, rest, address, b, i, place, out_edges):
    """Draw ``rest`` ranks without replacement by selection sampling, see ``hoptrain.kernels.shared.draws``."""
    word0 = word1 = word2 = word3 = np.uint32(0)
    offset = np.int64(0)
    while rest > 0:
        if offset & 3 == 0:
            word0, word1, word2, word3 = words_at(address, b, i, offset >> 2)
        if selects(word_at(offset & 3, word0, word1, word2, word3), number - offset, rest):
            out_edges[np.uint64(b), np.uint64(place)] = begin + offset
            place += 1
            rest -= 1
        offset += 1


@id_kernel("void(int64[:, ::1], int64[::1], ID[:, ::1], int32[:, ::1])")
def split_keys(keys, count, nodes, trees):
    """Split the first ``count[b]`` keys of each row into global ids and trees."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(thread, count[b], cuda.gridDim.x * cuda.blockDim.x):
        nodes[b, i] = vertex_of(keys[b, i])
        trees[b, i] = tree_of(keys[b, i])


@id_kernel("void(int64[:, ::1], int64[::1], ID[:, ::1])")
def copy_first(source, count, out):
    """Copy the first ``count[b]`` entries of each row."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        out[b, i] = source[b, i]
