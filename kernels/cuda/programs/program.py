"""The kernels of sampling programs on CUDA. They are compiled for each program, with the program's functions inlined.

Blocks are drawn in one of two schedules. By sample, a thread processes each request in the original order. By transit, requests on the same node are
adjacent, so that a warp reads its adjacency list once. Every request owns a range of ``drawn``; edges are compacted afterwards. Walks are always
processed by sample, since a step reads only one edge.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.cuda.group import MEMBERS, pack_request, unpack_request
from hoptrain.kernels.cuda.programs.kept import program_function, program_kernel
from hoptrain.kernels.cuda.relabel import find_slot
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared.program import STOP, WRONG, RandomSource, Transit, edge_number, make_draw, make_step


@device_function
def note_wrong(wrong, b, step, place):
    """Lower ``wrong[b]`` (K,) int64 to the first invalid draw of a batch, by step and then by position, as the CPU would report it."""
    cuda.atomic.min(wrong, b, pack_request(step, place))


def walk_kernel(next_edge, transit_of):
    """Make the kernel that runs the walks of a program; launch it by ``Launch.rows``.

    The arguments of the kernel are: parameters; indptr, indices, weights; nodes (K, N), the roots; count (K,) int64, the number of roots of each batch;
    copies; address (4,) uint64; ``max_walks``, the maximum number of walks of a batch; walks (``K * max_walks``, steps + 1), filled with global ids, -1 after
    the end of a walk; states; wrong (``note_wrong``), which receives step 0 and the first walk with an invalid edge.
    """
    take_step = make_step(program_function, next_edge, transit_of)

    @program_kernel(next_edge, transit_of)
    def walk(parameters, indptr, indices, weights, nodes, count, copies, address, max_walks, walks, states, wrong):
        b = cuda.blockIdx.y
        thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        columns, where = (indptr, indices, weights), (address[0], address[1], address[2] + np.uint64(b))
        for w in range(thread, count[b] * copies, cuda.gridDim.x * cuda.blockDim.x):
            row = b * max_walks + w
            root = nodes[b, w // copies]
            walks[row, 0] = root
            for i in range(states.shape[1]):
                states[row, i] = 0
            for step in range(walks.shape[1] - 1):
                position = np.int64(STOP)
                if walks[row, step] >= 0:
                    position = take_step(parameters, columns, walks, states, row, step, where, root, w % copies, copies)
                if position == WRONG:
                    note_wrong(wrong, b, 0, w)
                walks[row, step + 1] = indices[position] if position >= 0 else STOP

    return walk


def block_kernels(next_edge):
    """Make the two kernels that draw blocks: by sample, launched by ``Launch.rows``, and by transit, launched by ``Launch.flat``.

    The arguments of the kernels are: parameters; indptr, indices, weights; nodes (K, N); low (K,) and high (K,) by sample, or members and counters of
    the groups by transit; num_draws; unique; step; address (4,) uint64; drawn (K, N * num_draws), which receives edge ids; counts (K, N + 1), which receives
    the numbers of these edges; wrong (``note_wrong``), which receives a step and the first request with an invalid edge.
    """
    draw_edge = make_draw(program_function, next_edge)

    @program_function
    def draw_request(parameters, columns, nodes, b, i, num_draws, unique, step, where, drawn, counts, wrong):
        vertex = np.int64(nodes[b, i])
        found = 0
        for j in range(num_draws):
            # Blocks have no state; an empty int64 array is passed as ``transit.state``.
            position = draw_edge(parameters, columns, vertex, nodes[b, i : i + 1], step, where, j, num_draws, wrong[:0])
            if position == WRONG:
                note_wrong(wrong, b, step, i)
            is_new = position >= 0
            if unique:
                for k in range(found):
                    is_new = is_new and drawn[b, i * num_draws + k] != position
            if is_new:
                drawn[b, i * num_draws + found] = position
                found += 1
        counts[b, i] = found

    @program_kernel(next_edge)
    def by_sample(
        parameters, indptr, indices, weights, nodes, low, high, num_draws, unique, step, address, drawn, counts, wrong
    ):  # fmt: skip
        b = cuda.blockIdx.y
        thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        columns, where = (indptr, indices, weights), (address[0], address[1], address[2] + np.uint64(b))
        for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
            draw_request(parameters, columns, nodes, b, i, num_draws, unique, step, where, drawn, counts, wrong)

    @program_kernel(next_edge)
    def by_transit(
        parameters, indptr, indices, weights, nodes, members, counters, num_draws, unique, step, address, drawn, counts, wrong
    ):  # fmt: skip
        thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        columns = indptr, indices, weights
        for k in range(thread, counters[MEMBERS], cuda.gridDim.x * cuda.blockDim.x):
            b, i = unpack_request(members[k])
            where = address[0], address[1], address[2] + np.uint64(b)
            draw_request(parameters, columns, nodes, b, i, num_draws, unique, step, where, drawn, counts, wrong)

    return by_sample, by_transit


def collective_kernel(next_edge):
    """Make the kernel that draws from all neighbours of a layer together; launch it by ``Launch.rows``.

    The arguments of the kernel are: parameters; indptr, indices; candidates (K, C) and number (K,) int64, the distinct in-neighbours of the layer;
    counts (K, C) float32, the number of edges of each into the layer; nodes (K, N) and size (K,) int64, the layer; num_draws; step; address (4,)
    uint64; chosen (K, C) int32, set to 1 for drawn candidates; wrong (``note_wrong``), which receives a step and the first invalid draw.
    """
    choose = program_function(next_edge)

    @program_kernel(next_edge)
    def draw(parameters, indptr, indices, candidates, counts, number, nodes, size, num_draws, step, address, chosen, wrong):
        b = cuda.blockIdx.y
        thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        neighbors, weights, layer = candidates[b, : number[b]], counts[b, : number[b]], nodes[b, : size[b]]
        seed, epoch, batch = address[0], address[1], address[2] + np.uint64(b)
        for j in range(thread, num_draws if number[b] > 0 else 0, cuda.gridDim.x * cuda.blockDim.x):
            # Blocks have no state; an empty int64 array is passed as ``transit.state``.
            transit = Transit(np.int64(-1), neighbors, weights, np.int64(-1), layer, wrong[:0], indptr, indices)
            random = RandomSource(seed, epoch, batch, np.uint64(step), np.uint64(0), np.uint64(j), np.uint64(num_draws))
            place = edge_number(choose(parameters, transit, step, random))
            if place >= number[b] or place < STOP:
                note_wrong(wrong, b, step, j)
            elif place != STOP:
                cuda.atomic.max(chosen, (b, place), 1)

    return draw


@id_kernel("void(ID[:, ::1], int64[::1], int32[:, ::1])")
def count_entries(entries, num_entries, counts):
    """Count the occurrences of each number in ``entries``; ``counts`` are zero before."""
    b = cuda.blockIdx.y
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_entries[b], cuda.gridDim.x * cuda.blockDim.x):
        cuda.atomic.add(counts, (b, entries[b, e]), 1)


@cuda_kernel("void(int32[:, ::1], int64[::1], float32[:, ::1])")
def as_weights(counts, number, weights):
    """Convert the candidates' numbers of edges to float32 weights, which are passed to ``next``."""
    b = cuda.blockIdx.y
    for j in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, number[b], cuda.gridDim.x * cuda.blockDim.x):
        weights[b, j] = np.float32(counts[b, j])


