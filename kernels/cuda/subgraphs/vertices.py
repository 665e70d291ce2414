"""Nodes of subgraphs on CUDA: removal of repetitions, with the seeds first; and GraphSAINT's draws and weights.

Shapes: K batches with a row of every matrix each; D drawn nodes, S distinct ones, B of them seeds, M edges between them.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.draw import words_at
from hoptrain.kernels.cuda.relabel import clear_table, find_slot, relabel
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared.draws import alias_offset, bounded, bounded_wide, word_at

_START_WORDS = 2
"""Number of random words that choose the start of a draw; each of the following words chooses an edge."""


def enter_members(launch, drawn, capacity, is_seed, found, nodes, table, scratch, num_drawn, num_nodes, num_seeds):
    """Find the distinct nodes among ``drawn``: the seeds first, then the others, each in order of first appearance.

    Args:
        launch: Launcher of the bulk.
        drawn: (K, D) global ids; overwritten.
        capacity: Maximum number of nodes drawn for a batch.
        is_seed: (V,) uint8 flags of the seeds.
        found: (K, S) scratch memory.
        nodes: (K, S), receives the global ids.
        table: Keys and values, which receive the nodes with their positions.
        scratch: Scratch memory: slots (K, D), ranks (K, D+1), the scans' sums, and zeros (K,) int64.
        num_drawn: (K,) int64 number of drawn nodes.
        num_nodes: (K,) int64, receives the number of distinct nodes.
        num_seeds: (K,) int64, receives the number of seeds among the distinct nodes.
    """
    slots, ranks, sums, zeros = scratch
    clear_table(launch, *table)
    relabel(launch, drawn, found, capacity, zeros, num_drawn, capacity, table, (slots, ranks, sums), zeros, num_nodes)
    launch.rows(mark_seeds, capacity, found, num_nodes, is_seed, ranks)
    exclusive_scan(launch, ranks, capacity, zeros, num_nodes, zeros, sums, num_seeds)
    launch.rows(place_members, capacity, found, num_nodes, ranks, num_seeds, *table, nodes)


@id_kernel("void(ID[:, ::1], int64[::1], uint8[::1], ID[:, ::1])")
def mark_seeds(found, count, is_seed, flags):
    """Set ``flags`` to 1 for seeds, and to 0 for other nodes."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        flags[b, i] = is_seed[found[b, i]]


@id_kernel("void(ID[:, ::1], int64[::1], ID[:, ::1], int64[::1], ID[:, ::1], ID[:, ::1], ID[:, ::1])")
def place_members(found, count, ranks, num_seeds, keys, values, nodes):
    """Move every node to its final position, also in the table; ``ranks`` is the scan of the flags."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        rank = np.int64(ranks[b, i])
        place = rank if ranks[b, i + 1] > rank else num_seeds[b] + i - rank
        nodes[b, place] = found[b, i]
        values[b, find_slot(keys, b, found[b, i])] = place


@id_kernel("void(ID[:, ::1], int64[::1], int64[::1])")
def note_offset(indptr, place, offset):
    """Write ``indptr[b, place[b]]``, the number of edges before a position, to ``offset[b]``."""
    b = cuda.blockIdx.y
    if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
        offset[b] = indptr[b, place[b]]


@id_kernel("void(uint32[::1], int32[::1], int64, int64[::1], uint64[::1], ID[:, ::1])")
def draw_vertices(threshold, alias, number, attempts, address, drawn):
    """Draw ``number`` nodes with replacement by the alias table of all V nodes; see ``hoptrain.kernels.cpu.subgraphs.saint``."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, number, cuda.gridDim.x * cuda.blockDim.x):
        word0, word1, word2, _ = words_at(address, b, i + (attempts[b] << 32), 0)
        place = bounded_wide(word0, word1, len(threshold))
        drawn[b, i] = alias_offset(place, word2, threshold[place], np.int64(alias[place]))


@id_kernel("void(ID[::1], ID[::1], ID[::1], int64, int64, int64[::1], uint64[::1], ID[:, ::1])")
def draw_walks(indptr, indices, roots, number, length, attempts, address, drawn):
    """Make ``number`` random walks of ``length`` steps against the edges; see ``hoptrain.kernels.cpu.subgraphs.saint``."""
    b = cuda.blockIdx.y
    walk = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    while walk < number:
        stream, place = walk + (attempts[b] << 32), walk * (length + 1)
        word0, word1, word2, word3 = words_at(address, b, stream, 0)
        vertex = np.int64(roots[bounded_wide(word0, word1, len(roots))])
        drawn[b, place] = vertex
        for word in range(_START_WORDS, _START_WORDS + length):
            if word & 3 == 0:
                word0, word1, word2, word3 = words_at(address, b, stream, word >> 2)
            begin = np.int64(indptr[vertex])
            degree = np.int64(indptr[vertex + 1]) - begin
            if degree > 0:
                vertex = np.int64(indices[begin + bounded(word_at(word & 3, word0, word1, word2, word3), degree)])
            place += 1
            drawn[b, place] = vertex
        walk += cuda.gridDim.x * cuda.blockDim.x


@id_kernel("void(ID[:, ::1], int64[::1], float32[::1], float32[:, ::1])")
def weigh_edges(edge_ids, num_edges, of_edges, weights):
    """Write the weights of each batch's edges, up to the capacity of ``weights``."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for e in range(thread, min(num_edges[b], np.int64(weights.shape[1])), cuda.gridDim.x * cuda.blockDim.x):
        weights[b, e] = of_edges[edge_ids[b, e]]


@id_kernel("void(ID[:, ::1], int64[::1], float32[::1], float32[:, ::1])")
def weigh_seeds(nodes, num_seeds, of_nodes, weights):
    """Write the weights of each batch's seeds, multiplied by the number of seeds."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(thread, num_seeds[b], cuda.gridDim.x * cuda.blockDim.x):
        weights[b, i] = np.float32(num_seeds[b]) * of_nodes[nodes[b, i]]
