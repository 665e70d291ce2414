"""Requests in their own order: one or several threads for each. The plain schedule, and the better one where few requests meet on a node."""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.draw import DISTINCT, REPLACE, WEIGHTED, column, draw_unit, num_units
from hoptrain.kernels.cuda.thresholds import COPY_UNIT
from hoptrain.kernels.cuda.widths import id_kernel


def lane_bits_of(fanout, mode, thresholds):
    """Log2 of the threads for a request: they reach the most units that a request of this hop can have, within bounds."""
    draws = {DISTINCT: COPY_UNIT, REPLACE: 4, WEIGHTED: 2}[mode]
    units = thresholds.lanes if fanout < 0 else -(-fanout // draws)
    most = min(thresholds.lanes, thresholds.block)
    return min((units - 1).bit_length(), most.bit_length() - 1)


def draw_by_sample(launch, graph, requests, capacity, draw, output):
    """Draw the edges of a hop.

    Args:
        launch: of the bulk.
        graph: indptr (V+1,), indices (E,), threshold (E,) and alias (E,); the last two of any length unless by weight.
        requests: nodes (K, N), low (K,) and high (K,).
        capacity: the most requests of a batch.
        draw: fanout, mode, and address (4,) uint64: seed, epoch, number of the first batch, hop.
        output: indptr (K, N+1) with the offsets of the rows' edges; edges (K, M) and neighbours (K, M), written.
    """
    lane_bits = lane_bits_of(*draw[:2], launch.thresholds)
    launch.rows(sample_requests, capacity << lane_bits, *graph, *requests, *draw, lane_bits, *output)


@id_kernel(
    "void(ID[::1], ID[::1], uint32[::1], int32[::1], ID[:, ::1], int64[::1], int64[::1], int64, int64, uint64[::1], int64, int32[:, ::1], "
    "ID[:, ::1], ID[:, ::1])"
)
def sample_requests(
    indptr, indices, threshold, alias, nodes, low, high, fanout, mode, address, lane_bits,
    out_indptr, out_edges, out_neighbors,
):  # fmt: skip
    """``2**lane_bits`` divides the block, so that a request's threads stand side by side."""
    b = cuda.blockIdx.y
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    i = low[b] + (thread >> lane_bits)
    while i < high[b]:
        vertex = nodes[np.uint64(b), np.uint64(i)]
        begin, degree = column(indptr, alias, mode, vertex)
        first = np.int64(out_indptr[np.uint64(b), np.uint64(i)])
        unit = thread & ((1 << lane_bits) - 1)
        while unit < num_units(degree, fanout, mode):
            draw_unit(
                indices, begin, threshold, alias, begin, degree, fanout, mode, address, vertex, unit, b, first, out_edges, out_neighbors
            )
            unit += 1 << lane_bits
        i += (cuda.gridDim.x * cuda.blockDim.x) >> lane_bits
