"""What both versions of the kernels are told of a block's edges, and how many threads they get."""

from dataclasses import dataclass
from typing import Any

PIECE = 7
"""A destination with more than 2 ** PIECE edges is added up in pieces by several warps: one warp takes some 20 microseconds for as many."""
SHORT = 8
"""Threads along the edges of a destination, where each has an edge and a head: as many edges as a sampled block has."""
MAX_LANES = 32


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Edges:
    """The edges of a block by destination, or by source.

    Attributes:
        ptr: (D+1,) int32 offsets.
        ind: (M,) int32, the row that each edge reads.
        weights: (M,) or (M, heads), or None.
        scale: (S,) by which a row that is read is multiplied, or None.
        heads: how many share a row's columns.
    """

    ptr: Any
    ind: Any
    weights: Any = None
    scale: Any = None
    heads: int = 1

    @property
    def num_rows(self):
        """D."""
        return len(self.ptr) - 1

    @property
    def num_edges(self):
        """M."""
        return len(self.ind)


def sum_type(numbers):
    """Name of the dtype in which rows of another are added up."""
    return "float64" if numbers == "float64" else "float32"


def num_slots(num_edges, piece):
    """Sums of pieces of which there may be two for each 2 ** ``piece`` edges."""
    return 2 * -(-num_edges >> piece)


def grid_of(thresholds, num_rows, width):
    """(grid, block) for rows of so many words: a word a thread, up to a warp along a row."""
    lanes = 1
    while lanes < min(width, MAX_LANES, thresholds.block):
        lanes *= 2
    rows = max(1, thresholds.block // lanes)
    return (max(1, min(-(-num_rows // rows), thresholds.max_blocks)), 1), (lanes, rows)
