"""Sums over a block's edges on the CPU, and their gradients. Each sum is added in a fixed order."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.training import sums as kernels
from hoptrain.samplers import Block
from hoptrain.samplers.batch.table_batch import TableRows
from hoptrain.samplers.batch.transfer import as_tensor
from hoptrain.trainers.models.sums.threads import share
from hoptrain.trainers.models.sums.transpose import transpose

CONSTANT = 8
"""Number of columns after the sums and the own rows of ``joined_on_host``: one of ones and the others of zeros, so that rows stay aligned."""


def sums_on_host(block: Block, x: Tensor | TableRows, weights: Tensor | None, *, mean: bool) -> tuple[Tensor, Tensor]:
    """Return the sums or means of the rows of ``x`` (num_src, C), float32 or float64, and the destinations' own rows, both (num_dst, C).

    ``weights`` (M,) have no gradient. The gradient of both results is computed in one pass.
    """
    if isinstance(x, TableRows):  # features have no gradient
        return _summed(block, x, _factors(x, weights), mean, False), as_tensor(x.first(block.num_dst))
    made: tuple[Tensor, Tensor] = _Sums.apply(x, _factors(x, weights), block, mean, False)  # type: ignore[no-untyped-call]
    return made


def joined_on_host(block: Block, x: Tensor | TableRows, weights: Tensor | None, *, mean: bool) -> Tensor:
    """Return the results of ``sums_on_host``, a column of ones and columns of zeros, side by side: (num_dst, 2 C + CONSTANT)."""
    if isinstance(x, TableRows):
        return _summed(block, x, _factors(x, weights), mean, True)
    made: Tensor = _Sums.apply(x, _factors(x, weights), block, mean, True)  # type: ignore[no-untyped-call]
    return made


def _factors(x: Tensor | TableRows, weights: Tensor | None) -> Tensor | None:
    return None if weights is None else weights.to(torch.float32 if isinstance(x, TableRows) else x.dtype)


class _Sums(torch.autograd.Function):
    """An autograd function for the sums and the destinations' own rows, with a gradient for ``x``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor | None, block: Block, mean: bool, joined: bool) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weights)
        ctx.block, ctx.mean, ctx.columns = block, mean, x.shape[1]
        out = _summed(block, x, weights, mean, joined)
        return out if joined else (out, x[: block.num_dst])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_sums: Tensor | None, of_own: Tensor | None = None) -> tuple[Tensor | None, None, None, None, None]:
        by_x = None
        if of_sums is not None:
            of_sums, joined = of_sums.contiguous(), of_sums.shape[1] > ctx.columns
            by_x = _by_x(ctx, of_sums, of_sums if joined else of_own, ctx.columns * joined)
        elif of_own is not None:
            by_x = of_own.new_zeros(ctx.block.num_src, ctx.columns)
            by_x[: len(of_own)] = of_own
        return by_x, None, None, None, None


def _summed(block: Block, x: Tensor | TableRows, weights: Tensor | None, mean: bool, joined: bool) -> Tensor:
    """Return the sums (num_dst, C), or the joined rows (num_dst, 2 C + CONSTANT)."""
    rows, ids = (x.table, x.ids) if isinstance(x, TableRows) else (x.detach().contiguous().numpy(), None)
    columns = rows.shape[1]
    out = torch.empty(
        block.num_dst, 2 * columns + CONSTANT if joined else columns, dtype=torch.float64 if rows.itemsize == 8 else torch.float32
    )
    edges = block.indptr.numpy(), block.indices.numpy(), _array(weights)
    work = partial(kernels.sum_rows, *edges, rows, ids, mean, joined, out.numpy())
    share(work, block.num_dst, block.num_edges * columns)
    return out


def _by_x(ctx: Any, of_sums: Tensor, of_own: Tensor | None, own_column: int) -> Tensor:
    """Return the gradient (num_src, C) of ``x``."""
    [weights], there = ctx.saved_tensors, transpose(ctx.block)
    factors = None if weights is None else weights[there.order]
    if ctx.mean:
        shares = (of_sums.new_tensor(1) / ctx.block.indptr.diff())[there.indices]
        factors = shares if factors is None else factors * shares
    by_x = of_sums.new_empty(ctx.block.num_src, ctx.columns)
    own = by_x[:0] if of_own is None else of_own.contiguous()
    edges = there.indptr.numpy(), there.indices.numpy(), _array(factors)
    work = partial(kernels.sum_gradients, *edges, of_sums.numpy(), own.numpy(), own_column, by_x.numpy())
    share(work, ctx.block.num_src, by_x.numel() + ctx.block.num_edges * ctx.columns)
    return by_x


def _array(factors: Tensor | None) -> Array | None:
    return None if factors is None else factors.contiguous().numpy()
