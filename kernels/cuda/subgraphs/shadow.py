"""ShaDow on CUDA: a node set for each seed, with all sets of a batch in one table of pairs (``hoptrain.kernels.cuda.induce``).

Shapes: K batches with a row of every matrix each; B seeds; S nodes of all sets, with repetitions. In the result the seeds come first, then the other
nodes of each set. The search finds them hop by hop; within a hop the nodes of a set are adjacent.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.induce import PAIR_BITS, row_at, vertex_of, with_vertex
from hoptrain.kernels.cuda.relabel import find_slot
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared import shared


@shared
def set_of(pair):
    """Return the index of the set in a pair (set, global id)."""
    return np.int64(pair) >> PAIR_BITS


@shared
def pair_of(number, vertex):
    """Return the pair (index of a set, global id) as one integer."""
    return (np.int64(number) << PAIR_BITS) | np.int64(vertex)


@id_kernel("void(ID[:, ::1], int64[::1], int64[:, ::1], ID[:, ::1])")
def begin_sets(seeds, num_seeds, pairs, found):
    """Write each seed as a pair, and set the number of other nodes of its set, ``found`` (K, B), to 0."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_seeds[b], cuda.gridDim.x * cuda.blockDim.x):
        pairs[b, i] = pair_of(i, seeds[b, i])
        found[b, i] = 0


@id_kernel("void(int64[:, ::1], int64[::1], int64[::1], ID[:, ::1])")
def list_vertices_of(pairs, low, high, vertices):
    """Write the global ids of the pairs in [low, high) to the same positions of the output."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        vertices[b, i] = vertex_of(pairs[b, i])


@id_kernel("void(int64[:, ::1], int64[::1], int64[::1], ID[:, ::1], int64[::1], ID[:, ::1], int64[:, ::1])")
def pair_neighbors(pairs, low, high, offsets, num_edges, neighbors, out):
    """Convert the neighbours that the pairs in [low, high) drew to pairs of the same sets."""
    b = cuda.blockIdx.y
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_edges[b], cuda.gridDim.x * cuda.blockDim.x):
        out[b, e] = with_vertex(pairs[b, row_at(offsets, b, low[b], high[b], e)], neighbors[b, e])


@id_kernel("void(int64[:, ::1], int64[::1], int64[::1], ID[:, ::1], ID[:, ::1])")
def begin_runs(pairs, low, high, found, shift):
    """For each set with new pairs, write the difference between a pair's position and its index among the set's nodes without the seed."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        own = set_of(pairs[b, i])
        if i == low[b] or set_of(pairs[b, i - 1]) != own:
            shift[b, own] = i - found[b, own]


@id_kernel("void(int64[:, ::1], int64[::1], int64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def number_runs(pairs, low, high, shift, found, numbers):
    """Write the index of each new pair among its set's nodes without the seed, and update the counts ``found`` of the sets."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        own = set_of(pairs[b, i])
        number = i - np.int64(shift[b, own])
        numbers[b, i] = number
        if i == high[b] - 1 or set_of(pairs[b, i + 1]) != own:
            found[b, own] = number + 1


@id_kernel("void(int64[:, ::1], int64[::1], int64[::1], ID[:, ::1], ID[:, ::1], int64[:, ::1], ID[:, ::1], int64[:, ::1], ID[:, ::1])")
def place_pairs(pairs, num_pairs, num_seeds, begins, numbers, keys, values, placed, nodes):
    """Move every pair to its final position, also in the table; ``begins`` (K, B) is the beginning of each set's nodes without the seed."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_pairs[b], cuda.gridDim.x * cuda.blockDim.x):
        pair = pairs[b, i]
        place = np.int64(i)
        if i >= num_seeds[b]:
            place = np.int64(begins[b, set_of(pair)]) + np.int64(numbers[b, i])
        placed[b, place] = pair
        nodes[b, place] = vertex_of(pair)
        values[b, find_slot(keys, b, pair)] = place


@id_kernel("void(ID[:, ::1], int64[::1], ID[:, ::1], ID[:, ::1], int64, int64[:, ::1], ID[:, ::1])")
def place_chosen(seeds, num_seeds, begins, chosen, top, placed, nodes):
    """Write the seeds, then the chosen nodes of each set, ``chosen[b, i * top:]``; ``begins`` has the offsets of the sets."""
    b = cuda.blockIdx.y
    for j in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_seeds[b] * (top + 1), cuda.gridDim.x * cuda.blockDim.x):
        i, k = j // (top + 1), j % (top + 1)
        begin, end = np.int64(begins[b, i]), np.int64(begins[b, i + 1])
        if k == top:
            placed[b, i] = pair_of(i, seeds[b, i])
            nodes[b, i] = seeds[b, i]
        elif begin + k < end:
            vertex = chosen[b, i * top + k]
            placed[b, begin + k] = pair_of(i, vertex)
            nodes[b, begin + k] = vertex
