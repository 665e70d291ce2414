"""Rows of a feature store into a buffer that the caller provides."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch_many
from hoptrain.kernels.cpu.stream import LINE_WORDS, copy_words, finish_stores, store_line
from hoptrain.kernels.shared import inlined

_LEAD_BYTES = 8 << 10
"""Of rows that are on their way while one is copied."""
_STRETCH_BYTES = 16 << 10
"""Of rows that leave the caches together."""
_LINE_BYTES = 64
_FEW = 8
"""Words up to which a loop copies a row in less time than it takes to call ``memcpy``."""


@cpu_kernel
def gather_rows(store, ids, first, last, out):
    """``out[i] = store[ids[i]]`` for i in [first, last).

    ``store`` (V, W) and ``out`` (N, W) are rows of words (features of any dtype, viewed as unsigned integers), each C-contiguous.
    """
    width, lead, line_words = store.shape[1], _rows_in(_LEAD_BYTES, store), _LINE_BYTES // store.itemsize
    words, copies = store.reshape(-1), out.reshape(-1)
    _ask_for_rows(words, ids, first, min(first + lead, last), width, line_words)
    for i in range(first, last):
        _ask_for_row(words, ids[min(i + lead, last - 1)], width, line_words)
        _copy_row(words, ids[i], copies, i * width, width)


@cpu_kernel
def gather_rows_past_caches(store, ids, first, last, out):
    """The same of words of 64 bits, for copies larger than the caches, which would only push out what is of use there.

    Rows are put one after another into a stretch of memory that stays in the first-level cache, and leave it by whole lines: word k of the
    stretch becomes word ``line + k`` of ``out``, where a line begins.
    """
    width, lead, group = store.shape[1], _rows_in(_LEAD_BYTES, store), _rows_in(_STRETCH_BYTES, store)
    words, stretch, copies = store.reshape(-1), np.empty(group * width + LINE_WORDS, np.uint64), out.reshape(-1)
    begun = (first * width + np.int64(out.ctypes.data) // 8) % LINE_WORDS  # of the first line, words that are others'
    line, filled = first * width - begun, begun
    _ask_for_rows(words, ids, first, min(first + lead, last), width, LINE_WORDS)
    for begin in range(first, last, group):
        for i in range(begin, min(begin + group, last)):
            _ask_for_row(words, ids[min(i + lead, last - 1)], width, LINE_WORDS)
            _copy_row(words, ids[i], stretch, filled, width)
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
def _rows_in(num_bytes, store):
    """How many rows these are, at least one."""
    return max(1, num_bytes // max(1, store.shape[1] * store.itemsize))


@inlined
def _copy_row(words, row, copies, place, width):
    """Row number ``row`` of ``words``, to ``copies[place:]``."""
    begin = np.int64(row) * width
    if width > _FEW:
        copy_words(copies, place, words, begin, width)
    else:
        for k in places(0, width):
            copies[unsigned(place) + k] = words[unsigned(begin) + k]


@inlined
def _ask_for_rows(words, ids, first, last, width, line_words):
    for i in range(first, last):
        _ask_for_row(words, ids[i], width, line_words)


@inlined
def _ask_for_row(words, row, width, line_words):
    """Each cache line, of ``line_words`` words."""
    begin = np.int64(row) * width
    for k in range(0, width, line_words):
        prefetch_many(words, begin + k)
    prefetch_many(words, begin + width - 1)
