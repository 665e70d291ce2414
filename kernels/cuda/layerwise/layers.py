"""Layer-wise sampling, see ``hoptrain.kernels.cpu.layerwise.layers``: keys added up by atomics, draws by bisection, weights of those drawn.

Keys are integers, so that it does not matter who adds them up, and in what order. Shapes: K batches, a row of every matrix for each; N
destinations, T in-edges of theirs, m candidates, t draws, d distinct nodes among these, M edges from them. Where there is less room than
edges, all are counted and the rest is left out: the batch is made again with more room.
"""

import numpy as np
from numba import cuda, int64

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.cuda.draw import words_at
from hoptrain.kernels.cuda.induce import row_at, value_of
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared.double import bit_length, double_of, double_of_single, over, plus, single_of, times
from hoptrain.kernels.shared.draws import bounded64, word_at
from hoptrain.kernels.shared.importance import LONG, PIECES
from hoptrain.kernels.shared.layerwise import destination_share, source_key

_U1 = np.uint64(1)
PIECES_BYTES = 2 * 8 * PIECES
"""Shared memory of ``normalize_long``."""


@cuda_kernel("void(int64[::1], int64, int64[::1])")
def limit(sizes, most, limited):
    """Each size, or ``most``."""
    b = cuda.blockIdx.y
    if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
        limited[b] = min(sizes[b], most)


@id_kernel("void(ID[::1], ID[::1], ID[:, ::1], int64[::1], ID[:, ::1], int64[::1], ID[:, ::1])")
def list_sources(indptr, indices, nodes, count, offsets, num_listed, sources):
    """The sources of the first in-edges of the destinations."""
    b = cuda.blockIdx.y
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_listed[b], cuda.gridDim.x * cuda.blockDim.x):
        row = row_at(offsets, b, 0, count[b], e)
        sources[b, e] = indices[np.int64(indptr[nodes[b, row]]) + e - np.int64(offsets[b, row])]


@id_kernel("void(int64[::1], ID[:, ::1], int64[::1], ID[:, ::1], int64, int64, int64[:, ::1])")
def add_shares(count, offsets, num_listed, candidates_of, kind, bits, sums):
    """Add each destination's share to the candidates (local ids ``candidates_of``) that its edges come from.

    Shares are in units of 2**-``bits``, less one binary digit for each of the number of destinations.
    """
    b = cuda.blockIdx.y
    scale = _U1 << np.uint64(bits - bit_length(count[b]))
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_listed[b], cuda.gridDim.x * cuda.blockDim.x):
        row = row_at(offsets, b, 0, count[b], e)
        share = destination_share(np.int64(offsets[b, row + 1]) - np.int64(offsets[b, row]), scale, kind)
        cuda.atomic.add(sums, (b, candidates_of[b, e]), np.int64(share))


@id_kernel("void(ID[::1], ID[:, ::1], int64[::1], int64, int64, uint32[::1], int64[:, ::1])")
def make_keys(indptr, candidates, count, kind, is_scored, scores, sums):
    """Turn the candidates' sums into keys, times their ``scores`` (V,) if these count."""
    b = cuda.blockIdx.y
    for j in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = candidates[b, j]
        key = np.int64(source_key(sums[b, j], np.int64(indptr[vertex + 1]) - np.int64(indptr[vertex]), kind))
        sums[b, j] = key * np.int64(scores[vertex]) if is_scored else key


@id_kernel("void(ID[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64, uint64[::1], ID[:, ::1], int64[:, ::1], int64[::1])")
def draw_candidates(candidates, prefix, count, totals, number, address, drawn, keys, num_drawn):
    """``number`` draws and their keys, none where there is no candidate.

    ``prefix`` has the sum of the keys before each candidate. A single row of candidates is for all batches.
    """
    b = cuda.blockIdx.y
    row = b if candidates.shape[0] > 1 else 0
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if thread == 0:
        num_drawn[b] = number if count[b] > 0 else 0
    for j in range(thread, number if count[b] > 0 else 0, cuda.gridDim.x * cuda.blockDim.x):
        word0, word1, word2, word3 = words_at(address, b, 0, j >> 1)
        first = (j & 1) * 2
        high, low = word_at(first, word0, word1, word2, word3), word_at(first + 1, word0, word1, word2, word3)
        place = row_at(prefix, row, 0, count[b], np.int64(bounded64(high, low, totals[b])))
        drawn[b, j] = candidates[row, place]
        keys[b, j] = (prefix[row, place + 1] if place + 1 < count[b] else totals[b]) - prefix[row, place]


@id_kernel("void(ID[:, ::1], int64[:, ::1], int64[::1], int32[:, ::1], int64[:, ::1])")
def count_draws_of(drawn, keys, num_drawn, counts, distinct_keys):
    """How often each distinct node was drawn (``drawn`` has its local id; ``counts`` are zero before), and its key."""
    b = cuda.blockIdx.y
    for j in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_drawn[b], cuda.gridDim.x * cuda.blockDim.x):
        if cuda.atomic.add(counts, (b, drawn[b, j]), 1) == 0:
            distinct_keys[b, drawn[b, j]] = keys[b, j]


