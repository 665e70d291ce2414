"""Sums of neighbours' rows over a block's edges: the Numba version of ``native/aggregate.cu``, where the sums are defined.

It does not support 16-bit types, so callers convert bfloat16. Each thread processes one number of a row.
"""

from numba import cuda

from hoptrain.kernels.cuda.compile import cuda_kernel, device_function
from hoptrain.kernels.cuda.training.edges import PIECE, SHORT, grid_of, num_slots

WEIGHTS, SCALE, MEAN = 1, 2, 4
"""Flags that tell which optional arrays a kernel gets. An array whose flag is not set is empty."""


def sum_rows(launch, edges, rows, out, *, inverse=None, empty=None, piece=PIECE):
    """Write the sum of ``weight * scale * rows[ind[e]]`` over the edges ``e`` of each destination ``d`` to ``out[d]``.

    Arguments are those of ``native.aggregate.sum_rows``, with arrays that Numba accepts and without bfloat16.
    """
    given = _given(edges, rows, empty)
    nothing = empty((1, 1), rows.dtype.name)
    partial = nothing
    flags = _flags(edges, inverse)
    if edges.num_edges > 1 << piece:
        partial = empty((num_slots(edges.num_edges, piece), rows.shape[1]), rows.dtype.name)
        grid, block = grid_of(launch.thresholds, len(partial), rows.shape[1])
        sum_pieces[grid, block, launch.stream, 0](*given, edges.heads, flags, partial, piece)
    grid, block = grid_of(launch.thresholds, edges.num_rows, rows.shape[1])
    inverse = nothing.reshape(1) if inverse is None else inverse
    add_rows[grid, block, launch.stream, 0](*given, edges.heads, flags, out, inverse, partial, piece)


def edge_dots(launch, edges, rows, gradient, out, *, inverse=None, empty=None):
    """Write the gradient of each edge weight to ``out`` (M, heads). Arguments are those of ``native.aggregate.edge_dots``."""
    grid, block = grid_of(launch.thresholds, edges.num_rows, SHORT)
    flags = _flags(edges, inverse)
    inverse = empty((1,), rows.dtype.name) if inverse is None else inverse
    dot_edges[grid, block, launch.stream, 0](edges.ptr, edges.ind, rows, flags, gradient, inverse, out)


def _given(edges, rows, empty):
    weights = empty((1, 1), rows.dtype.name) if edges.weights is None else edges.weights
    scale = empty((1,), rows.dtype.name) if edges.scale is None else edges.scale
    return edges.ptr, edges.ind, weights, scale, rows


def _flags(edges, inverse):
    return WEIGHTS * (edges.weights is not None) | SCALE * (edges.scale is not None) | MEAN * (inverse is not None)


@device_function
def sum_of_edges(ind, weights, scale, rows, head, flags, begin, end, column):
    """Return the sum of a column over the edges [begin, end), in their order."""
    total = rows.dtype.type(0)
    e = begin
    while e < end:  # NVVM would unroll a range loop for each flag, which needs more registers than a thread has
        number = rows[ind[e], column]
        if flags & (WEIGHTS | SCALE):
            by = weights[e, head] if flags & WEIGHTS else rows.dtype.type(1)
            if flags & SCALE:
                by *= scale[ind[e]]
            number *= by
        total += number
        e += 1
    return total


@device_function
def owner(ptr, edge):
    """Return the destination of an edge: the last one whose edges begin at or before it."""
    low, high = 0, len(ptr) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if ptr[middle] <= edge:
            low = middle
        else:
            high = middle
    return low


@cuda_kernel(
    "void(int32[::1], int32[::1], float32[:, ::1], float32[::1], float32[:, ::1], int64, int64, float32[:, ::1], int64)",
)
def sum_pieces(ptr, ind, weights, scale, rows, heads, flags, partial, piece):
    """Write partial sums of destinations with more than ``1 << piece`` edges, see ``aggregate.cu``. In a block, x runs along a row, y over partial sums."""
    head_width = rows.shape[1] // heads
    for slot in range(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y, len(partial), cuda.gridDim.x * cuda.blockDim.y):
        first = slot // 2 << piece
        last = min(first + (1 << piece), len(ind)) - 1
        row = owner(ptr, last if slot & 1 else first)
        begin, end = ptr[row], ptr[row + 1]
        if end - begin > 1 << piece and (slot & 1 == 0 or begin > first):
            for column in range(cuda.threadIdx.x, rows.shape[1], cuda.blockDim.x):
                head = column // head_width
                partial[slot, column] = sum_of_edges(ind, weights, scale, rows, head, flags, max(begin, first), min(end, last + 1), column)


@cuda_kernel(
    "void(int32[::1], int32[::1], float32[:, ::1], float32[::1], float32[:, ::1], int64, int64, float32[:, ::1], float32[::1], float32[:, ::1], int64)",
)
def add_rows(ptr, ind, weights, scale, rows, heads, flags, out, inverse, partial, piece):
    """Sum the rows of each destination's edges, see ``sum_rows`` in ``aggregate.cu``."""
    head_width = rows.shape[1] // heads
    for row in range(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y, len(out), cuda.gridDim.x * cuda.blockDim.y):
        begin, end = ptr[row], ptr[row + 1]
        by = rows.dtype.type(1)
        if flags & MEAN:
            by = by / rows.dtype.type(end - begin) if end > begin else rows.dtype.type(0)
            if cuda.threadIdx.x == 0:
                inverse[row] = by
        for column in range(cuda.threadIdx.x, rows.shape[1], cuda.blockDim.x):
            if end - begin <= 1 << piece:
                total = sum_of_edges(ind, weights, scale, rows, column // head_width, flags, begin, end, column)
            else:
                total = rows.dtype.type(0)
                for k in range(begin >> piece, ((end - 1) >> piece) + 1):
                    total += partial[2 * k + (begin > k << piece), column]
            out[row, column] = by * total


@cuda_kernel("void(int32[::1], int32[::1], float32[:, ::1], int64, float32[:, ::1], float32[::1], float32[:, ::1])")
def dot_edges(ptr, ind, rows, flags, gradient, inverse, out):
    """Compute the gradients of edge weights, see ``dots`` in ``aggregate.cu``."""
    heads = out.shape[1]
    width = rows.shape[1] // heads
    for row in range(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y, len(gradient), cuda.gridDim.x * cuda.blockDim.y):
        begin, end = ptr[row], ptr[row + 1]
        by = inverse[row] if flags & MEAN else rows.dtype.type(1)
        for i in range(cuda.threadIdx.x, (end - begin) * heads, cuda.blockDim.x):
            edge, head = begin + i // heads, i % heads
            total = rows.dtype.type(0)
            for column in range(head * width, head * width + width):
                total += rows[ind[edge], column] * gradient[row, column]
            out[edge, head] = by * total
