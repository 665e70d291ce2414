"""What the layers of both libraries share: their names, and the weights of a block's edges."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hoptrain.engine import InputError
from hoptrain.samplers import Block

Arch = Literal["sage", "gat", "gcn", "gin", "gine", "gatv2", "transformer", "nnconv"]


def gcn_weights(block: Block, degrees: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of GCN's normalised adjacency with self loops (Kipf & Welling 2017), from degrees of the whole graph.

    An edge j -> i weighs 1 / sqrt((d_i + 1) (d_j + 1)); where only some of the d_i edges were sampled, each stands for as many as the sampler
    says, else for d_i / sampled of them, so that the sum is an unbiased estimate. The vertex itself weighs 1 / (d_i + 1), on top of any loop that
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
