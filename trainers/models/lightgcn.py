"""LightGCN, for recommendation: layers without weights over vectors that are learnt for the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.samplers import Block
from hoptrain.trainers.models.gnn import GNN
from hoptrain.trainers.models.layers import symmetric_weights
from hoptrain.trainers.models.sums import aggregate


class LightGCN(nn.Module):
    """The mean of what enters and of what each of L layers gives; a layer adds up neighbours' vectors, an edge j -> i weighs 1 / sqrt(d_i d_j).

    He et al. 2020, "LightGCN: Simplifying and powering graph convolution network for recommendation". On full neighbourhoods the same as PyG's
    ``LightGCN`` and its ``LGConv``; where only some of the d_i edges were sampled, each stands for as many as the sampler says. Between two layers
    stand (R, 2 C) numbers: a layer's output beside the sum so far.
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int, **options: Any) -> None:
        """Take the sizes.

        Args:
            in_channels: C.
            hidden_channels: C.
            out_channels: C.
            num_layers: L, number of blocks of a mini-batch.
            options: those of a ``GNN``, as the command line gives all of them: none has an effect.

        Raises:
            InputError: widths that differ, no layer, or an option that is neither 0 nor a ``GNN``'s default; of dropout 0 alone.
        """
        super().__init__()
        if len({in_channels, hidden_channels, out_channels}) > 1 or min(in_channels, num_layers) < 1:
            raise InputError(
                f"arch lightgcn with {num_layers} layers from {in_channels} over {hidden_channels} to {out_channels} channels: it keeps their "
                "number, and has one layer at least; give hidden_channels and out_channels the width of what enters"
            )
        defaults = {name: parameter.default for name, parameter in signature(GNN).parameters.items()} | {"dropout": 0.0}
        if given := next((name for name, value in options.items() if value not in (0, defaults[name]) and name != "edge_channels"), None):
            raise InputError(f"{given} is {options[given]} with arch lightgcn: its layers have no weights and no options; leave it out")
        self.num_layers = num_layers

    def forward(self, x: Tensor, blocks: Sequence[Block], degrees: Tensor) -> Tensor:
        """Vectors (B, C) of the last block's destinations; arguments as of ``GNN.forward``."""
        for i, block in enumerate(blocks):
            x = self.layer(i, x, block, degrees[: block.num_src])
        return x

    def layer(self, i: int, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Layer ``i`` alone: (num_src, C) for the first and (num_src, 2 C) for the others in, (num_dst, 2 C) or of the last one (num_dst, C) out."""
        hidden, total = (x, x) if i == 0 else x.chunk(2, 1)
        weights, _ = symmetric_weights(block, degrees, degrees.clamp(min=1).rsqrt())
        hidden = aggregate(block, hidden.contiguous(), weights)
        total = total[: block.num_dst] + hidden
        return total / (self.num_layers + 1) if i == self.num_layers - 1 else torch.cat([hidden, total], 1)
