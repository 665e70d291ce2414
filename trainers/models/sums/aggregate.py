"""Functions that sum neighbours' vectors over the edges of a block."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hoptrain.samplers import Block
from hoptrain.samplers.batch.table_batch import TableRows
from hoptrain.trainers.models.sums.on_host import CONSTANT, joined_on_host, sums_on_host
from hoptrain.trainers.models.sums.weighted_on_host import weighted_sums_on_host

_ADDITION = 8
"""Cost of adding one value of a neighbour, in multiplications of a dense product. It is high, since the value is read from a random address in memory."""
_EDGES_PER_ROW = 2
"""Most edges per row for which sums read the feature table itself. With 1.3, a step of GraphSAGE took 0.92 of its time; with 3 it took 1.03
(benchmarks/results/rows_2-core-xeon_2026-11-28.md)."""


def aggregate(block: Block, x: Tensor, weights: Tensor | None = None, reduce: Literal["sum", "mean"] = "sum") -> Tensor:
    """Sum (or average) the rows of ``x`` (num_src, C), times ``weights``, over each destination's edges: (num_dst, C), at least float32.

    ``weights`` are (M,), or (M, H) for H heads, each of which has C / H columns.

    Sums are float32 in mixed precision too, since a 16-bit sum of many values would stop growing. On a GPU, hoptrain's own kernels are used (``on_device``).
    On the CPU too (``on_host``, or ``weighted_on_host`` for weights of several heads or with a gradient). When torch traces the model, its separate gather
    and add operations are used.
    """
    if torch.compiler.is_compiling():
        return _plain_sums(block, x, weights, reduce)
    if x.is_cuda:
        from hoptrain.trainers.models.sums.on_device import sums_on_device

        return sums_on_device(block, x, weights, mean=reduce == "mean")
    x = x if x.dtype == torch.float64 else x.float()
    if weights is not None and _is_for_weighted(weights):
        sums = weighted_sums_on_host(block, x, weights)
        return sums if reduce == "sum" else sums / block.indptr.diff().clamp(min=1)[:, None]
    return sums_on_host(block, x, weights, mean=reduce == "mean")[0]


def aggregate_with_own(
    block: Block, x: Tensor | TableRows, weights: Tensor | None = None, reduce: Literal["sum", "mean"] = "sum"
) -> tuple[Tensor, Tensor]:
    """Return ``aggregate`` and the destinations' own rows of ``x``, both (num_dst, C). On a CPU, the gradients of both share one buffer."""
    if isinstance(x, TableRows) or joins(x, weights):
        return sums_on_host(block, x, weights, mean=reduce == "mean")
    return aggregate(block, x, weights, reduce), x[: block.num_dst]


def aggregate_joined(block: Block, x: Tensor | TableRows, weights: Tensor | None = None, reduce: Literal["sum", "mean"] = "sum") -> Tensor:
    """Return both results of ``aggregate_with_own`` and ``CONSTANT`` columns, 1 and zeros, side by side: (num_dst, 2 C + CONSTANT).

    ``joins(x, weights)`` must be true. One product with ``joined_weight`` then computes a layer's outputs with their bias.
    """
    return joined_on_host(block, x, weights, mean=reduce == "mean")


def joined_weight(of_sums: Tensor, of_own: Tensor, bias: Tensor) -> Tensor:
    """Return the weight (C', 2 C + CONSTANT) that multiplies the rows of ``aggregate_joined``, from weights (C', C) of the sums and the own rows."""
    return torch.cat([of_sums, of_own, F.pad(bias[:, None], (0, CONSTANT - 1))], 1)


def joins(x: Tensor | TableRows, weights: Tensor | None) -> bool:
    """Return whether one pass over the edges writes the sums beside the destinations' own rows: on a CPU, with one weight per edge or none."""
    if isinstance(x, TableRows):
        return True
    on_host = x.dtype in (torch.float32, torch.float64) and not x.is_cuda and not torch.compiler.is_compiling()
    return on_host and not (weights is not None and _is_for_weighted(weights))


def _is_for_weighted(weights: Tensor) -> bool:
    """Return whether only ``weighted_on_host`` can add with these weights on the CPU; see ``aggregate``."""
    return weights.dim() == 2 or weights.requires_grad


def _plain_sums(block: Block, x: Tensor, weights: Tensor | None, reduce: Literal["sum", "mean"]) -> Tensor:
    degrees = block.indptr.diff().long()
    owner = block.destinations()
    rows = (x if x.dtype == torch.float64 else x.float())[block.indices.long()]
    if weights is not None:
        rows = rows * (weights[:, None] if weights.dim() == 1 else weights.repeat_interleave(x.shape[1] // weights.shape[1], 1))
    out = rows.new_zeros(block.num_dst, x.shape[1]).index_add(0, owner, rows)
    return out if reduce == "sum" else out / degrees.clamp(min=1)[:, None]


def sums_in_table(block: Block) -> bool:
    """Return whether summing rows of the feature table itself is less work than gathering the sources' rows and summing those.

    Gathering reads each row once and writes it next to the others. So it is faster if many edges share a row.
    """
    return block.num_edges <= _EDGES_PER_ROW * block.num_src


def narrows_first(block: Block, in_channels: int, out_channels: int) -> bool:
    """Return whether multiplying all sources by a matrix before adding them is less work than adding first; both give the same result."""
    if torch.compiler.is_compiling():
        return out_channels < in_channels  # sizes are symbolic while torch traces the model
    first = block.num_src * in_channels * out_channels + _ADDITION * block.num_edges * out_channels
    return first < block.num_dst * in_channels * out_channels + _ADDITION * block.num_edges * in_channels
