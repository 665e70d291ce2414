"""Sums over a block's edges on the CPU with weights of several heads or with a gradient, such as those of attention."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hoptrain.kernels.cpu.training import weighted_sums as kernels
from hoptrain.samplers import Block
from hoptrain.trainers.models.sums.threads import share
from hoptrain.trainers.models.sums.transpose import transpose


def weighted_sums_on_host(block: Block, x: Tensor, weights: Tensor) -> Tensor:
    """Return the sums (num_dst, C) of the rows of ``x`` (num_src, C), float32 or float64, times ``weights`` (M,) or (M, H).

    No row is stored for an edge. ``x`` and ``weights`` have gradients.

    Raises:
        ValueError: ``x`` does not have a row for each source, or its columns cannot be divided among the heads.
    """
    weights = (weights if weights.dim() == 2 else weights[:, None]).to(x.dtype)
    if len(x) != block.num_src or x.shape[1] % weights.shape[1]:
        raise ValueError(
            f"x is {tuple(x.shape)}: it must have {block.num_src} rows, one per source, and a number of columns divisible by the number of "
            f"heads, {weights.shape[1]}"
        )
    out: Tensor = _Sums.apply(x, weights, block)  # type: ignore[no-untyped-call]
    return out


class _Sums(torch.autograd.Function):
    """An autograd function for the sums, with gradients for rows and weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, block: Block) -> Tensor:
        x, weights = x.contiguous(), weights.contiguous()
        needs_x, needs_weights = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if needs_weights else None, weights if needs_x else None)
        ctx.block, ctx.heads = block, weights.shape[1]
        return _add(block.indptr, block.indices, weights, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (x, weights), gradient, block = ctx.saved_tensors, gradient.contiguous(), ctx.block
        by_x = by_weights = None
        if ctx.needs_input_grad[0]:
            there = transpose(block)
            by_x = _add(there.indptr, there.indices, weights[there.order], gradient)
        if ctx.needs_input_grad[1]:
            by_weights = gradient.new_empty(block.num_edges, ctx.heads)
            _run(kernels.dot_edges, block.indptr, block.indices, x, gradient, by_weights)
        return by_x, by_weights, None


def _add(indptr: Tensor, indices: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
    out = rows.new_empty(len(indptr) - 1, rows.shape[1])
    _run(kernels.sum_weighted_rows, indptr, indices, weights, rows, out)
    return out


def _run(kernel: Any, *arrays: Tensor) -> None:
    """Run a kernel, whose first arrays are offsets and indices and whose fourth is a matrix, for all destinations."""
    indptr, indices, _, rows, *_ = arrays
    share(partial(kernel, *(array.detach().numpy() for array in arrays)), len(indptr) - 1, len(indices) * rows.shape[1])
