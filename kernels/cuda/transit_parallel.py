"""The transit-parallel schedule: all requests for a node (a *transit*) share the reads of its adjacency list (NextDoor; Jangda et al., EuroSys 2021).

The work of a transit, which is a node with requests, is a list of units, one request after another. Its class determines the threads that process it:
one thread, a block of one warp, a block of many warps, or several blocks with equal shares. The last three classes use one kernel with different
launches. A block of one warp is used instead of a warp of a larger block because it never waits at a barrier for other warps. If it saves bytes, the
block first copies the list into shared memory.
"""

import numpy as np
from numba import cuda

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.draw import DISTINCT, column, draw_unit, num_units, unit_size
from hoptrain.kernels.cuda.group import BLOCK, CLASSES, GRID, THREAD, WARP, group_requests, unpack_request
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared import shared
from hoptrain.kernels.shared.draws import takes_all

_WARP_THREADS = 32


def draw_by_transit(launch, graph, requests, capacity, draw, output, groups):
    """Draw the edges of a hop, grouped by node; ``groups`` is scratch memory, other arguments are those of ``sample_parallel.draw_by_sample``."""
    group_requests(launch, graph, requests, capacity, draw, groups)
    table = launch.thresholds
    lists = groups.transits, groups.sizes, groups.starts, groups.classes, groups.members, groups.counters
    nodes, _, _ = requests
    launch.flat(transit_threads, len(groups.transits), *graph, *lists, *draw, *output)
    id_bytes = nodes.dtype.itemsize
    for kind, threads, shares, stage_bytes in (
        (WARP, min(_WARP_THREADS, table.block), 1, table.warp_stage_bytes),
        (BLOCK, table.block, 1, table.block_stage_bytes),
        (GRID, table.block, table.shares, table.block_stage_bytes),
    ):
        blocks = max(1, min(table.max_blocks // shares, len(groups.transits)))
        transit_blocks[(blocks, shares), threads, launch.stream, stage_bytes](
            *graph, *lists, *draw, kind, stage_bytes // id_bytes, id_bytes, table.sector_bytes, *output
        )


@shared
def staging_pays(units, degree, fanout, mode, capacity, id_bytes, sector_bytes):
    """Return whether a list of ``degree`` ids fits into ``capacity`` ids of shared memory, and copying it moves fewer bytes than ``units`` units read.

    Units that take all edges read ids in order; a random draw reads a whole sector for one id.
    """
    draws = units * min(degree, unit_size(degree, fanout, mode))
    read = draws * (id_bytes if takes_all(degree, fanout, mode != DISTINCT) else sector_bytes)
    return degree <= capacity and read > degree * id_bytes


@device_function
def draw_member(
    adjacency, shift, threshold, alias, begin, degree, vertex, start, work, members,
    fanout, mode, address, out_indptr, out_edges, out_neighbors,
):  # fmt: skip
    """Process the unit of work with index ``work`` of a transit node whose requests begin at ``start`` in ``members``."""
    units = num_units(degree, fanout, mode)
    b, row = unpack_request(members[start + work // units])
    first = np.int64(out_indptr[np.uint64(b), np.uint64(row)])
    draw_unit(
        adjacency, shift, threshold, alias, begin, degree, fanout, mode, address, vertex, work % units, b, first, out_edges, out_neighbors
    )


@id_kernel(
    "void(ID[::1], ID[::1], uint32[::1], int32[::1], ID[::1], int32[::1], int64[::1], int32[:, ::1], int64[::1], int64[::1], int64, int64, "
    "uint64[::1], int32[:, ::1], ID[:, ::1], ID[:, ::1])"
)
def transit_threads(
    indptr, indices, threshold, alias, transits, sizes, starts, classes, members, counters,
    fanout, mode, address, out_indptr, out_edges, out_neighbors,
):  # fmt: skip
    """Process the transit nodes of class THREAD, with one thread for all units of a node."""
    entry = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    while entry < counters[CLASSES + THREAD]:
        t = classes[THREAD, entry]
        vertex = transits[t]
        begin, degree = column(indptr, alias, mode, vertex)
        work = sizes[t] * num_units(degree, fanout, mode)
        unit = 0
        while unit < work:
            draw_member(
                indices, begin, threshold, alias, begin, degree, vertex, starts[t], unit, members,
                fanout, mode, address, out_indptr, out_edges, out_neighbors,
            )  # fmt: skip
            unit += 1
        entry += cuda.gridDim.x * cuda.blockDim.x


@id_kernel(
    "void(ID[::1], ID[::1], uint32[::1], int32[::1], ID[::1], int32[::1], int64[::1], int32[:, ::1], int64[::1], int64[::1], int64, int64, "
    "uint64[::1], int64, int64, int64, int64, int32[:, ::1], ID[:, ::1], ID[:, ::1])"
)
def transit_blocks(
    indptr, indices, threshold, alias, transits, sizes, starts, classes, members, counters,
    fanout, mode, address, kind, capacity, id_bytes, sector_bytes, out_indptr, out_edges, out_neighbors,
):  # fmt: skip
    """Process the transit nodes of class ``kind``. Blocks with the same x share a node, and y selects a block's part of the units."""
    staged = cuda.shared.array(0, indices.dtype)
    entry = cuda.blockIdx.x
    while entry < counters[CLASSES + kind]:
        t = classes[kind, entry]
        vertex = transits[t]
        begin, degree = column(indptr, alias, mode, vertex)
        work = sizes[t] * num_units(degree, fanout, mode)
        share = (work + cuda.gridDim.y - 1) // cuda.gridDim.y
        first = cuda.blockIdx.y * share
        last = min(work, first + share)
        adjacency, shift = indices, begin
        if staging_pays(last - first, degree, fanout, mode, capacity, id_bytes, sector_bytes):
            adjacency, shift = staged, np.int64(0)
            j = cuda.threadIdx.x
            while j < degree:
                staged[j] = indices[begin + j]
                j += cuda.blockDim.x
        cuda.syncthreads()
        unit = first + cuda.threadIdx.x
        while unit < last:
            draw_member(
                adjacency, shift, threshold, alias, begin, degree, vertex, starts[t], unit, members,
                fanout, mode, address, out_indptr, out_edges, out_neighbors,
            )  # fmt: skip
            unit += cuda.blockDim.x
        cuda.syncthreads()
        entry += cuda.gridDim.x
