"""Sums of rows over the edges of a block with weights of several heads, and the gradients of the weights."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.training.sums import prefetch_ahead


@cpu_kernel
def sum_weighted_rows(indptr, indices, weights, x, out, first, last):
    """Write the weighted sums of destinations [first, last), each added in the order of its edges.

    Args:
        indptr: offsets (num_dst + 1,) of the destinations' edges.
        indices: sources (M,) of the edges.
        weights: weights (M, H) of the edges. Head h has columns [h C / H, (h + 1) C / H).
        x: rows (num_src, C), of the dtype of the weights.
        out: output (num_dst, C).
        first: first destination.
        last: the destination after the last one.
    """
    heads = weights.shape[1]
    width, words, end_of_all = x.shape[1] // heads, x.reshape(-1), np.int64(indptr[last])
    for destination in range(first, last):
        begin, end = np.int64(indptr[destination]), np.int64(indptr[destination + 1])
        prefetch_ahead(indices, None, words, x.shape[1], begin, end, end_of_all)
        out[destination] = 0
        for edge in places(indptr[destination], indptr[destination + 1]):
            source = unsigned(indices[edge])
            for head in range(heads):
                weight, columns = weights[edge, head], slice(head * width, (head + 1) * width)
                sums, row = out[destination, columns], x[source, columns]
                for column in range(width):
                    sums[column] += weight * row[column]


@cpu_kernel(reorders=True)
def dot_edges(indptr, indices, x, gradient, by_weights, first, last):
    """Write the gradients of the weights of the edges to destinations [first, last): the products of the edges' rows with the sums' gradients.

    Args:
        indptr: offsets (num_dst + 1,) of the destinations' edges.
        indices: sources (M,) of the edges.
        x: rows (num_src, C).
        gradient: gradients (num_dst, C) of the sums.
        by_weights: output (M, H).
        first: first destination.
        last: the destination after the last one.
    """
    heads = by_weights.shape[1]
    width, words, end_of_all = x.shape[1] // heads, x.reshape(-1), np.int64(indptr[last])
    for destination in range(first, last):
        begin, end = np.int64(indptr[destination]), np.int64(indptr[destination + 1])
        prefetch_ahead(indices, None, words, x.shape[1], begin, end, end_of_all)
        for edge in places(indptr[destination], indptr[destination + 1]):
            source = unsigned(indices[edge])
            for head in range(heads):
                columns = slice(head * width, (head + 1) * width)
                sums, row = gradient[destination, columns], x[source, columns]
                dot = x.dtype.type(0)
                for column in range(width):
                    dot += sums[column] * row[column]
                by_weights[edge, head] = dot
