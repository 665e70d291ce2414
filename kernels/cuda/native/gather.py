"""Rows by node from device, peer and pinned host memory, in one launch of ``gather.cu``."""

import importlib
from functools import lru_cache

import numpy as np

from hoptrain.kernels.cuda.native import kernel_of, pointer

WORDS = (16, 8, 4, 2, 1)
"""Bytes of a word; a word of 16 is one load."""
LINE_BYTES = 128
"""Of a request to host memory (Min et al., Large Graph Convolutional Network Training with GPU-Oriented Data Communication Architecture, VLDB 2021)."""
MAX_LANES = 32


def placed_gather(rows, upload, *, pinned, parts=(), where=None):
    """A function ``gather(launch, ids, out)`` for a table: ``out[i] = row of ids[i]``, bit for bit.

    Args:
        rows: (V, W), the whole table, in device memory or in pinned host memory that the device reads.
        upload: makes a device array of NumPy's; it stays as long as the function.
        pinned: whether ``rows`` is host memory: then its lines are asked for whole.
        parts: device arrays, also of peers, of rows of the same type as ``rows``.
        where: (V,) int32 on the device, with ``parts``: negative if the row is read in ``rows``, else a slot: row ``slot // len(parts)`` of
            part ``slot % len(parts)``.

    Returns:
        A function; its ``ids`` (N,) are int32 or int64, of nodes, not checked, and ``out`` (N, ...) takes N rows. Both are contiguous, on
        the device. It queues one launch, and allocates nothing.
    """
    tables = (*parts, rows)
    places = [pointer(table) for table in tables]
    bases = upload(np.array(places, np.uint64))
    row_bytes = rows.shape[1] * rows.dtype.itemsize
    aligned = row_bytes | int(np.bitwise_or.reduce(places))
    in_lines = pinned and (row_bytes | places[-1]) % LINE_BYTES != 0  # else they are read so anyway

    def gather(launch, ids, out):
        target = pointer(out)
        word = next(word for word in WORDS if (aligned | target) % word == 0)
        kernel = kernel_of("gather", f"gather_placed_{word}_int{8 * ids.dtype.itemsize}")
        width, line = row_bytes // word, LINE_BYTES // word if in_lines else 1
        grid, block = shape(launch.thresholds, len(ids), width + line - 1)
        at = pointer(where) if where is not None else 0
        with cupy_stream(int(launch.stream)):
            kernel(grid, block, (target, pointer(ids), at, pointer(bases), len(ids), len(tables) - 1, width, line))

    return gather


@lru_cache(maxsize=16)
def cupy_stream(handle):
    """Return CuPy's object for a stream of another library's, by its address; made once. That of CUDA's default stream is 0."""
    streams = importlib.import_module("cupy").cuda.Stream
    return streams.from_external(_Stream(handle)) if handle else streams.null


class _Stream:
    """A stream as the protocol between CUDA libraries has it."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle  # the protocol's version, the address


def shape(thresholds, num_rows, width):
    """(grid, block) for rows of so many words: two words a thread, up to a warp along a row."""
    lanes = 1
    while lanes < MAX_LANES and 2 * lanes < width:
        lanes *= 2
    rows = max(1, thresholds.block // lanes)
    return (max(1, min(-(-num_rows // rows), thresholds.max_blocks)),), (lanes, rows)
