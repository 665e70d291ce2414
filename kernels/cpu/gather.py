"""Gathering rows of a feature store into a buffer of the caller."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch_many
from hoptrain.kernels.cpu.stream import LINE_WORDS, copy_words, finish_stores, store_line
from hoptrain.kernels.shared import inlined

_LEAD_BYTES = 8 << 10
"""Prefetch distance, as the total size in bytes of the rows in between."""
_LINE_BYTES = 64
_FEW = 8
"""Maximum row width, in words, for which a loop copies faster than a call of ``memcpy``."""


@cpu_kernel
def gather_rows(store, ids, first, last, out):
    """Copy ``store[ids[i]]`` to ``out[i]`` for i in [first, last).

    ``store`` (V, W) and ``out`` (N, W) are C-contiguous rows of words: features of any dtype, viewed as unsigned integers.
    """
    width, lead, line_words = store.shape[1], _rows_in(_LEAD_BYTES, store), _LINE_BYTES // store.itemsize
    words, copies = store.reshape(-1), out.reshape(-1)
    _ask_for_rows(words, ids, first, min(first + lead, last), width, line_words)
    for i in range(first, last):
        _ask_for_row(words, ids[min(i + lead, last - 1)], width, line_words)
        _copy_row(words, ids[i], copies, i * width, width)


@cpu_kernel
def gather_rows_of_two(store, other, ids, first, last, out):
    """Copy ``store[ids[i]]``, or ``other[-1 - ids[i]]`` for negative ids, to ``out[i]`` for i in [first, last). Arrays are as in ``gather_rows``."""
    width, lead, line_words = store.shape[1], _rows_in(_LEAD_BYTES, store), _LINE_BYTES // store.itemsize
    words, others, copies = store.reshape(-1), other.reshape(-1), out.reshape(-1)
    for i in range(first - lead if first < last else last, last):
        ahead = ids[min(i + lead, last - 1)]
        if ahead >= 0:
            _ask_for_row(words, ahead, width, line_words)
        else:
            _ask_for_row(others, -1 - ahead, width, line_words)
        if i >= first and ids[i] >= 0:
            _copy_row(words, ids[i], copies, i * width, width)
        elif i >= first:
            _copy_row(others, -1 - ids[i], copies, i * width, width)


@cpu_kernel
def gather_rows_past_caches(store, ids, first, last, out):
    """Copy rows as ``gather_rows`` does, by non-temporal stores: for copies larger than the caches, which would evict useful data. Words have 64 bits.

    Whole cache lines of ``out`` are stored directly; a line that two rows share is assembled first.
    """
    width, lead = store.shape[1], _rows_in(_LEAD_BYTES, store)
    words, meeting, copies = store.reshape(-1), np.empty(LINE_WORDS, np.uint64), out.reshape(-1)
    # words of the first cache line before row ``first``, not written
    others = (first * width + np.int64(out.ctypes.data) // 8) % LINE_WORDS
    line, filled = first * width - others, others
    _ask_for_rows(words, ids, first, min(first + lead, last), width, LINE_WORDS)
    for i in range(first, last):
        _ask_for_row(words, ids[min(i + lead, last - 1)], width, LINE_WORDS)
        place = np.int64(ids[i]) * width
        end = place + width
        while place < end:
            if filled == 0 and place + LINE_WORDS <= end:
                store_line(copies, line, words, place)
                place, line = place + LINE_WORDS, line + LINE_WORDS
                continue
            number = min(LINE_WORDS - filled, end - place)
            for k in places(0, number):
                meeting[unsigned(filled) + k] = words[unsigned(place) + k]
            place, filled = place + number, filled + number
            if filled == LINE_WORDS and others == 0:
                store_line(copies, line, meeting, 0)
            elif filled == LINE_WORDS:
                for k in range(others, LINE_WORDS):
                    copies[line + k] = meeting[k]
            if filled == LINE_WORDS:
                line, filled, others = line + LINE_WORDS, 0, 0
    for k in range(others, filled):
        copies[line + k] = meeting[k]
    finish_stores()


@cpu_kernel
def _rows_in(num_bytes, store):
    """Return the number of rows that fit in ``num_bytes`` bytes, at least 1."""
    return max(1, num_bytes // max(1, store.shape[1] * store.itemsize))


@inlined
def _copy_row(words, row, copies, place, width):
    """Copy the row with index ``row`` of ``words`` to ``copies[place:]``."""
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
    """Prefetch every cache line (of ``line_words`` words) of a row."""
    begin = np.int64(row) * width
    for k in range(0, width, line_words):
        prefetch_many(words, begin + k)
    prefetch_many(words, begin + width - 1)
