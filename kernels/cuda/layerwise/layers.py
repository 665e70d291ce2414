"""Layer-wise sampling on CUDA, see ``hoptrain.kernels.cpu.layerwise.layers``: keys are summed by atomics, draws are found by bisection.

Keys are integers, so their sum does not depend on the order of additions. Shapes: K batches with a row of every matrix each; N destinations, T in-edges of
these, m candidates, t draws, d distinct drawn nodes, M edges from them. If a buffer is too small for the edges, all are counted and those that do not
fit are dropped; the host then repeats the batch with a larger buffer.
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
"""Size in bytes of the shared memory of a block of ``normalize_long``."""


@cuda_kernel("void(int64[::1], int64, int64[::1])")
def limit(sizes, most, limited):
    """Write the minimum of each size and ``most`` to ``limited``."""
    b = cuda.blockIdx.y
    if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
        limited[b] = min(sizes[b], most)


@id_kernel("void(ID[::1], ID[::1], ID[:, ::1], int64[::1], ID[:, ::1], int64[::1], ID[:, ::1])")
def list_sources(indptr, indices, nodes, count, offsets, num_listed, sources):
    """List the sources of the first ``num_listed[b]`` in-edges of the destinations."""
    b = cuda.blockIdx.y
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_listed[b], cuda.gridDim.x * cuda.blockDim.x):
        row = row_at(offsets, b, 0, count[b], e)
        sources[b, e] = indices[np.int64(indptr[nodes[b, row]]) + e - np.int64(offsets[b, row])]


@id_kernel("void(int64[::1], ID[:, ::1], int64[::1], ID[:, ::1], int64, int64, int64[:, ::1])")
def add_shares(count, offsets, num_listed, candidates_of, kind, bits, sums):
    """Add each destination's share to the sources of its in-edges, given as local ids of candidates in ``candidates_of``.

    The scale of shares is 2 ** (``bits`` - bit length of the number of destinations).
    """
    b = cuda.blockIdx.y
    scale = _U1 << np.uint64(bits - bit_length(count[b]))
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_listed[b], cuda.gridDim.x * cuda.blockDim.x):
        row = row_at(offsets, b, 0, count[b], e)
        share = destination_share(np.int64(offsets[b, row + 1]) - np.int64(offsets[b, row]), scale, kind)
        cuda.atomic.add(sums, (b, candidates_of[b, e]), np.int64(share))


@id_kernel("void(ID[::1], ID[:, ::1], int64[::1], int64, int64, uint32[::1], int64[:, ::1])")
def make_keys(indptr, candidates, count, kind, is_scored, scores, sums):
    """Replace the candidates' sums of shares by keys, multiplied by their ``scores`` (V,) if ``is_scored``."""
    b = cuda.blockIdx.y
    for j in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, count[b], cuda.gridDim.x * cuda.blockDim.x):
        vertex = candidates[b, j]
        key = np.int64(source_key(sums[b, j], np.int64(indptr[vertex + 1]) - np.int64(indptr[vertex]), kind))
        sums[b, j] = key * np.int64(scores[vertex]) if is_scored else key


@id_kernel("void(ID[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64, uint64[::1], ID[:, ::1], int64[:, ::1], int64[::1])")
def draw_candidates(candidates, prefix, count, totals, number, address, drawn, keys, num_drawn):
    """Make ``number`` draws and write the drawn candidates and their keys; a batch without candidates gets none.

    ``prefix`` has the sum of the keys before each candidate. If there is a single row of candidates, all batches use it.
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
    """Count the draws of each distinct node (``drawn`` holds local ids; ``counts`` are zero before), and write its key."""
    b = cuda.blockIdx.y
    for j in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_drawn[b], cuda.gridDim.x * cuda.blockDim.x):
        if cuda.atomic.add(counts, (b, drawn[b, j]), 1) == 0:
            distinct_keys[b, drawn[b, j]] = keys[b, j]


@cuda_kernel("void(int32[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64[::1], int32[:, ::1])")
def weigh_drawn(counts, keys, num_distinct, num_drawn, totals, weights):
    """Write each drawn node's weight count / (t q) as the bits of a float32: the number of edges for which each of the node's edges stands."""
    b = cuda.blockIdx.y
    for q in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_distinct[b], cuda.gridDim.x * cuda.blockDim.x):
        share, exponent = times(*double_of(num_drawn[b]), *double_of(keys[b, q]))
        edges, power = over(*double_of(totals[b]), share, exponent)
        weight, exponent = times(*double_of(counts[b, q]), edges, power)
        weights[b, q] = single_of(weight, exponent)


@id_kernel("void(ID[:, ::1], int64[::1], ID[:, ::1], ID[:, ::1])")
def take(values, num_edges, sources, out):
    """Write the value of each edge's source to ``out``, which may be ``sources``."""
    b = cuda.blockIdx.y
    for e in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_edges[b], cuda.gridDim.x * cuda.blockDim.x):
        out[b, e] = values[b, sources[b, e]]


@id_kernel("void(int64[::1], ID[:, ::1], ID[:, ::1], int64[::1], int32[:, ::1])")
def normalize_weights(count, offsets, indptr, num_edges, weights):
    """Scale the weights of each destination so that their sum is its degree. One thread sums them, in the CPU's order. Long columns are skipped."""
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
    """Scale the weights of long columns as ``normalize_weights`` does, with a block for each. Shared memory holds a pair for each of ``PIECES`` sums.

    Without parallel edges no column is longer than a layer; with them a column may contain all in-edges of a node.
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
    """Return the sum of the weights [first, last), of which there is at least one, added in order."""
    total, exponent = double_of_single(weights[b, first])
    for e in range(first + 1, last):
        total, exponent = plus(total, exponent, *double_of_single(weights[b, e]))
    return total, exponent


@device_function
def scale_weight(weights, b, e, scale, power):
    """Multiply a weight by ``scale``, whose exponent is ``power``."""
    weight, exponent = times(*double_of_single(weights[b, e]), scale, power)
    weights[b, e] = single_of(weight, exponent)


@id_kernel("void(ID[:, ::1], int32[:, ::1], int64[:, ::1], int64[::1], int64[::1], ID[:, ::1], ID[:, ::1], int32[:, ::1], int32[:, ::1])")
def describe_sources(distinct, counts, keys, num_distinct, totals, table_keys, table_values, out_counts, out_probabilities):
    """Write the number of draws of each source of the block, and its probability in one draw as the bits of a float32; both are zero before."""
    b = cuda.blockIdx.y
    for q in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, num_distinct[b], cuda.gridDim.x * cuda.blockDim.x):
        place = value_of(table_keys, table_values, b, distinct[b, q])
        if place >= 0:
            out_counts[b, place] = counts[b, q]
            probability, exponent = over(*double_of(keys[b, q]), *double_of(totals[b]))
            out_probabilities[b, place] = single_of(probability, exponent)
