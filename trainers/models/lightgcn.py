"""LightGCN for recommendation: layers without weights over node embeddings."""

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
    """A module that returns the mean of its input and of the outputs of L layers; a layer is a sum over edges j -> i with weight 1 / sqrt(d_i d_j).

    He et al. 2020, "LightGCN: Simplifying and powering graph convolution network for recommendation". On full neighbourhoods it equals PyG's
    ``LightGCN`` and its ``LGConv``. If only some of the d_i edges were sampled, each is weighted by the number of edges that it represents. Between
    two layers, rows have 2 C numbers: the output of the layer, and the sum of all outputs so far.
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int, **options: Any) -> None:
        """Check the options, and store the number of layers and their width.

        Args:
            in_channels: width of the embeddings, C.
            hidden_channels: must equal ``in_channels``.
            out_channels: must equal ``in_channels``.
            num_layers: number of layers, L, and of blocks of a mini-batch.
            options: options of a ``GNN``, which the command line passes; they must have their default values.

        Raises:
            InputError: the widths differ, there is no layer, or an option is neither 0 nor the default of ``GNN`` (dropout must be 0).
        """
        super().__init__()
        if len({in_channels, hidden_channels, out_channels}) > 1 or min(in_channels, num_layers) < 1:
            raise InputError(
                f"arch lightgcn with {num_layers} layers from {in_channels} over {hidden_channels} to {out_channels} channels: it needs equal "
                "widths and at least one layer; give hidden_channels and out_channels the width of the input"
            )
        defaults = {name: parameter.default for name, parameter in signature(GNN).parameters.items()} | {"dropout": 0.0}
        if given := next((name for name, value in options.items() if value not in (0, defaults[name]) and name != "edge_channels"), None):
            raise InputError(f"{given} is {options[given]} with arch lightgcn: its layers have no weights and no options; leave it out")
        self.num_layers = num_layers

    def forward(self, x: Tensor, blocks: Sequence[Block], degrees: Tensor) -> Tensor:
        """Compute vectors (B, C) of the last block's destinations. Arguments are those of ``GNN.forward``."""
        for i, block in enumerate(blocks):
            x = self.layer(i, x, block, degrees[: block.num_src])
        return x

    def layer(self, i: int, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Apply layer ``i``.

        Its input is (num_src, C) for the first layer, else (num_src, 2 C). Its output is (num_dst, C) for the last layer, else (num_dst, 2 C).
        """
        hidden, total = (x, x) if i == 0 else x.chunk(2, 1)
        weights, _ = symmetric_weights(block, degrees, degrees.clamp(min=1).rsqrt())
        hidden = aggregate(block, hidden.contiguous(), weights)
        total = total[: block.num_dst] + hidden
        return total / (self.num_layers + 1) if i == self.num_layers - 1 else torch.cat([hidden, total], 1)
