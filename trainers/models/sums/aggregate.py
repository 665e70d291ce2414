"""Functions that sum neighbours' vectors over the edges of a block."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hoptrain.samplers import Block
from hoptrain.trainers.models.sums.on_host import sums_on_host

_ADDITION = 8
"""Cost of adding one value of a neighbour, in multiplications of a dense product. It is high, since the value is read from a random address in memory."""


def aggregate(block: Block, x: Tensor, weights: Tensor | None = None, reduce: Literal["sum", "mean"] = "sum") -> Tensor:
    """Sum (or average) the rows of ``x`` (num_src, C), times ``weights``, over each destination's edges: (num_dst, C), at least float32.

    ``weights`` are (M,), or (M, H) for H heads, each of which has C / H columns.

    Sums are float32 in mixed precision too, since a 16-bit sum of many values would stop growing. On a GPU, hoptrain's own kernels are used (``on_device``).
    On the CPU, torch's fused sparse product is used, with two exceptions that use separate gather and add operations: when torch traces the model, since
    tracing does not support sparse tensors; and for weights of several heads or with a gradient, since torch's product fails if a destination has two
    edges from one source.
    """
    if torch.compiler.is_compiling():
        return _plain_sums(block, x, weights, reduce)
    if x.is_cuda:
        from hoptrain.trainers.models.sums.on_device import sums_on_device

        return sums_on_device(block, x, weights, mean=reduce == "mean")
    if _needs_separate_operations(weights):
        return _plain_sums(block, x, weights, reduce)
    return sums_on_host(block, x if x.dtype == torch.float64 else x.float(), weights, mean=reduce == "mean")[0]


def aggregate_with_own(
    block: Block, x: Tensor, weights: Tensor | None = None, reduce: Literal["sum", "mean"] = "sum"
) -> tuple[Tensor, Tensor]:
    """Return ``aggregate`` and the destinations' own rows of ``x``, both (num_dst, C). On a CPU, the gradients of both share one buffer."""
    on_host = x.dtype in (torch.float32, torch.float64) and not x.is_cuda and not torch.compiler.is_compiling()
    if on_host and not _needs_separate_operations(weights):
        return sums_on_host(block, x, weights, mean=reduce == "mean")
    return aggregate(block, x, weights, reduce), x[: block.num_dst]


def _needs_separate_operations(weights: Tensor | None) -> bool:
    """Return whether torch's sparse product cannot add with these weights; see ``aggregate``."""
    return weights is not None and (weights.dim() == 2 or weights.requires_grad)


def _plain_sums(block: Block, x: Tensor, weights: Tensor | None, reduce: Literal["sum", "mean"]) -> Tensor:
    degrees = block.indptr.diff().long()
    owner = torch.repeat_interleave(torch.arange(block.num_dst, device=x.device), degrees, output_size=block.num_edges)
    rows = (x if x.dtype == torch.float64 else x.float())[block.indices.long()]
    if weights is not None:
        rows = rows * (weights[:, None] if weights.dim() == 1 else weights.repeat_interleave(x.shape[1] // weights.shape[1], 1))
    out = rows.new_zeros(block.num_dst, x.shape[1]).index_add(0, owner, rows)
    return out if reduce == "sum" else out / degrees.clamp(min=1)[:, None]


def narrows_first(block: Block, in_channels: int, out_channels: int) -> bool:
    """Return whether multiplying all sources by a matrix before adding them is less work than adding first; both give the same result."""
    if torch.compiler.is_compiling():
        return out_channels < in_channels  # sizes are symbolic while torch traces the model
    first = block.num_src * in_channels * out_channels + _ADDITION * block.num_edges * out_channels
    return first < block.num_dst * in_channels * out_channels + _ADDITION * block.num_edges * in_channels
