"""Softmax over the edges of each destination, and its gradient."""

import math

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places

LEAST = 1e-16
"""Number that ``softmax`` adds to each sum, as PyG does, so that it never divides by zero."""


@cpu_kernel
def softmax(indptr, scores, ignored, out, first, last):
    """Compute the softmax over each destination's edges, for destinations [first, last).

    Args:
        indptr: offsets (num_dst + 1,) of the destinations' edges.
        scores: scores (M, H) of the edges.
        ignored: mask (M,) of edges that get 0, or None.
        out: output (M, H).
        first: first destination.
        last: the destination after the last one.
    """
    number = scores.dtype.type
    for destination in range(first, last):
        for head in range(scores.shape[1]):
            largest, total = number(-math.inf), number(LEAST)
            for edge in places(indptr[destination], indptr[destination + 1]):
                if not (False if ignored is None else ignored[edge]):
                    largest = max(largest, scores[edge, head])
            for edge in places(indptr[destination], indptr[destination + 1]):
                is_ignored = False if ignored is None else ignored[edge]
                out[edge, head] = number(0) if is_ignored else math.exp(scores[edge, head] - largest)
                total += out[edge, head]
            for edge in places(indptr[destination], indptr[destination + 1]):
                out[edge, head] /= total


@cpu_kernel
def softmax_gradient(indptr, out, gradient, by_scores, first, last):
    """Compute the gradients of the scores of the edges to destinations [first, last).

    Args:
        indptr: offsets (num_dst + 1,) of the destinations' edges.
        out: outputs (M, H) of ``softmax``.
        gradient: gradients (M, H) of ``out``.
        by_scores: output (M, H).
        first: first destination.
        last: the destination after the last one.
    """
    for destination in range(first, last):
        for head in range(out.shape[1]):
            total = out.dtype.type(0)
            for edge in places(indptr[destination], indptr[destination + 1]):
                total += out[edge, head] * gradient[edge, head]
            for edge in places(indptr[destination], indptr[destination + 1]):
                by_scores[edge, head] = out[edge, head] * (gradient[edge, head] - total)
