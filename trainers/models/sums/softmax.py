"""Softmax over the edges of each destination, for layers with attention."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hoptrain.kernels.cpu.training import softmax as kernels
from hoptrain.samplers import Block
from hoptrain.trainers.models.sums.aggregate import aggregate
from hoptrain.trainers.models.sums.threads import share


def softmax_over_edges(block: Block, destination: Tensor, scores: Tensor, ignored: Tensor | None = None) -> Tensor:
    """Return the softmax (M, H) of ``scores`` (M, H) over the edges of each destination, for each head.

    The result is float32, or float64 for scores of float64.

    Args:
        block: the block, whose edges are sorted by destination.
        destination: destinations (M,) int64 of the edges.
        scores: the scores.
        ignored: mask (M,) of edges that get 0. If a destination has edges, one of them must not be ignored.
    """
    scores = scores if scores.dtype == torch.float64 else scores.float()
    if torch.compiler.is_compiling():
        return _composed(block, destination, scores, ignored)
    out: Tensor = _Softmax.apply(scores, block, destination, ignored)  # type: ignore[no-untyped-call]
    return out


class _Softmax(torch.autograd.Function):
    """An autograd function that keeps only its outputs."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, block: Block, destination: Tensor, ignored: Tensor | None) -> Tensor:
        if scores.is_cuda:
            out = _composed(block, destination, scores, ignored)
        else:
            scores = scores.contiguous()
            out = torch.empty_like(scores)
            _run(kernels.softmax, block, scores, ignored, out)
        ctx.save_for_backward(out, destination if scores.is_cuda else None)
        ctx.block = block
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (out, destination), gradient = ctx.saved_tensors, gradient.contiguous()
        if out.is_cuda:
            return _composed_gradient(ctx.block, destination, out, gradient), None, None, None
        by_scores = torch.empty_like(out)
        _run(kernels.softmax_gradient, ctx.block, out, gradient, by_scores)
        return by_scores, None, None, None


def _run(kernel: Any, block: Block, *given: Tensor | None) -> None:
    arrays = [None if each is None else each.detach().numpy() for each in (block.indptr, *given)]
    share(partial(kernel, *arrays), block.num_dst, given[0].numel())  # type: ignore[union-attr]  # the first array has the edges' numbers


def _composed(block: Block, destination: Tensor, scores: Tensor, ignored: Tensor | None) -> Tensor:
    scores = scores if ignored is None else scores.masked_fill(ignored[:, None], float("-inf"))
    with torch.no_grad():
        most = scores.new_zeros(block.num_dst, scores.shape[1])
        most = most.scatter_reduce(0, destination[:, None].expand_as(scores), scores, "amax", include_self=False)
    weights = (scores - most[destination]).exp()
    return weights / (_total(block, weights) + kernels.LEAST)[destination]


def _composed_gradient(block: Block, destination: Tensor, out: Tensor, gradient: Tensor) -> Tensor:
    shares = out * gradient
    return shares - out * _total(block, shares)[destination]


def _total(block: Block, values: Tensor) -> Tensor:
    """Return the sum (num_dst, H) of ``values`` (M, H) over the edges of each destination."""
    return aggregate(block, values.new_ones(block.num_src, values.shape[1]), values)
