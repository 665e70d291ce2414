"""The sample-parallel schedule: requests are processed in their own order, by one or several threads each.

This schedule is the simpler one. It is also the faster one if few requests share a node.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.draw import DISTINCT, REPLACE, WEIGHTED, column, draw_unit, num_units
from hoptrain.kernels.cuda.thresholds import COPY_UNIT
from hoptrain.kernels.cuda.widths import id_kernel


def lane_bits_of(fanout, mode, thresholds):
    """Return log2 of the number of threads for a request: enough for the maximum number of units of a request, within limits."""
    draws = {DISTINCT: COPY_UNIT, REPLACE: 4, WEIGHTED: 2}[mode]
    units = thresholds.lanes if fanout < 0 else -(-fanout // draws)
    most = min(thresholds.lanes, thresholds.block)
    return min((units - 1).bit_length(), most.bit_length() - 1)


def draw_by_sample(launch, graph, requests, capacity, draw, output):
    """Draw the edges of a hop.

    Args:
        launch: Launcher of the bulk.
        graph: Arrays indptr (V+1,), indices (E,), threshold (E,) and alias (E,). The last two may have any length unless draws are weighted.
        requests: Arrays nodes (K, N), low (K,) and high (K,); the requests are ``nodes[b, low[b]:high[b]]``.
        capacity: Maximum number of requests of a batch.
        draw: Fanout, mode, and address (4,) uint64: seed, epoch, index of the first batch, hop.
        output: Arrays indptr (K, N+1), which holds the offsets of the requests' edges; edges (K, M) and neighbours (K, M), which are written.
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
    """Draw the edges of each request with ``2**lane_bits`` threads. This divides the block size, so the threads of a request are adjacent."""
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
