"""Lookup of rows by index, with a gradient that is bit-identical in every run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hoptrain.samplers import Block
from hoptrain.trainers.models.sums.aggregate import aggregate
from hoptrain.trainers.models.sums.transpose import transpose


def lookup(x: Tensor, index: Tensor) -> Tensor:
    """Return ``x[index]`` for rows ``x`` (N, C) and an integer index of any shape (...): (..., C).

    The gradient of a row is added in the order of the index. On a CPU, the gradient of ``x[index]`` is not: torch adds the values of large float32
    results in several threads by atomic operations, in another order in each run. On a GPU it is the gradient of ``index_select`` that is atomic.
    """
    if x.is_cuda or torch.compiler.is_compiling():
        return x[index.long()]
    return x.index_select(0, index.flatten()).view(*index.shape, x.shape[1])


def lookup_of_edges(block: Block, x: Tensor, index: Tensor, *, by_source: bool) -> Tensor:
    """Return the rows (M, C) of the edges' sources or destinations.

    The gradient is that of ``lookup``. On a GPU, ``aggregate`` adds it, while torch would sort the index.

    Args:
        block: the block.
        x: rows (num_src, C) of all sources, or rows (num_dst, C) of all destinations.
        index: sources or destinations (M,) int64 of the edges.
        by_source: whether rows and index are those of the sources.
    """
    if not x.is_cuda or torch.compiler.is_compiling():
        return lookup(x, index)
    out: Tensor = _LookupOfEdges.apply(x, index, block, by_source)  # type: ignore[no-untyped-call]
    return out


class _LookupOfEdges(torch.autograd.Function):
    """An autograd function whose backward pass sums over the edges that start, or end, at the same node."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, block: Block, by_source: bool) -> Tensor:
        ctx.block, ctx.by_source, ctx.dtype = block, by_source, x.dtype
        return x.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        block: Block = ctx.block
        if ctx.by_source:
            there = transpose(block)
            indptr, edges = there.indptr, there.order
        else:
            indptr, edges = block.indptr, torch.arange(block.num_edges, dtype=torch.int32, device=gradient.device)
        groups = Block(indptr=indptr, indices=edges, edge_ids=None, num_src=block.num_edges)
        return aggregate(groups, gradient).to(ctx.dtype), None, None, None
