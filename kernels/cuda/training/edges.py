"""The edges of a block and the launch configuration, for both versions of the aggregation kernels (Numba and CUDA C++)."""

from dataclasses import dataclass
from typing import Any

PIECE = 7
"""Log2 of the number of edges above which a destination is summed in pieces by several warps. A warp takes about 20 microseconds for this number of edges."""
SHORT = 8
"""Number of threads that process a destination's edges in kernels with a thread per edge and head. It is a usual in-degree in sampled blocks."""
MAX_LANES = 32


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class BlockEdges:
    """The edges of a block, grouped by destination, or by source for the backward pass.

    Attributes:
        ptr: (D+1,) int32 offset of each destination's edges.
        ind: (M,) int32 row that each edge reads.
        weights: (M,) or (M, heads) edge weights, or None.
        scale: (S,) factors of the rows, or None.
        heads: Number of attention heads among which a row's columns are divided.
    """

    ptr: Any
    ind: Any
    weights: Any = None
    scale: Any = None
    heads: int = 1

    @property
    def num_rows(self):
        """Number of destinations, D."""
        return len(self.ptr) - 1

    @property
    def num_edges(self):
        """Number of edges, M."""
        return len(self.ind)


def sum_type(numbers):
    """Return the name of the dtype in which rows of the dtype ``numbers`` are summed."""
    return "float64" if numbers == "float64" else "float32"


def num_slots(num_edges, piece):
    """Return the number of slots for the sums of pieces: two for each 2 ** ``piece`` edges."""
    return 2 * -(-num_edges >> piece)


def grid_of(thresholds, num_rows, width):
    """Return (grid, block) for ``num_rows`` rows of ``width`` words: one word for each thread, and up to a warp along a row."""
    lanes = 1
    while lanes < min(width, MAX_LANES, thresholds.block):
        lanes *= 2
    rows = max(1, thresholds.block // lanes)
    return (max(1, min(-(-num_rows // rows), thresholds.max_blocks)), 1), (lanes, rows)
