"""Sums over a block's edges on a GPU, and their gradients, by the CUDA C++ kernels of ``hoptrain.kernels.cuda.native.aggregate`` or by Numba kernels.

The kernels run on torch's current stream. The forward kernel adds by destination, and the backward kernel by source, over the transposed block. Every
sum has a fixed order, so the same block gives bit-identical results. A block is transposed when a gradient with respect to its input is first
computed.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hoptrain.engine import InputError
from hoptrain.engine.device import check_cuda
from hoptrain.samplers import Block
from hoptrain.trainers.models.cuda.launch import launch_for, lend
from hoptrain.trainers.models.sums.transpose import transpose

_ADDED = (torch.float32, torch.bfloat16, torch.float64)
"""Data types that the kernels read; others are converted to float32 first."""
_MOST_EDGES = 2**31 - 8
"""Maximum number of edges of a block: the kernels count edges with 32 bits, in steps of four."""


def sums_on_device(block: Block, x: Tensor, weights: Tensor | None, *, mean: bool) -> Tensor:
    """Return ``aggregate`` of tensors on a GPU: (num_dst, C), float64 for float64 inputs, else float32.

    Raises:
        InputError: the block has too many edges for 32 bits, or numba-cuda is missing.
        ValueError: ``x`` does not have a row for each source, or its columns cannot be divided among the heads.
    """
    if block.num_edges > _MOST_EDGES:
        raise InputError(f"a block has {block.num_edges:,} edges: a GPU can add at most {_MOST_EDGES:,}; use smaller batches")
    x = x if x.dtype in _ADDED else x.float()
    heads = 1 if weights is None or weights.dim() == 1 else weights.shape[1]
    if x.shape[0] != block.num_src or x.shape[1] % heads:
        raise ValueError(
            f"x is {tuple(x.shape)}: it must have {block.num_src} rows, one per source, and a number of columns divisible by the number of heads, {heads}"
        )
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # kernels are launched on the current GPU
        out: Tensor = _Sums.apply(x, None if weights is None else weights.to(_sum_type(x)), block, mean)  # type: ignore[no-untyped-call]
    return out


class _Sums(torch.autograd.Function):
    """An autograd function for the sums, with gradients for rows and weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor | None, block: Block, mean: bool) -> Tensor:
        x, weights = x.contiguous(), None if weights is None else weights.contiguous()
        inverse = x.new_empty(block.num_dst, dtype=_sum_type(x)) if mean else None
        out = _add(_Part(block.indptr.int(), block.indices.int(), weights), x, _sum_type(x), inverse)
        needs_x, needs_weights = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if needs_weights else None, weights if needs_x or needs_weights else None, inverse)
        ctx.block, ctx.dtype = block, x.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weights, inverse = ctx.saved_tensors
        gradient, block = gradient.contiguous(), ctx.block
        by_x = by_weights = None
        if ctx.needs_input_grad[0]:
            there = transpose(block)
            own = None if weights is None else weights[there.order]
            by_x = _add(_Part(there.indptr, there.indices, own, inverse), gradient, ctx.dtype)
        if ctx.needs_input_grad[1]:
            by_weights = _dots(_Part(block.indptr.int(), block.indices.int(), weights), weights, x, gradient, inverse)
        return by_x, by_weights, None, None


class _Part(NamedTuple):
    """The edges of a block as tensors, with the fields of ``hoptrain.kernels.cuda.training.edges.BlockEdges``."""

    indptr: Tensor
    indices: Tensor
    weights: Tensor | None = None
    scale: Tensor | None = None

    @property
    def heads(self) -> int:
        return 1 if self.weights is None or self.weights.dim() == 1 else self.weights.shape[1]


def _add(part: _Part, rows: Tensor, dtype: torch.dtype, inverse: Tensor | None = None) -> Tensor:
    """Sum ``rows`` over the edges, with results of ``dtype``. With ``inverse``, return means, and store the factors (1 / number of edges) in ``inverse``."""
    shape = (len(part.indptr) - 1, rows.shape[1])
    if not len(part.indices) or not rows.shape[1]:
        if inverse is not None:
            inverse.zero_()
        return rows.new_zeros(shape, dtype=dtype)
    if _has_native():
        from hoptrain.kernels.cuda.native.aggregate import sum_rows as add_native

        out = rows.new_empty(shape, dtype=dtype)
        add_native(launch_for(rows), _edges(part), rows, out, inverse=inverse, empty=partial(_empty, rows))
        return out
    from hoptrain.kernels.cuda.training.aggregate import sum_rows

    wide = _widened(rows)
    out = wide.new_empty(shape)
    sum_rows(launch_for(rows), _lent(part), lend(wide), lend(out), inverse=lend(inverse), empty=partial(_lent_empty, rows))
    return out.to(dtype)


def _dots(part: _Part, weights: Tensor, rows: Tensor, gradient: Tensor, inverse: Tensor | None) -> Tensor:
    """Return the gradient of the ``weights`` of ``part``, in their shape."""
    out = torch.empty_like(weights)
    if not out.numel() or not rows.shape[1]:
        return out.zero_()
    if _has_native():
        from hoptrain.kernels.cuda.native.aggregate import edge_dots as multiply_native

        multiply_native(launch_for(rows), _edges(part), rows, gradient, out, inverse=inverse)
        return out
    from hoptrain.kernels.cuda.training.aggregate import edge_dots

    given = _lent(part), lend(_widened(rows)), lend(gradient), lend(out.view(len(out), -1))
    edge_dots(launch_for(rows), *given, inverse=lend(inverse), empty=partial(_lent_empty, rows))
    return out


@cache
def _has_native() -> bool:
    """Return whether the CUDA C++ kernels are available; else Numba's are used.

    Raises:
        InputError: neither is available.
    """
    check_cuda()
    from hoptrain.engine.gpu_memory.device_store import has_native

    return has_native("aggregate")


def _edges(part: _Part) -> Any:
    from hoptrain.kernels.cuda.training.edges import BlockEdges

    return BlockEdges(ptr=part.indptr, ind=part.indices, weights=part.weights, scale=part.scale, heads=part.heads)


def _lent(part: _Part) -> Any:
    """Return the edges as arrays for Numba's kernels, without a copy."""
    from hoptrain.kernels.cuda.training.edges import BlockEdges

    weights = None if part.weights is None else part.weights.view(len(part.weights), -1)
    arrays = {"ptr": part.indptr, "ind": part.indices, "weights": weights, "scale": part.scale}
    return BlockEdges(heads=part.heads, **{name: lend(array) for name, array in arrays.items()})


def _empty(like: Tensor, shape: tuple[int, ...], dtype: str) -> Tensor:
    return like.new_empty(shape, dtype=getattr(torch, dtype))


def _lent_empty(like: Tensor, shape: tuple[int, ...], dtype: str) -> Any:
    return lend(_empty(like, shape, dtype))


def _widened(rows: Tensor) -> Tensor:
    """Convert rows to the data type that Numba's kernels read."""
    return rows.to(_sum_type(rows))


def _sum_type(rows: Tensor) -> torch.dtype:
    return torch.float64 if rows.dtype == torch.float64 else torch.float32
