"""PinSAGE's neighbourhoods on CUDA, see ``hoptrain.kernels.cpu.nodewise.pinsage``: a block for each destination, a thread for each of its walks.

The most visited nodes are found without sorting: each visit counts the visits to the same node, and the first visit to a node counts the nodes with
a higher rank. This takes the square of the number of visits, which are some hundreds.

Shapes: D destinations of a batch, W walks of at most L steps, at most T neighbours, X blocks of a batch.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.draw import words_at
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared.double import single_quotient
from hoptrain.kernels.shared.draws import word_at
from hoptrain.kernels.shared.walk import next_step

_NONE = -1
"""Value of the entries of ``visits`` after the end of a walk."""


@id_kernel(
    "void(ID[::1], ID[::1], ID[:, ::1], int64[::1], int64, int64, uint64, int64, uint64[::1], ID[:, ::1], int32[:, ::1], ID[:, ::1], "
    "int32[:, ::1], ID[:, ::1])"
)
def find_visited(indptr, indices, nodes, high, num_walks, length, stop, most, address, visits, times, out_vertices, out_times, counts):
    """Find the neighbours of ``nodes[b, :high[b]]``, ordered by visits.

    Writes the neighbours and their numbers of visits to ``out_vertices`` and ``out_times`` (K, D * T), and the number of neighbours to ``counts``
    (K, D). ``visits`` and ``times`` (K * X, W * L) are scratch memory.
    """
    b = cuda.blockIdx.y
    row = cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x
    i = np.int64(cuda.blockIdx.x)
    while i < high[b]:
        if cuda.threadIdx.x == 0:
            counts[b, i] = 0
        w = np.int64(cuda.threadIdx.x)
        while w < num_walks:
            walk_from(indptr, indices, nodes[b, i], w, length, stop, address, b, visits, row)
            w += cuda.blockDim.x
        cuda.syncthreads()
        j = np.int64(cuda.threadIdx.x)
        while j < num_walks * length:
            times[row, j] = times_visited(visits, row, num_walks * length, j, nodes[b, i])
            j += cuda.blockDim.x
        cuda.syncthreads()
        j = np.int64(cuda.threadIdx.x)
        while j < num_walks * length:
            if times[row, j] > 0:
                place = place_of(visits, times, row, num_walks * length, j)
                if place < most:
                    out_vertices[b, i * most + place] = visits[row, j]
                    out_times[b, i * most + place] = times[row, j]
                    cuda.atomic.add(counts, (b, i), 1)
            j += cuda.blockDim.x
        cuda.syncthreads()
        i += cuda.gridDim.x


@device_function
def walk_from(indptr, indices, root, walk, length, stop, address, b, visits, row):
    """Make one walk from a destination, and write the nodes that it visits."""
    vertex, step, goes_on = np.int64(root), np.int64(0), True
    word0 = word1 = word2 = word3 = np.uint32(0)
    while step < length:
        begin = np.int64(indptr[vertex])
        degree = np.int64(indptr[vertex + 1]) - begin
        goes_on = goes_on and degree > 0
        draw = walk * length + step
        visits[row, draw] = _NONE
        if goes_on:
            if step == 0 or draw & 3 == 0:
                word0, word1, word2, word3 = words_at(address, b, root, draw >> 2)
            offset, goes_on = next_step(word_at(draw & 3, word0, word1, word2, word3), degree, stop)
            vertex = np.int64(indices[begin + offset])
            visits[row, draw] = vertex
        step += 1


@device_function
def times_visited(visits, row, number, j, root):
    """Return the number of visits to the node of visit ``j``; 0 if ``j`` is not the first visit to it, or if it is the root."""
    vertex = visits[row, j]
    if vertex < 0 or vertex == root:
        return 0
    times = 0
    for k in range(number):
        if visits[row, k] == vertex:
            if k < j:
                return 0
            times += 1
    return times


@device_function
def place_of(visits, times, row, number, j):
    """Return the rank of the node of visit ``j``: the number of nodes with more visits, or with as many visits and a smaller id."""
    place = 0
    for k in range(number):
        if times[row, k] > times[row, j] or (times[row, k] == times[row, j] and visits[row, k] < visits[row, j]):
            place += 1
    return place


@id_kernel("void(ID[::1], ID[:, ::1], int64[::1], int64, ID[:, ::1], int32[:, ::1], ID[:, ::1], ID[:, ::1], ID[:, ::1], uint32[:, ::1])")
def move_visited(indptr, nodes, high, most, vertices, times, offsets, out_edges, out_neighbors, weights):
    """Copy each destination's neighbours to the range given by ``offsets``, with the bits of their float32 weights. Edge ids are -1."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        first, count = np.int64(offsets[b, i]), np.int64(offsets[b, i + 1]) - np.int64(offsets[b, i])
        total = np.int64(0)
        for j in range(i * most, i * most + count):
            total += times[b, j]
        degree = np.int64(indptr[nodes[b, i] + 1]) - np.int64(indptr[nodes[b, i]])
        for j in range(count):
            out_edges[b, first + j] = -1
            out_neighbors[b, first + j] = vertices[b, i * most + j]
            weights[b, first + j] = single_quotient(times[b, i * most + j] * degree, total)
