"""Layers that apply PyG's convolutions to a block. Each layer maps (num_src, C) to (num_dst, C').

Initial weights are bit-identical to PyG's, and outputs equal PyG's up to rounding. Only GAT imports PyG, since the import takes most of a second.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.samplers import Block
from hoptrain.trainers.models.edge_layers import EdgeLayer, temporary_pyg_files
from hoptrain.trainers.models.layers import Arch, gcn_weights, mean_weights, refuse_weights
from hoptrain.trainers.models.sums import aggregate, aggregate_joined, aggregate_with_own, joined_weight, narrows_first


def make_layer(arch: Arch, in_channels: int, out_channels: int, **options: Any) -> nn.Module:
    """Build a layer. ``options`` are heads, concat and dropout of layers with attention, and ``edge_channels`` of layers that read edge features."""
    kinds: dict[Arch, type[nn.Module]] = {"sage": SAGELayer, "gat": GATLayer, "gcn": GCNLayer, "gin": GINLayer}
    return kinds[arch](in_channels, out_channels, **options) if arch in kinds else EdgeLayer(arch, in_channels, out_channels, **options)


class SAGELayer(nn.Module):
    """A GraphSAGE layer with the mean aggregator (Hamilton, Ying, Leskovec 2017)."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin_l, self.lin_r = nn.Linear(in_channels, out_channels), nn.Linear(in_channels, out_channels, bias=False)
        _draw_again(self.lin_l, self.lin_r)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of one block, from the mean over its edges, or from an estimate of the mean if edges have weights."""
        weights = None if block.weights is None else mean_weights(block, degrees)
        reduce: Literal["sum", "mean"] = "mean" if weights is None else "sum"
        if weights is None and narrows_first(block, x.shape[1], self.lin_l.out_features):
            mine, own = self._narrow(x, block.num_dst)
            out = aggregate(block, mine, reduce="mean") + self.lin_l.bias + own
        elif x.shape[1] > self.lin_l.out_features:
            out = self.combine(*aggregate_with_own(block, x, weights, reduce))
        else:
            # One product of joined rows: its outputs are written once, and the backward pass reads their gradient once.
            out = F.linear(
                aggregate_joined(block, x, weights, reduce), joined_weight(self.lin_l.weight, self.lin_r.weight, self.lin_l.bias)
            )
        return out

    def _narrow(self, x: Tensor, num_dst: int) -> tuple[Tensor, Tensor]:
        """Multiply all sources by the neighbour weights, and the destinations by the root weights; return both products.

        Each destination is read once for both products, since products with few columns are bound by reading the rows.
        """
        to_mean, to_own = self.lin_l.weight, self.lin_r.weight
        both = F.linear(x[:num_dst], torch.cat([to_mean, to_own]))
        mine, own = both.tensor_split([len(to_mean)], dim=1)
        return torch.cat([mine, F.linear(x[num_dst:], to_mean)]), own

    def combine(self, mean: Tensor, own: Tensor) -> Tensor:
        """Compute the layer's outputs from the means over in-neighbours and the destinations' own vectors, both (D, C)."""
        out: Tensor = self.lin_l(mean) + self.lin_r(own)
        return out


def _draw_again(*layers: nn.Linear) -> None:
    """Draw the weights a second time, as PyG's convolutions do, so that a seed gives PyG's weights."""
    for layer in layers:
        layer.reset_parameters()


class GINLayer(nn.Module):
    """A graph isomorphism network layer with a two-layer MLP and a learned epsilon (Xu et al. 2019)."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        first, second = nn.Linear(in_channels, out_channels), nn.Linear(out_channels, out_channels)
        _draw_again(first, second)
        self.mlp = nn.Sequential(first, nn.ReLU(), second)
        self.eps = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of one block."""
        sums, own = aggregate_with_own(block, x, block.weights)
        out: Tensor = self.mlp(sums + (1 + self.eps) * own)
        return out


class GATLayer(nn.Module):
    """A graph attention layer (Veličković et al. 2018); a destination attends to itself too."""

    def __init__(self, in_channels: int, out_channels: int, *, heads: int, concat: bool, dropout: float) -> None:
        super().__init__()
        width = out_channels // heads if concat else out_channels
        with temporary_pyg_files():
            from torch_geometric.nn import GATConv

            self.conv = GATConv(in_channels, width, heads=heads, concat=concat, dropout=dropout)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of one block."""
        refuse_weights(block, "arch gat")
        if x.is_cuda and not torch.compiler.is_compiling():
            return self.attend(x, block)
        out: Tensor = self.conv((x, x[: block.num_dst]), block.edge_index(), size=(block.num_src, block.num_dst))
        return out

    def attend(self, x: Tensor, block: Block) -> Tensor:
        """Compute the outputs with ``aggregate``, which stores no message per edge.

        It sums the weighted vectors and the unnormalised attention weights over the edges, and divides the first sum by the second.
        """
        conv, num_dst = self.conv, block.num_dst
        hidden = conv.lin(x)
        by_head = hidden.view(len(x), conv.heads, -1)
        of_source, of_own = (by_head * conv.att_src).sum(-1), (by_head[:num_dst] * conv.att_dst).sum(-1)
        source, destination = block.edge_index()
        loops = F.leaky_relu(of_source[:num_dst] + of_own, conv.negative_slope)
        edges = F.leaky_relu(of_source[source] + of_own[destination], conv.negative_slope)
        # masks self-loops: each destination attends to itself once
        edges = edges.masked_fill((source == destination)[:, None], float("-inf"))
        with torch.no_grad():
            most = loops.scatter_reduce(0, destination[:, None].expand_as(edges), edges, "amax")
        edges, loops = (edges - most[destination]).exp(), (loops - most).exp()
        total = aggregate(block, edges.new_ones(len(x), conv.heads), edges) + loops
        edges, loops = (F.dropout(weights, conv.dropout, self.training) for weights in (edges, loops))
        sums = aggregate(block, hidden, edges).view(num_dst, conv.heads, -1) + loops[..., None] * by_head[:num_dst]
        out: Tensor = sums / total[..., None]
        return torch.add(out.flatten(1) if conv.concat else out.mean(1), conv.bias)


class GCNLayer(nn.Module):
    """A graph convolution layer (Kipf & Welling 2017) with degrees of the whole graph.

    The layer does not use PyG's ``GCNConv``, which normalises by the degrees of the graph that it gets: for a block, those of the sample.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of one block."""
        edge_weights, self_weights = gcn_weights(block, degrees)
        sums, own = aggregate_with_own(block, self.linear(x), edge_weights)
        return sums + self_weights[:, None] * own + self.bias
