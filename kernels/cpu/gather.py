"""Rows of a feature store into a buffer that the caller provides."""

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.prefetch import prefetch

_AHEAD = 8
_LINE_BYTES = 64


@cpu_kernel
def gather_rows(store, ids, first, last, out):
    """``out[i] = store[ids[i]]`` for i in [first, last).

    ``store`` (V, W) and ``out`` (N, W) are rows of words (features of any dtype, viewed as unsigned integers), each C-contiguous.
    Rows are read at random: the next ones are asked for while one is copied.
    """
    width = store.shape[1]
    step = _LINE_BYTES // store.itemsize
    for i in range(first, min(first + _AHEAD, last)):
        _ask_for_row(store, ids[i], width, step)
    for i in range(first, last):
        if i + _AHEAD < last:
            _ask_for_row(store, ids[i + _AHEAD], width, step)
        row = store[ids[i]]
        copy = out[i]
        for k in range(width):
            copy[k] = row[k]


@cpu_kernel
def _ask_for_row(store, row, width, step):
    values = store[row]
    for k in range(0, width, step):
        prefetch(values, k)
    prefetch(values, width - 1)
