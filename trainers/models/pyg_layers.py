"""Layers that apply PyG's convolutions to a block. Each layer maps (num_src, C) to (num_dst, C').

Initial weights are bit-identical to PyG's, and outputs equal PyG's up to rounding. Only GAT imports PyG, since the import takes most of a second.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.samplers import Block
from hoptrain.samplers.batch.table_batch import TableRows
from hoptrain.trainers.models.edge_layers import EdgeLayer, edge_features, temporary_pyg_files
from hoptrain.trainers.models.layers import Arch, dropout, gcn_weights, mean_weights, refuse_weights
from hoptrain.trainers.models.sums import (
    aggregate,
    aggregate_joined,
    aggregate_with_own,
    joined_weight,
    joins,
    lookup_of_edges,
    narrows_first,
    softmax_over_edges,
    sums_in_table,
)


def make_layer(arch: Arch, in_channels: int, out_channels: int, **options: Any) -> nn.Module:
    """Build a layer. ``options`` are heads, concat and dropout of layers with attention, and ``edge_channels`` of layers that read edge features."""
    kinds: dict[Arch, type[nn.Module]] = {"sage": SAGELayer, "gat": GATLayer, "gcn": GCNLayer, "gin": GINLayer}
    if arch in kinds:
        return kinds[arch](in_channels, out_channels, **options)
    return (GATv2Layer if arch == "gatv2" else EdgeLayer)(arch, in_channels, out_channels, **options)


class SAGELayer(nn.Module):
    """A GraphSAGE layer with the mean aggregator (Hamilton, Ying, Leskovec 2017)."""

    sums_table_rows = True

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin_l, self.lin_r = nn.Linear(in_channels, out_channels), nn.Linear(in_channels, out_channels, bias=False)
        _draw_again(self.lin_l, self.lin_r)

    def forward(self, x: Tensor | TableRows, block: Block, degrees: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of one block, from the mean over its edges, or from an estimate of the mean if edges have weights.

        Rows ``x`` (num_src, C) of a table are summed there if that is faster (``sums_in_table``); otherwise they are gathered.
        """
        weights = None if block.weights is None else mean_weights(block, degrees)
        reduce: Literal["sum", "mean"] = "mean" if weights is None else "sum"
        narrows = weights is None and narrows_first(block, self.lin_l.in_features, self.lin_l.out_features)
        rows: Any = x.gathered() if isinstance(x, TableRows) and (narrows or not sums_in_table(block)) else x
        if narrows:
            mine, own = self._narrow(rows, block.num_dst)
            out = aggregate(block, mine, reduce="mean") + self.lin_l.bias + own
        elif joins(rows, weights) and self.lin_l.in_features <= self.lin_l.out_features:
            # One product of joined rows: its outputs are written once, and the backward pass reads their gradient once.
            out = F.linear(
                aggregate_joined(block, rows, weights, reduce), joined_weight(self.lin_l.weight, self.lin_r.weight, self.lin_l.bias)
            )
        else:
            out = self.combine(*aggregate_with_own(block, rows, weights, reduce))
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
        if torch.compiler.is_compiling():
            out: Tensor = self.conv((x, x[: block.num_dst]), block.edge_index(), size=(block.num_src, block.num_dst))
            return out
        return attend(self.conv, x, block)


