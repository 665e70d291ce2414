"""Rows of a feature store into a buffer that the caller provides."""

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch_many
from hoptrain.kernels.cpu.stream import finish_stores, store_past_caches

_GROUP_BYTES = 16 << 10
"""Of rows that are copied without a pause, while the next ones are on their way: both lie in the caches, and few lines are left half written."""
_LINE_BYTES = 64


@cpu_kernel
def gather_rows(store, ids, first, last, out, past_caches):
    """``out[i] = store[ids[i]]`` for i in [first, last).

    ``store`` (V, W) and ``out`` (N, W) are rows of words (features of any dtype, viewed as unsigned integers), each C-contiguous.
    ``past_caches``: for copies larger than the caches, which would only push out what is of use there.
    """
    group = max(1, _GROUP_BYTES // max(1, store.shape[1] * store.itemsize))
    _ask_for_rows(store, ids, first, min(first + group, last))
    for begin in range(first, last, group):
        end = min(begin + group, last)
        _ask_for_rows(store, ids, end, min(end + group, last))
        if past_caches:
            _copy_past_caches(store, ids, begin, end, out)
        else:
            _copy(store, ids, begin, end, out)
    finish_stores()


@cpu_kernel
def _ask_for_rows(store, ids, first, last):
    step = _LINE_BYTES // store.itemsize
    for i in places(first, last):
        row = store[unsigned(ids[i])]
        for k in range(0, len(row), step):
            prefetch_many(row, k)
        prefetch_many(row, len(row) - 1)


@cpu_kernel
def _copy(store, ids, first, last, out):
    for i in places(first, last):
        row, copy = store[unsigned(ids[i])], out[i]
        for k in range(len(row)):
            copy[k] = row[k]


@cpu_kernel
def _copy_past_caches(store, ids, first, last, out):
    for i in places(first, last):
        row, copy = store[unsigned(ids[i])], out[i]
        for k in range(len(row)):
            store_past_caches(copy, k, row[k])
