"""How a bulk's kernels are launched: which stream, how many blocks."""

from dataclasses import dataclass
from typing import Any

from hoptrain.kernels.cuda.thresholds import Thresholds

MAX_BATCHES = 65535
"""Batches of a bulk: one each in the y direction of the grid, whose extent CUDA limits to this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """A bulk of K batches on its way through a stream.

    Capacities size the grids, since the host does not know the true sizes: a thread takes every (size of the grid)-th item and ends where
    the size in device memory says so.
    """

    stream: Any
    thresholds: Thresholds
    num_batches: int

    def rows(self, kernel, capacity, *args, shared_bytes=0):
        """Blocks (x, batch): those of a batch share its up to ``capacity`` items."""
        self.block_each(kernel, -(-capacity // self.thresholds.block), *args, shared_bytes=shared_bytes)

    def blocks_for(self, capacity):
        """Blocks of a batch that ``block_each`` launches."""
        return max(1, min(capacity, -(-self.thresholds.max_blocks // self.num_batches)))

    def block_each(self, kernel, capacity, *args, shared_bytes=0):
        """Blocks (x, batch): those of a batch share its up to ``capacity`` items, a block at a time for each."""
        kernel[(self.blocks_for(capacity), self.num_batches), self.thresholds.block, self.stream, shared_bytes](*args)

    def batch_by_batch(self, kernel, capacity, *args, shared_bytes=0):
        """As ``rows``, but with so many blocks for a batch that they fill the device: what they read of it stays in the second-level cache.

        Blocks are started in the order of their numbers, as far as is known; only speed depends on it.
        """
        blocks = max(1, min(-(-capacity // self.thresholds.block), self.thresholds.resident_blocks))
        kernel[(blocks, self.num_batches), self.thresholds.block, self.stream, shared_bytes](*args)

    def one_block_each(self, kernel, *args, shared_bytes=0):
        """One block a batch."""
        kernel[(1, self.num_batches), self.thresholds.block, self.stream, shared_bytes](*args)

    def flat(self, kernel, capacity, *args, shared_bytes=0):
        """Blocks (x,) over up to ``capacity`` items of all batches together."""
        block = self.thresholds.block
        kernel[max(1, min(-(-capacity // block), self.thresholds.max_blocks)), block, self.stream, shared_bytes](*args)
