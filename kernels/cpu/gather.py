"""Rows of a feature store into a buffer that the caller provides."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch_many
from hoptrain.kernels.cpu.stream import LINE_WORDS, finish_stores, store_line
from hoptrain.kernels.shared import inlined

_GROUP_BYTES = 16 << 10
"""Of rows that are copied without a pause, while the next ones are on their way: both lie in the caches."""
_LINE_BYTES = 64


@cpu_kernel
def gather_rows(store, ids, first, last, out):
    """``out[i] = store[ids[i]]`` for i in [first, last).

    ``store`` (V, W) and ``out`` (N, W) are rows of words (features of any dtype, viewed as unsigned integers), each C-contiguous.
    """
    group = _group(store)
    _ask_for_rows(store, ids, first, min(first + group, last), _LINE_BYTES // store.itemsize)
    for begin in range(first, last, group):
        end = min(begin + group, last)
        _ask_for_rows(store, ids, end, min(end + group, last), _LINE_BYTES // store.itemsize)
        for i in places(begin, end):
            row, copy = store[unsigned(ids[i])], out[i]
            for k in range(len(row)):
                copy[k] = row[k]


@cpu_kernel
def gather_rows_past_caches(store, ids, first, last, out):
    """The same of words of 64 bits, for copies larger than the caches, which would only push out what is of use there.

    Rows are put one after another into a stretch of memory that stays in the first-level cache, and leave it by whole lines: word k of the
    stretch becomes word ``line + k`` of ``out``, where a line begins.
    """
    width, group = store.shape[1], _group(store)
    words, stretch, copies = store.reshape(-1), np.empty(group * width + LINE_WORDS, np.uint64), out.reshape(-1)
    begun = (first * width + np.int64(out.ctypes.data) // 8) % LINE_WORDS  # of the first line, words that are others'
    line, filled = first * width - begun, begun
    _ask_for_rows(store, ids, first, min(first + group, last), LINE_WORDS)
    for begin in range(first, last, group):
        end = min(begin + group, last)
        _ask_for_rows(store, ids, end, min(end + group, last), LINE_WORDS)
        for i in places(begin, end):
            row, place = unsigned(np.int64(ids[i]) * width), unsigned(filled)
            for k in places(0, width):
                stretch[place + k] = words[row + k]
            filled += width
        whole = filled - filled % LINE_WORDS
        if whole == 0:
            continue
        for k in range(begun, LINE_WORDS if begun else 0):
            copies[line + k] = stretch[k]
        for k in range(LINE_WORDS if begun else 0, whole, LINE_WORDS):
            store_line(copies, line + k, stretch, k)
        line, filled, begun = line + whole, filled - whole, 0
        for k in range(filled):
            stretch[k] = stretch[whole + k]
    for k in range(begun, filled):
        copies[line + k] = stretch[k]
    finish_stores()


@cpu_kernel
def _group(store):
    """How many rows are asked for at once."""
    return max(1, _GROUP_BYTES // max(1, store.shape[1] * store.itemsize))


@inlined
def _ask_for_rows(store, ids, first, last, line_words):
    """Each cache line, of ``line_words`` words."""
    width, words = store.shape[1], store.reshape(-1)
    for i in range(first, last):
        row = np.int64(ids[i]) * width
        for k in range(0, width, line_words):
            prefetch_many(words, row + k)
        prefetch_many(words, row + width - 1)
