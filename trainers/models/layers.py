"""Common parts of the PyG and DGL layers: layer names, edge weights and dropout."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.samplers import Block

Arch = Literal["sage", "gat", "gcn", "gin", "gine", "gatv2", "transformer", "nnconv"]

_CHOICES = 1 << 16
"""Number of different values of 16 random bits."""


class Dropout(nn.Dropout):
    """An ``nn.Dropout`` that is 6x faster on a CPU than torch's; see ``dropout``."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply ``dropout``."""
        return dropout(input, self.p, self.training, self.inplace)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, set each number to zero with probability ``p`` and multiply the others by 1 / (1 - p). Shape and dtype are kept.

    On a CPU, torch draws 64 bits for each number in one thread. This function draws 16 bits for each number, so ``p`` is rounded to a multiple of
    1 / 65,536. The bits come from torch's generator, so runs repeat and resume as usual.
    """
    dropped = round(p * _CHOICES)
    if not training or not 0 < dropped < _CHOICES or inplace or input.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(input, p, training, inplace)
    words = torch.empty(-(-input.numel() // 4), dtype=torch.int64, device="cpu").random_(-(2**63), None)
    kept = words.view(torch.int16)[: input.numel()].view(input.shape) >= dropped - _CHOICES // 2
    return input * kept.to(input.dtype).mul_(_CHOICES / (_CHOICES - dropped))


def gcn_weights(block: Block, degrees: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of GCN's normalised adjacency with self loops (Kipf & Welling 2017), from degrees in the whole graph.

    An edge j -> i has weight 1 / sqrt((d_i + 1) (d_j + 1)). If only some of the d_i edges were sampled, this is multiplied by the number of edges that
    the sampled edge represents: its weight from the sampler, or d_i / (number of sampled edges). So the sum is an unbiased estimate. The node itself
    has weight 1 / (d_i + 1), in addition to any self loop in the graph, as in A + I. PyG's ``GCNConv`` adds a self loop only where there is none.

    Returns:
        Weights (M,) of the edges and weights (num_dst,) of the destinations themselves.
    """
    return symmetric_weights(block, degrees, (degrees + 1).rsqrt())


def symmetric_weights(block: Block, degrees: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return edge weights (M,) and destination weights (num_dst,) for a symmetric normalisation.

    An edge j -> i has weight scale_i scale_j times the number of edges that it represents (see ``gcn_weights``). A destination has weight scale_i ** 2.

    Args:
        block: the block.
        degrees: in-degrees (num_src,) in the whole graph.
        scale: factor (num_src,) of each source, such as 1 / sqrt(degree + 1).
    """
    own = scale[: block.num_dst]
    sampled = block.indptr.diff().long()
    if block.weights is None:
        edges = torch.repeat_interleave(degrees[: block.num_dst] / sampled.clamp(min=1) * own, sampled, output_size=block.num_edges)
    else:
        edges = block.weights * torch.repeat_interleave(own, sampled, output_size=block.num_edges)
    return edges * scale[block.indices.long()], own**2


def mean_weights(block: Block, degrees: Tensor) -> Tensor:
    """Return weights (M,) float32 with which a sum over sampled edges estimates the mean over all in-edges, for a block with edge weights."""
    each = 1 / degrees[: block.num_dst].clamp(min=1)
    of_edges: Tensor = torch.repeat_interleave(each, block.indptr.diff().long(), output_size=block.num_edges)
    weights: Tensor = of_edges * block.weights
    return weights


def refuse_weights(block: Block, layer: str) -> None:
    """Raise InputError if a block has edge weights, which the layer would ignore.

    Raises:
        InputError: the block has edge weights.
    """
    if block.weights is not None:
        raise InputError(
            f"{layer} cannot use the edge weights of this sampler: use arch sage, gcn or gin with conv pyg, or another sampler"
        )
