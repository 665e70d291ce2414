"""Sums over a block's edges on the CPU, and their gradients, by torch's sparse product. Each sum is added in a fixed order."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hoptrain.samplers import Block
from hoptrain.trainers.models.sums.transpose import transpose


def sums_on_host(block: Block, x: Tensor, weights: Tensor | None, *, mean: bool) -> tuple[Tensor, Tensor]:
    """Return the sums or means of the rows of ``x`` (num_src, C), float32 or float64, and the destinations' own rows, both (num_dst, C).

    ``weights`` (M,) have no gradient. The gradient of both results is computed in one buffer, which torch's slicing would fill and add up three times.
    """
    made: tuple[Tensor, Tensor] = _Sums.apply(x, None if weights is None else weights.to(x.dtype), block, mean)  # type: ignore[no-untyped-call]
    return made


class _Sums(torch.autograd.Function):
    """An autograd function for the sums and the destinations' own rows, with a gradient for ``x``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor | None, block: Block, mean: bool) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weights)
        ctx.block, ctx.mean = block, mean
        sums = _product(block.indptr, block.indices, weights, x, mean)
        return sums, x[: block.num_dst]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_sums: Tensor | None, of_own: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        by_x = _by_sums(ctx, of_sums) if of_sums is not None else None
        if of_own is not None:
            by_x = of_own.new_zeros(ctx.block.num_src, of_own.shape[1]) if by_x is None else by_x
            by_x[: len(of_own)] += of_own
        return by_x, None, None, None


def _by_sums(ctx: Any, of_sums: Tensor) -> Tensor:
    """Return the gradient (num_src, C) of ``x`` by way of the sums."""
    [weights], there = ctx.saved_tensors, transpose(ctx.block)
    by_edge = None if weights is None else weights[there.order]
    if ctx.mean:
        shares = (of_sums.new_tensor(1) / ctx.block.indptr.diff())[there.indices]
        by_edge = shares if by_edge is None else by_edge * shares
    return _product(there.indptr, there.indices, by_edge, of_sums, mean=False)


def _product(indptr: Tensor, indices: Tensor, weights: Tensor | None, x: Tensor, mean: bool) -> Tensor:
    """Return the sum or mean of the rows of ``x`` for each group of edges, times their ``weights``."""
    with torch.autocast("cpu", enabled=False), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")  # torch 2.11 warns despite the option
        values = x.new_ones(len(indices)) if weights is None else weights
        edges = torch.sparse_csr_tensor(indptr, indices, values, (len(indptr) - 1, len(x)), check_invariants=False)
        out: Tensor = torch.sparse.mm(edges, x, "mean" if mean else "sum")
        return out
