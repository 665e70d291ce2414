"""What the layers of both libraries share: their names, the weights of a block's edges, and what stands between layers."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.samplers import Block

Arch = Literal["sage", "gat", "gcn", "gin", "gine", "gatv2", "transformer", "nnconv"]

_CHOICES = 1 << 16
"""Outcomes of the 16 random bits that decide over a number."""


class Dropout(nn.Dropout):
    """``nn.Dropout`` that takes a sixth of the time on a CPU, where torch draws each number's fate by 64 bits in one thread.

    Here 16 bits decide, so ``p`` counts in steps of 1 / 65,536. They are of torch's generator, too: a run repeats and resumes alike.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Zero a share of the numbers in training, and multiply the others by 1 / (1 - p); of any shape, in the same dtype."""
        dropped = round(self.p * _CHOICES)
        if not self.training or dropped in (0, _CHOICES) or self.inplace or input.device.type != "cpu" or torch.compiler.is_compiling():
            out: Tensor = super().forward(input)
            return out
        words = torch.empty(-(-input.numel() // 4), dtype=torch.int64, device="cpu").random_(-(2**63), None)
        kept = words.view(torch.int16)[: input.numel()].view(input.shape) >= dropped - _CHOICES // 2
        return input * kept.to(input.dtype).mul_(_CHOICES / (_CHOICES - dropped))


def gcn_weights(block: Block, degrees: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of GCN's normalised adjacency with self loops (Kipf & Welling 2017), from degrees of the whole graph.

    An edge j -> i weighs 1 / sqrt((d_i + 1) (d_j + 1)); where only some of the d_i edges were sampled, each stands for as many as the sampler
    says, else for d_i / sampled of them, so that the sum is an unbiased estimate. The node itself weighs 1 / (d_i + 1), on top of any loop that
    the graph has, as A + I states; PyG's ``GCNConv`` adds one only where there is none.

    Returns:
        (M,) weights of the edges and (num_dst,) weights of the destinations themselves.
    """
    return symmetric_weights(block, degrees, (degrees + 1).rsqrt())


def symmetric_weights(block: Block, degrees: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (M,) of the edges j -> i, scale_i scale_j times as many edges as each stands for, and (num_dst,) scale_i ** 2.

    Args:
        block: the block.
        degrees: (num_src,) in-degrees in the whole graph.
        scale: (num_src,) of each source.
    """
    own = scale[: block.num_dst]
    sampled = block.indptr.diff().long()
    if block.weights is None:
        edges = torch.repeat_interleave(degrees[: block.num_dst] / sampled.clamp(min=1) * own, sampled, output_size=block.num_edges)
    else:
        edges = block.weights * torch.repeat_interleave(own, sampled, output_size=block.num_edges)
    return edges * scale[block.indices.long()], own**2


def mean_weights(block: Block, degrees: Tensor) -> Tensor:
    """(M,) float32 weights with which the sum over a destination's edges estimates the mean over its in-edges; of a block with weights."""
    each = 1 / degrees[: block.num_dst].clamp(min=1)
    of_edges: Tensor = torch.repeat_interleave(each, block.indptr.diff().long(), output_size=block.num_edges)
    weights: Tensor = of_edges * block.weights
    return weights


def refuse_weights(block: Block, layer: str) -> None:
    """Refuse a block whose edges stand for different numbers of edges, where a layer could not regard that.

    Raises:
        InputError: it is one.
    """
    if block.weights is not None:
        raise InputError(
            f"{layer} cannot use the weights of this sampler's edges: take arch sage, gcn or gin with conv pyg, or another sampler"
        )
