"""Sums of rows over the edges of a block, and their gradients. Each sum is added in the order of the edges."""

import numba
import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.prefetch import prefetch_many

_LEAD = 8
"""Prefetch distance, in edges."""
_MOST_ROWS = 64
"""Maximum number of rows that are prefetched for one destination, so that they stay in the second-level cache until they are added."""
_LONG_BYTES = 2048
"""Minimum bytes of a row for which the processor's own prefetching suffices: with 2,408 bytes, prefetch instructions cost more than they save."""
_LINE_BYTES = 64


@cpu_kernel
def sum_rows(indptr, indices, factors, x, ids, mean, with_own, out, first, last):
    """Write the sums of destinations [first, last) into the first C columns of ``out``.

    Args:
        indptr: offsets (num_dst + 1,) of the destinations' edges.
        indices: sources (M,) of the edges.
        factors: factors (M,) of the edges' rows, of the dtype of ``x``, or None.
        x: rows (num_src, C), float32 or float64; with ``ids``, a table (V, C).
        ids: rows (num_src,) of the table that are the sources' rows, or None.
        mean: divide each sum by its number of edges.
        with_own: also write the destination's own row into columns C to 2 C, 1 into column 2 C, and 0 into the others.
        out: output (num_dst, C), or (num_dst, at least 2 C + 1) with ``with_own``, of the dtype of ``x``.
        first: first destination.
        last: the destination after the last one.
    """
    columns, words, end_of_all = x.shape[1], x.reshape(-1), np.int64(indptr[last])
    for destination in range(first, last):
        begin, end = np.int64(indptr[destination]), np.int64(indptr[destination + 1])
        prefetch_ahead(indices, ids, words, columns, begin, end, end_of_all)
        sums = out[destination, :columns]
        _add_edges(indices, factors, x, ids, begin, end, sums)
        if mean and end > begin:
            number = x.dtype.type(end - begin)
            for column in range(columns):
                sums[column] /= number
        if with_own:
            own, row = out[destination, columns:], x[destination if ids is None else ids[destination]]
            for column in range(columns):
                own[column] = row[column]
            own[columns:] = 0
            own[columns] = 1


@cpu_kernel
def sum_gradients(indptr, indices, factors, of_sums, of_own, own_column, by_x, first, last):
    """Write the gradients of the rows of sources [first, last).

    Args:
        indptr: offsets (num_src + 1,) of the sources' edges.
        indices: destinations (M,) of the edges.
        factors: factors (M,) of the edges' gradients, of the dtype of ``by_x``, or None.
        of_sums: gradients of the destinations' sums, in the first C columns of (num_dst, at least C).
        of_own: gradients of the destinations' own rows, in C columns from ``own_column`` on; (0, C) for none.
        own_column: first column of ``of_own``.
        by_x: output (num_src, C).
        first: first source.
        last: the source after the last one.
    """
    for source in range(first, last):
        row = by_x[source]
        _add_edges(indices, factors, of_sums, None, indptr[source], indptr[source + 1], row)
        if source < len(of_own):
            own = of_own[source, own_column:]
            for column in range(len(row)):
                row[column] += own[column]


@numba.njit
def prefetch_ahead(indices, ids, words, columns, begin, end, end_of_all):
    """Prefetch the rows that the ``_LEAD``-th next edges read, seen from those of a destination.

    Args:
        indices: sources (M,) of the edges.
        ids: rows (num_src,) of the table that are the sources' rows, or None.
        words: all numbers of the rows, or of the table, as one array.
        columns: numbers in a row.
        begin: first edge of the destination.
        end: the edge after its last one.
        end_of_all: the first edge that must not be read.
    """
    if columns * words.itemsize >= _LONG_BYTES:
        return
    line = _LINE_BYTES // words.itemsize
    for edge in range(min(begin + _LEAD, end_of_all), min(end + _LEAD, begin + _MOST_ROWS, end_of_all)):
        first = np.int64(indices[edge] if ids is None else ids[indices[edge]]) * columns
        column = 0
        while column < columns:  # ``range`` would divide by ``line``
            prefetch_many(words, first + column)
            column += line
        prefetch_many(words, first + columns - 1)


@numba.njit
def _add_edges(indices, factors, rows, ids, begin, end, out):
    """Write the sum of the rows of edges [begin, end) into ``out`` (C,), which may be shorter than the rows.

    Four edges are added in one loop over the columns, so that the processor fetches four rows from memory at the same time.
    """
    out[:] = 0
    edge = begin
    while edge + 4 <= end:
        of_a, of_b, of_c, of_d = indices[edge], indices[edge + 1], indices[edge + 2], indices[edge + 3]
        if ids is not None:
            of_a, of_b, of_c, of_d = ids[of_a], ids[of_b], ids[of_c], ids[of_d]
        a, b, c, d = rows[of_a], rows[of_b], rows[of_c], rows[of_d]
        if factors is not None:
            f, g, h, i = factors[edge], factors[edge + 1], factors[edge + 2], factors[edge + 3]
            for column in range(len(out)):
                out[column] = (((out[column] + f * a[column]) + g * b[column]) + h * c[column]) + i * d[column]
        else:
            for column in range(len(out)):
                out[column] = (((out[column] + a[column]) + b[column]) + c[column]) + d[column]
        edge += 4
    while edge < end:
        a = rows[indices[edge] if ids is None else ids[indices[edge]]]
        factor = rows.dtype.type(1) if factors is None else factors[edge]
        for column in range(len(out)):
            out[column] += factor * a[column]
        edge += 1
