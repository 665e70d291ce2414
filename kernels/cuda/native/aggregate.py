"""Sums of neighbours' rows over a block's edges, by the kernels of ``aggregate.cu``.

A block has M edges, D destinations, and S sources with rows of W numbers of b bytes. The forward sum reads M (b W + 4) + 4 D bytes and writes 4 D W.
The backward sum, by the transposed block, reads M (4 W + 4) + 4 S bytes and writes b S W. Weights add 4 M to each. If every row is read from
memory, the lower bounds at the 4.8 TB/s of an H200, for the three blocks of a batch of ogbn-products' size (fanouts 15, 10, 5; 1,024 seeds), are:

=====================================  ============  =============
M, D, S, W                             forward (ms)  backward (ms)
=====================================  ============  =============
712 k, 142 k, 567 k, 100 (float32)     0.072         0.107
158 k, 15.8 k, 142 k, 256              0.037         0.064
15.3 k, 1 k, 15.8 k, 256               0.003         0.007
=====================================  ============  =============
"""

from hoptrain.kernels.cuda.native import kernel_of, pointer
from hoptrain.kernels.cuda.native.gather import cupy_stream
from hoptrain.kernels.cuda.training.edges import PIECE, SHORT, grid_of, num_slots, sum_type

NAMES = {"float32": "float", "bfloat16": "bfloat16", "float64": "double"}
"""Name of a torch or NumPy dtype -> name of that type in kernel names."""
WORD = {"float32": 4, "bfloat16": 8, "float64": 1}
"""Name of a dtype -> maximum number of elements that a kernel loads at once: 16 bytes, but only one element for float64."""


def sum_rows(launch, edges, rows, out, *, inverse=None, empty=None, piece=PIECE):
    """Write the sum of ``weight * scale * rows[ind[e]]`` over the edges ``e`` of each destination ``d`` to ``out[d]``; see ``aggregate.cu``.

    Args:
        launch: Launcher of one batch, on the stream on which the arrays are used.
        edges: A ``BlockEdges`` object whose arrays are contiguous and on the device.
        rows: (S, W) float32, bfloat16 or float64.
        out: (D, W) float32 or bfloat16; float64 for float64 rows.
        inverse: (D,), receives 1 / degree. If given, means are written instead of sums.
        empty: Function that allocates an array of a shape and a dtype name, for the sums of pieces. It is called only if the block has more than
            2 ** ``piece`` edges.
        piece: Log2 of the maximum number of edges that are summed in one piece.
    """
    numbers, results = _name(rows), _name(out)
    word = _word(numbers, rows.shape[1] // edges.heads, (rows, out))
    given, grid, block = _given(launch, edges, rows, word)
    partial = 0
    with cupy_stream(int(launch.stream)):
        if edges.num_edges > 1 << piece:
            slots = num_slots(edges.num_edges, piece)
            sums = empty((slots, rows.shape[1]), sum_type(numbers))
            partial = pointer(sums)
            over_slots, _ = grid_of(launch.thresholds, slots, rows.shape[1] // word)
            kernel_of("aggregate", f"sum_pieces_{NAMES[numbers]}_{word}")(over_slots, block, (*given, partial, edges.num_edges, piece))
        name = f"sum_rows_{NAMES[numbers]}_{NAMES[results]}_{word}"
        kernel_of("aggregate", name)(grid, block, (*given, pointer(out), _address(inverse), partial, piece))


def edge_dots(launch, edges, rows, gradient, out, *, inverse=None):
    """Write the gradient of each edge weight to ``out[e, head]``, where ``gradient`` (D, W) is for the sums. Arguments are those of ``sum_rows``."""
    numbers = _name(rows)
    word = _word(numbers, rows.shape[1] // edges.heads, (rows, gradient))
    given, *_ = _given(launch, edges, rows, word)
    grid, block = grid_of(launch.thresholds, edges.num_rows, SHORT)
    with cupy_stream(int(launch.stream)):
        addresses = pointer(out), pointer(gradient), _address(inverse)
        kernel_of("aggregate", f"edge_dots_{NAMES[numbers]}_{word}")(grid, block, (*given, *addresses))


def _given(launch, edges, rows, word):
    """Return the leading arguments of all kernels, and the grid and block over the destinations."""
    width, heads = rows.shape[1] // word, edges.heads
    addresses = pointer(edges.ptr), pointer(edges.ind), _address(edges.weights), _address(edges.scale), pointer(rows)
    return (*addresses, width, width // heads, heads, edges.num_rows), *grid_of(launch.thresholds, edges.num_rows, width)


def _word(numbers, head_width, arrays):
    """Return the number of elements that a thread loads at once: the widest that divides a head's width and all row addresses, otherwise one."""
    aligned = all(pointer(array) % 16 == 0 for array in arrays)
    return WORD[numbers] if head_width % WORD[numbers] == 0 and aligned else 1


def _name(array):
    return str(array.dtype).removeprefix("torch.")


def _address(array):
    return 0 if array is None else pointer(array)
