"""Sums of neighbours' rows over a block's edges, by the kernels of ``aggregate.cu``.

A block of M edges, D destinations and S sources with rows of W numbers of b bytes: the forward sum reads M (b W + 4) + 4 D bytes and writes 4 D W,
the backward one, by the transposed block, reads M (4 W + 4) + 4 S and writes b S W. Weights add 4 M to each. With every row that is read coming from
memory, the lower bounds at the 4.8 TB/s of an H200 are, for the three blocks of a batch of ogbn-products' size (fanouts 15, 10, 5; 1,024 seeds):

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
"""Name of a dtype of torch's or NumPy's -> of the numbers in the names of kernels."""
WORD = {"float32": 4, "bfloat16": 8, "float64": 1}
"""Numbers of a word that is one load of 16 bytes, where there is a kernel for it."""


def sum_rows(launch, edges, rows, out, *, inverse=None, empty=None, piece=PIECE):
    """``out[d] = sum of weight * scale * rows[ind[e]]`` over the edges ``e`` of each destination, as ``aggregate.cu`` states it.

    Args:
        launch: of one batch; its stream is the one that the arrays are used on.
        edges: an ``Edges``, all of whose arrays are contiguous and on the device.
        rows: (S, W) float32, bfloat16 or float64.
        out: (D, W) float32 or bfloat16; of float64 rows float64.
        inverse: (D,) receives 1 / degree; with it the means are written.
        empty: makes an array of a shape and a dtype's name, for the sums of pieces; asked for only where the block has more than 2 ** ``piece`` edges.
        piece: the logarithm of the edges that are added up in one go.
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
    """``out[e, head]``, the derivative by each weight of the sums whose gradient is ``gradient`` (D, W); arguments as of ``sum_rows``."""
    numbers = _name(rows)
    word = _word(numbers, rows.shape[1] // edges.heads, (rows, gradient))
    given, *_ = _given(launch, edges, rows, word)
    grid, block = grid_of(launch.thresholds, edges.num_rows, SHORT)
    with cupy_stream(int(launch.stream)):
        addresses = pointer(out), pointer(gradient), _address(inverse)
        kernel_of("aggregate", f"edge_dots_{NAMES[numbers]}_{word}")(grid, block, (*given, *addresses))


def _given(launch, edges, rows, word):
    """What every kernel takes first, and the grid and block over the destinations."""
    width, heads = rows.shape[1] // word, edges.heads
    addresses = pointer(edges.ptr), pointer(edges.ind), _address(edges.weights), _address(edges.scale), pointer(rows)
    return (*addresses, width, width // heads, heads, edges.num_rows), *grid_of(launch.thresholds, edges.num_rows, width)


def _word(numbers, head_width, arrays):
    """Numbers of a word: one unless a head's columns and the addresses of all rows are multiples of the widest."""
    aligned = all(pointer(array) % 16 == 0 for array in arrays)
    return WORD[numbers] if head_width % WORD[numbers] == 0 and aligned else 1


def _name(array):
    return str(array.dtype).removeprefix("torch.")


def _address(array):
    return 0 if array is None else pointer(array)
