"""Gathering feature rows from this GPU's memory, other GPUs' memory and pinned host memory in one launch of ``gather.cu``."""

import importlib
from functools import lru_cache

import numpy as np

from hoptrain.kernels.cuda.native import kernel_of, pointer

WORDS = (16, 8, 4, 2, 1)
"""Sizes in bytes of the units in which kernels copy rows; a unit of 16 bytes is one load."""
LINE_BYTES = 128
"""Bytes that a GPU reads from host memory at once (Min et al., Large Graph Convolutional Network Training with GPU-Oriented Data
Communication Architecture, VLDB 2021)."""
MAX_LANES = 32


def placed_gather(rows, upload, *, pinned, parts=(), where=None):
    """Return a function ``gather(launch, ids, out)`` that copies the row of node ``ids[i]`` to ``out[i]``.

    Args:
        rows: (V, W) all rows, in device memory or in pinned host memory that the device can read.
        upload: Function that copies a NumPy array to the device. The copy is kept as long as the returned function.
        pinned: Whether ``rows`` is in host memory, which is read in whole lines.
        parts: Device arrays, also of peer devices, with some of the rows, of the same type as ``rows``.
        where: (V,) int32 on the device, given with ``parts``. Negative if the row is only in ``rows``, otherwise a slot: the row is
            ``slot // len(parts)`` of part ``slot % len(parts)``.

    Returns:
        A function whose ``ids`` (N,) are int32 or int64 node ids, which are not checked, and whose ``out`` (N, ...) receives N rows. Both are
        contiguous and on the device. It queues one launch, and allocates nothing.
    """
    tables = (*parts, rows)
    places = [pointer(table) for table in tables]
    bases = upload(np.array(places, np.uint64))
    row_bytes = rows.shape[1] * rows.dtype.itemsize
    aligned = row_bytes | int(np.bitwise_or.reduce(places))
    in_lines = pinned and (row_bytes | places[-1]) % LINE_BYTES != 0  # aligned rows are read in whole lines anyway

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
    """Return CuPy's stream object for another library's stream, given by its address; 0 is CUDA's default stream."""
    streams = importlib.import_module("cupy").cuda.Stream
    return streams.from_external(_Stream(handle)) if handle else streams.null


class _Stream:
    """A CUDA stream with the interface of the ``__cuda_stream__`` protocol."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle  # version of the __cuda_stream__ protocol, and address of the stream


def shape(thresholds, num_rows, width):
    """Return (grid, block) for ``num_rows`` rows of ``width`` words: two words for each thread, and up to a warp along a row."""
    lanes = 1
    while lanes < MAX_LANES and 2 * lanes < width:
        lanes *= 2
    rows = max(1, thresholds.block // lanes)
    return (max(1, min(-(-num_rows // rows), thresholds.max_blocks)),), (lanes, rows)
