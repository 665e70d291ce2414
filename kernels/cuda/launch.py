"""Launch configuration of a bulk's kernels: the stream and the number of blocks."""

from dataclasses import dataclass
from typing import Any

from hoptrain.kernels.cuda.thresholds import Thresholds

MAX_BATCHES = 65535
"""Maximum number of batches of a bulk: each has a y coordinate of the grid, which CUDA limits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """A launcher of kernels for a bulk of K batches on a stream.

    The host does not know the true sizes, so grids are sized by capacities. A thread processes every (size of the grid)-th item, up to the true size,
    which it reads from device memory.
    """

    stream: Any
    thresholds: Thresholds
    num_batches: int

    def rows(self, kernel, capacity, *args, shared_bytes=0):
        """Launch blocks (x, batch) whose threads share the up to ``capacity`` items of each batch, one thread for each item."""
        self.block_each(kernel, -(-capacity // self.thresholds.block), *args, shared_bytes=shared_bytes)

    def blocks_for(self, capacity):
        """Return the number of blocks that ``block_each`` launches for each batch."""
        return max(1, min(capacity, -(-self.thresholds.max_blocks // self.num_batches)))

    def block_each(self, kernel, capacity, *args, shared_bytes=0):
        """Launch blocks (x, batch) that share the up to ``capacity`` items of each batch, one block for each item."""
        kernel[(self.blocks_for(capacity), self.num_batches), self.thresholds.block, self.stream, shared_bytes](*args)

    def batch_by_batch(self, kernel, capacity, *args, shared_bytes=0):
        """Launch as ``rows`` does, with enough blocks for each batch to fill the device, so that its data stays in the second-level cache.

        This assumes that blocks start in the order of their numbers, which CUDA does not guarantee; only the speed depends on it.
        """
        blocks = max(1, min(-(-capacity // self.thresholds.block), self.thresholds.resident_blocks))
        kernel[(blocks, self.num_batches), self.thresholds.block, self.stream, shared_bytes](*args)

    def one_block_each(self, kernel, *args, shared_bytes=0):
        """Launch one block for each batch."""
        kernel[(1, self.num_batches), self.thresholds.block, self.stream, shared_bytes](*args)

    def flat(self, kernel, capacity, *args, shared_bytes=0):
        """Launch blocks (x,) whose threads share up to ``capacity`` items of all batches together."""
        block = self.thresholds.block
        kernel[max(1, min(-(-capacity // block), self.thresholds.max_blocks)), block, self.stream, shared_bytes](*args)
