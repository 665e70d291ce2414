"""Numbers in order of first appearance within one block of threads, a tile of vertices at a time: for searches whose steps depend on each other."""

from numba import cuda

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.scan import block_scan


@device_function
def enter_tile(values, row, slot, vertex, known, seen, num_seen, buffer):
    """Number the vertices of a tile, one for each thread of the block, that have none yet.

    Args:
        values: numbers, by row and slot; those of vertices without a number are ``known`` + a block's threads, or above.
        row: of the block.
        slot: of the thread's vertex, the same for the same vertex; negative if it has none.
        vertex: of the thread.
        known: above all numbers that there will be.
        seen: vertices by row and number, new ones are appended.
        num_seen: of the row.
        buffer: shared scratch, an int64 for each thread.

    Returns:
        The number of the thread's vertex, and how many vertices were new; all threads know the numbers afterwards.
    """
    mine = known + cuda.threadIdx.x
    if slot >= 0:
        cuda.atomic.min(values, (row, slot), mine)
    cuda.syncthreads()
    is_new = slot >= 0 and values[row, slot] == mine
    rank = block_scan(buffer, 1 if is_new else 0)
    num_new = buffer[cuda.blockDim.x - 1]
    if is_new:
        seen[row, num_seen + rank - 1] = vertex
        values[row, slot] = num_seen + rank - 1
    cuda.syncthreads()
    number = values[row, slot] if slot >= 0 else -1
    return number, num_new