@id_kernel("void(ID[:, ::1], int64[::1], int32[:, ::1], ID[:, ::1], ID[:, ::1])")
def enter_chosen(candidates, number, chosen, keys, values):
    """Enter the chosen candidates into an empty table, with their positions as values."""
    b = cuda.blockIdx.y
    for j in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, number[b], cuda.gridDim.x * cuda.blockDim.x):
        if chosen[b, j]:
            values[b, find_slot(keys, b, candidates[b, j])] = j


@id_kernel("void(int64[::1], int64[::1], ID[:, ::1])")
def clear_counts(low, high, counts):
    """Set the edge counts of all requests to 0, since no other kernel sets the counts of nodes without edges."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        counts[b, i] = 0


@id_kernel("void(ID[::1], ID[:, ::1], int64[::1], int64[::1], int64, ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def move_together(indices, drawn, low, high, num_draws, offsets, out_edges, out_neighbors):
    """Copy each request's edges, and their sources, to the output range given by ``offsets``."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(low[b] + thread, high[b], cuda.gridDim.x * cuda.blockDim.x):
        for j in range(offsets[b, i + 1] - offsets[b, i]):
            position = drawn[b, i * num_draws + j]
            out_edges[b, offsets[b, i] + j] = position
            out_neighbors[b, offsets[b, i] + j] = indices[position]


@id_kernel("void(ID[:, ::1], int64, int64[::1], int64, ID[:, ::1], int64[::1])")
def list_nodes(walks, max_walks, count, copies, out, num_entries):
    """List the nodes of a batch's walks one after another; entries after the end of a walk are replaced by its root."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    width = walks.shape[1]
    total = count[b] * copies * width
    if thread == 0:
        num_entries[b] = total
    for e in range(thread, total, cuda.gridDim.x * cuda.blockDim.x):
        vertex = walks[b * max_walks + e // width, e % width]
        out[b, e] = vertex if vertex >= 0 else walks[b * max_walks + e // width, 0]


@id_kernel("void(ID[:, ::1], int64, int64[::1], ID[:, ::1])")
def mark_ends(walks, max_walks, num_entries, out):
    """Set the entries after the end of each walk to -1."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    width = walks.shape[1]
    for e in range(thread, num_entries[b], cuda.gridDim.x * cuda.blockDim.x):
        if walks[b * max_walks + e // width, e % width] < 0:
            out[b, e] = -1