class GATv2Layer(EdgeLayer):
    """A GATv2 layer (Brody, Alon, Yahav 2022). On a GPU it does not run PyG's code, which selects edges by masks, so that the host would wait for the GPU."""

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of one block."""
        if not x.is_cuda or torch.compiler.is_compiling():
            return super().forward(x, block, degrees)
        refuse_weights(block, "arch gatv2")
        return attend_v2(self.conv, x, block, edge_features(block, self.edge_channels, x.dtype))


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
        narrows = narrows_first(block, self.linear.in_features, self.linear.out_features)
        sums, own = aggregate_with_own(block, self.linear(x) if narrows else x, edge_weights)
        out = sums + self_weights[:, None] * own
        return (out if narrows else self.linear(out)) + self.bias


def attend(conv: Any, x: Tensor, block: Block) -> Tensor:
    """Compute the outputs (num_dst, C') of PyG's ``GATConv``, without edge features, for the sources' rows ``x`` (num_src, C) of a block."""
    hidden, edges = conv.lin(x), AttentionEdges.of(conv, block)
    heads = torch.eye(conv.heads, dtype=hidden.dtype, device=hidden.device)[:, None]
    # The product with a matrix (heads C', 2 heads) reads the rows once for all scores.
    columns = [(weights.transpose(0, 1).transpose(1, 2) * heads).flatten(0, 1) for weights in (conv.att_src, conv.att_dst)]
    of_source, of_own = (hidden @ torch.cat(columns, 1)).chunk(2, 1)
    scores = F.leaky_relu(edges.of_source(of_source) + edges.of_destination(of_own[: block.num_dst]), conv.negative_slope)
    return edges.attend(conv, x, hidden, scores)


def attend_v2(conv: Any, x: Tensor, block: Block, features: Tensor | None = None) -> Tensor:
    """Compute the outputs (num_dst, C') of PyG's ``GATv2Conv`` for the sources' rows ``x`` (num_src, C) and edge features (M, D) of a block."""
    hidden, edges = conv.lin_l(x), AttentionEdges.of(conv, block)
    own = hidden[: block.num_dst] if conv.share_weights else conv.lin_r(x[: block.num_dst])
    pairs = edges.of_source(hidden) + edges.of_destination(own)
    if features is not None:
        pairs = pairs + conv.lin_edge(edges.features(block, features))
    pairs = F.leaky_relu(pairs, conv.negative_slope)
    return edges.attend(conv, x, hidden, (pairs.view(len(pairs), conv.heads, -1) * conv.att).sum(-1))


class AttentionEdges(NamedTuple):
    """The edges of a block over which PyG's ``GATConv`` or ``GATv2Conv`` computes a softmax, grouped by destination.

    Attributes:
        block: the block, in which the first edge of each destination is a self-loop if the convolution adds self-loops.
        source: sources (M,) int64.
        destination: destinations (M,) int64.
        ignored: mask (M,) of the self-loops that the added ones replace; None if the convolution adds none.
    """

    block: Block
    source: Tensor
    destination: Tensor
    ignored: Tensor | None

    @classmethod
    def of(cls, conv: Any, block: Block) -> AttentionEdges:
        """Return the edges of a block, with self-loops if ``conv`` adds them. Edges with self-loops are computed once per block."""
        if not conv.add_self_loops:
            source, destination = block.edge_index()
            return cls(block, source, destination, None)
        if block not in _with_loops:
            with torch.inference_mode(False):  # a validation may compute what a training step uses
                _with_loops[block] = cls._add_loops(block)
        return _with_loops[block]

    @classmethod
    def _add_loops(cls, block: Block) -> AttentionEdges:
        source, destination = block.edge_index()
        own = torch.arange(block.num_dst + 1, device=source.device)
        indptr, places = block.indptr + own, _places_with_loops(destination)
        sources, destinations = (own.new_empty(block.num_edges + block.num_dst) for _ in range(2))
        for made, edges in ((sources, source), (destinations, destination)):
            made[places], made[indptr[:-1].long()] = edges, own[:-1]
        ignored = sources == destinations
        ignored.index_fill_(0, indptr[:-1].long(), False)  # assigning False would copy it to a GPU, for which the host waits
        dtype = torch.int32 if len(sources) < 2**31 else torch.int64  # kernels on a GPU would convert int64 at each call
        with_loops = Block(indptr=indptr.to(dtype), indices=sources.to(dtype), edge_ids=None, num_src=block.num_src)
        return cls(with_loops, sources, destinations, ignored)

    def of_source(self, x: Tensor) -> Tensor:
        """Return the rows (M, C) of the edges' sources, from rows ``x`` (num_src, C)."""
        return lookup_of_edges(self.block, x, self.source, by_source=True)

    def of_destination(self, x: Tensor) -> Tensor:
        """Return the rows (M, C) of the edges' destinations, from rows ``x`` (num_dst, C)."""
        return lookup_of_edges(self.block, x, self.destination, by_source=False)

    def features(self, block: Block, features: Tensor) -> Tensor:
        """Return the edges' features (M, D), from those of the block's own edges. An added self-loop has the mean of its destination's edges, as in PyG."""
        if self.ignored is None:
            return features
        source, destination = block.edge_index()
        each = Block(indptr=block.indptr, indices=torch.arange(len(source), device=source.device), edge_ids=None, num_src=len(source))
        is_counted = (source != destination)[:, None].to(features.dtype)
        sums, counts = aggregate(each, torch.cat([features * is_counted, is_counted], 1)).tensor_split([features.shape[1]], 1)
        rows = features.new_empty(len(self.source), features.shape[1])
        rows[_places_with_loops(destination)] = features
        rows[self.block.indptr[:-1].long()] = sums / counts.clamp(min=1)
        return rows

    def attend(self, conv: Any, x: Tensor, hidden: Tensor, scores: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of a convolution by ``aggregate``, which stores no message per edge.

        Args:
            conv: a ``GATConv`` or ``GATv2Conv``.
            x: rows (num_src, C) of the sources.
            hidden: rows (num_src, heads C') of which the sums are computed.
            scores: attention scores (M, heads) of the edges.
        """
        shares = softmax_over_edges(self.block, self.destination, scores, self.ignored)
        means = aggregate(self.block, hidden, dropout(shares, conv.dropout, conv.training)).view(self.block.num_dst, conv.heads, -1)
        out = means.flatten(1) if conv.concat else means.mean(1)
        out = out if conv.res is None else out + conv.res(x[: self.block.num_dst])
        return out if conv.bias is None else out + conv.bias


_with_loops: WeakKeyDictionary[Block, AttentionEdges] = WeakKeyDictionary()
"""Cache of edges with added self-loops, kept as long as the blocks exist. All layers of full-batch training have the same block."""


def _places_with_loops(destination: Tensor) -> Tensor:
    """Return the positions of a block's edges (M,) after a self-loop was added before the first edge of each destination."""
    return torch.arange(len(destination), device=destination.device) + destination + 1