@cuda_kernel("void(int32[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64[::1], int32[:, ::1])")
def weigh_drawn(counts, keys, num_distinct, num_drawn, totals, weights):
    """How many edges one of a node stands for, count / (t q): the bits of float32."""
    b = cuda.blockIdx.y
    for q in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_distinct[b], cuda.gridDim.x * cuda.blockDim.x):
        share, exponent = times(*double_of(num_drawn[b]), *double_of(keys[b, q]))
        edges, power = over(*double_of(totals[b]), share, exponent)
        weight, exponent = times(*double_of(counts[b, q]), edges, power)
        weights[b, q] = single_of(weight, exponent)


@id_kernel("void(ID[:, ::1], int64[::1], ID[:, ::1], ID[:, ::1])")
def take(values, num_edges, sources, out):
    """The value of each edge's source; ``out`` may be ``sources``."""
    b = cuda.blockIdx.y
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_edges[b], cuda.gridDim.x * cuda.blockDim.x):
        out[b, e] = values[b, sources[b, e]]


@id_kernel("void(int64[::1], ID[:, ::1], ID[:, ::1], int64[::1], int32[:, ::1])")
def normalize_weights(count, offsets, indptr, num_edges, weights):
    """Scale the weights of each destination to add up to its degree; one thread adds them, in the order of the CPU. Long columns are left out."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        first, last = np.int64(indptr[b, i]), min(np.int64(indptr[b, i + 1]), num_edges[b])
        if 0 < last - first <= LONG:
            total, exponent = sum_of(weights, b, first, last)
            scale, power = over(*double_of(np.int64(offsets[b, i + 1]) - np.int64(offsets[b, i])), total, exponent)
            for e in range(first, last):
                scale_weight(weights, b, e, scale, power)


@id_kernel("void(int64[::1], ID[:, ::1], ID[:, ::1], int64[::1], int32[:, ::1])")
def normalize_long(count, offsets, indptr, num_edges, weights):
    """``normalize_weights`` of long columns, a block for each. Shared memory: a mantissa and an exponent for each of ``PIECES`` sums.

    Without multi-edges no column is longer than a layer; with them a column may have all in-edges of a node.
    """
    sums = cuda.shared.array(0, int64)
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x, count[b], cuda.gridDim.x):
        first, last = np.int64(indptr[b, i]), min(np.int64(indptr[b, i + 1]), num_edges[b])
        if last - first > LONG:
            for piece in range(cuda.threadIdx.x, PIECES, cuda.blockDim.x):
                total, exponent = sum_of(
                    weights, b, first + (last - first) * piece // PIECES, first + (last - first) * (piece + 1) // PIECES
                )
                sums[piece], sums[PIECES + piece] = np.int64(total), exponent
            cuda.syncthreads()
            total, exponent = np.uint64(sums[0]), sums[PIECES]
            for piece in range(1, PIECES):
                total, exponent = plus(total, exponent, np.uint64(sums[piece]), sums[PIECES + piece])
            scale, power = over(*double_of(np.int64(offsets[b, i + 1]) - np.int64(offsets[b, i])), total, exponent)
            for e in range(first + cuda.threadIdx.x, last, cuda.blockDim.x):
                scale_weight(weights, b, e, scale, power)
            cuda.syncthreads()


@device_function
def sum_of(weights, b, first, last):
    """The sum of some weights, at least one, in order."""
    total, exponent = double_of_single(weights[b, first])
    for e in range(first + 1, last):
        total, exponent = plus(total, exponent, *double_of_single(weights[b, e]))
    return total, exponent


@device_function
def scale_weight(weights, b, e, scale, power):
    """Multiply a weight."""
    weight, exponent = times(*double_of_single(weights[b, e]), scale, power)
    weights[b, e] = single_of(weight, exponent)


@id_kernel("void(ID[:, ::1], int32[:, ::1], int64[:, ::1], int64[::1], int64[::1], ID[:, ::1], ID[:, ::1], int32[:, ::1], int32[:, ::1])")
def describe_sources(distinct, counts, keys, num_distinct, totals, table_keys, table_values, out_counts, out_probabilities):
    """How often each of the block's sources was drawn, and its probability in a draw, the bits of float32; both are zero before."""
    b = cuda.blockIdx.y
    for q in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_distinct[b], cuda.gridDim.x * cuda.blockDim.x):
        place = value_of(table_keys, table_values, b, distinct[b, q])
        if place >= 0:
            out_counts[b, place] = counts[b, q]
            probability, exponent = over(*double_of(keys[b, q]), *double_of(totals[b]))
            out_probabilities[b, place] = single_of(probability, exponent)
