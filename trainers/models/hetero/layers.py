"""Layers that apply PyG's convolutions for heterogeneous graphs to the blocks of one hop.

Each maps vectors of sources by node type to vectors of destinations by node type. The input of type t is (S_t, H), where S_t is at least the number of
sources of type t in any block. The output is (num_dst, H) for every type that a relation leads to. The first rows of a type are its destinations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.engine.hetero_graph import Relation
from hoptrain.samplers import Block
from hoptrain.trainers.models.edge_layers import edge_features, temporary_pyg_files

HeteroArch = Literal["rgcn", "gat", "gatv2", "transformer", "gin", "graphconv", "hgt", "han"]
READ_EDGES = ("gatv2", "transformer")
"""Names of the layers that read edge features, for the relations with edge features."""
Hidden: TypeAlias = Mapping[str, Tensor]
Blocks: TypeAlias = Mapping[Relation, Block]


def make_hetero_layer(
    arch: HeteroArch,
    channels: int,
    relations: Sequence[Relation],
    *,
    heads: int,
    num_bases: int,
    dropout: float,
    edge_channels: Mapping[Relation, int],
) -> nn.Module:
    """Build one layer over ``relations``, with input and output width ``channels``; ``edge_channels`` are the widths of edge features."""
    with temporary_pyg_files():
        if arch == "hgt":
            return HGTLayer(channels, relations, heads)
        if arch == "han":
            return HANLayer(channels, relations, heads, dropout)
        if arch == "rgcn" and num_bases:
            return BasisLayer(channels, relations, num_bases)
        return RelationLayer(arch, channels, relations, heads=heads, dropout=dropout, edge_channels=edge_channels)


class RelationLayer(nn.Module):
    """A layer with a convolution for each relation, whose results are summed: PyG's ``HeteroConv``, as used by its ``to_hetero``.

    * ``rgcn``: the mean over in-neighbours of each relation, with its own weights, plus a linear map of the node (Schlichtkrull et al. 2018):
      ``SAGEConv``.
    * ``gat``: attention among the edges of each relation, plus a linear map of the node: ``GATConv``.
    * ``gatv2``: attention that also reads edge features (Brody, Alon, Yahav 2022), otherwise as gat: ``GATv2Conv``.
    * ``transformer``: attention with linear maps of edge features added to keys and values (Shi et al. 2021), plus a linear map of the
      node: ``TransformerConv``.
    * ``gin``: an MLP of two linear maps on the sum of the node and its in-neighbours, for each relation: ``GINConv``.
    * ``graphconv``: the sum over in-neighbours of each relation, with its own weights, plus a linear map of the node: ``GraphConv``.
    """

    def __init__(
        self,
        arch: HeteroArch,
        channels: int,
        relations: Sequence[Relation],
        *,
        heads: int,
        dropout: float,
        edge_channels: Mapping[Relation, int],
    ) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv, GATv2Conv, GINConv, GraphConv, HeteroConv, SAGEConv, TransformerConv

        attention: dict[str, Any] = {"heads": heads, "dropout": dropout}
        with_own: dict[str, Any] = attention | {"residual": True, "add_self_loops": False}
        ends, width, self.edge_channels = (channels, channels), channels // heads, edge_channels
        makers: dict[str, Callable[[int | None], nn.Module]] = {
            "rgcn": lambda _: SAGEConv(ends, channels),
            "gat": lambda _: GATConv(ends, width, **with_own),
            "gatv2": lambda edge_dim: GATv2Conv(ends, width, **with_own, edge_dim=edge_dim),
            "transformer": lambda edge_dim: TransformerConv(ends, width, **attention, edge_dim=edge_dim),
            "gin": lambda _: GINConv(nn.Sequential(nn.Linear(*ends), nn.ReLU(), nn.Linear(*ends))),
            "graphconv": lambda _: GraphConv(ends, channels),
        }
        make = makers[arch]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There exist node types")  # types that no relation leads to keep their vectors
            self.conv: nn.Module = HeteroConv({relation: make(edge_channels.get(relation)) for relation in relations}, aggr="sum")

    def forward(self, hidden: Hidden, blocks: Blocks) -> dict[str, Tensor]:
        """Compute the outputs of the blocks of one hop, by destination type."""
        ends = {relation: (hidden[relation[0]], hidden[relation[2]][: block.num_dst]) for relation, block in blocks.items()}
        read = {
            relation: edge_features(blocks[relation], number, torch.float32)
            for relation, number in self.edge_channels.items()
            if relation in blocks
        }
        out: dict[str, Tensor] = self.conv(ends, _edges(blocks), **({"edge_attr_dict": read} if read else {}))
        return out


class BasisLayer(nn.Module):
    """An R-GCN layer whose relations share ``num_bases`` matrices, with their own coefficients (Schlichtkrull et al. 2018): PyG's ``RGCNConv``.

    The layer concatenates the nodes of all types, and multiplies the means of all destinations by a matrix once per relation.
    """

    def __init__(self, channels: int, relations: Sequence[Relation], num_bases: int) -> None:
        super().__init__()
        from torch_geometric.nn import RGCNConv

        self.conv = RGCNConv(channels, channels, len(relations), num_bases=num_bases)

    def forward(self, hidden: Hidden, blocks: Blocks) -> dict[str, Tensor]:
        """Compute the outputs of the blocks of one hop, by destination type."""
        num_dst = destinations(blocks)
        sources = {name: hidden[name] for name in dict.fromkeys(relation[0] for relation in blocks)}
        first_src, first_dst = _offsets({name: len(rows) for name, rows in sources.items()}), _offsets(num_dst)
        edges, kinds = [], []
        for number, (relation, block) in enumerate(blocks.items()):
            begin = torch.tensor([[first_src[relation[0]]], [first_dst[relation[2]]]], device=block.indptr.device)
            edges.append(block.edge_index() + begin)
            kinds.append(torch.full((block.num_edges,), number, device=block.indptr.device))
        own = torch.cat([hidden[name][:number] for name, number in num_dst.items()])
        out = self.conv((torch.cat(list(sources.values())), own), torch.cat(edges, dim=1), torch.cat(kinds))
        return dict(zip(num_dst, out.split(list(num_dst.values())), strict=True))


class HGTLayer(nn.Module):
    """A heterogeneous graph transformer layer (Hu et al. 2020, "Heterogeneous graph transformer"): PyG's ``HGTConv``."""

    def __init__(self, channels: int, relations: Sequence[Relation], heads: int) -> None:
        super().__init__()
        from torch_geometric.nn import HGTConv

        self.names = list(dict.fromkeys(name for source, _, destination in relations for name in (source, destination)))
        self.conv = HGTConv(channels, channels, (self.names, list(relations)), heads)

    def forward(self, hidden: Hidden, blocks: Blocks) -> dict[str, Tensor]:
        """Compute the outputs of the blocks of one hop, by destination type."""
        # HGTConv fails if all types are empty: an empty type gets a node without edges, which the slices below drop.
        padded = {name: F.pad(hidden[name], (0, 0, 0, int(not len(hidden[name])))) for name in self.names}
        out = self.conv(padded, _edges(blocks))
        return {name: out[name][:number] for name, number in destinations(blocks).items()}


class HANLayer(nn.Module):
    """A heterogeneous graph attention layer (Wang et al. 2019): attention among the edges of each relation, then among relations: PyG's ``HANConv``.

    The weights of the relations into a type are the softmax of their mean scores over all destinations of the type: in training, over those of the
    batch. Layer-wise inference first sums ``scores`` over all nodes of the type, then passes the resulting weights to ``forward``.
    """

    def __init__(self, channels: int, relations: Sequence[Relation], heads: int, dropout: float) -> None:
        super().__init__()
        from torch_geometric.nn import HANConv

        names = list(dict.fromkeys(name for source, _, destination in relations for name in (source, destination)))
        self.kinds = {name: str(number) for number, name in enumerate(names)}  # HANConv does not accept names with dots
        self.numbered = {relation: (self.kinds[relation[0]], str(i), self.kinds[relation[2]]) for i, relation in enumerate(relations)}
        self.conv = HANConv(channels, channels, (list(self.kinds.values()), list(self.numbered.values())), heads, dropout=dropout)

    def forward(self, hidden: Hidden, blocks: Blocks, weights: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Compute the outputs of the blocks of one hop, by destination type; ``weights`` (R,) of a type replace those of its R relations."""
        from torch_geometric.nn.conv.han_conv import group

        made, given = self._of_relations(hidden, blocks), weights or {}
        return {
            name: torch.einsum("r,rnh->nh", given[name], torch.stack(own)) if name in given else group(own, self.conv.q, self.conv.k_lin)[0]
            for name, own in made.items()
        }

    def scores(self, hidden: Hidden, blocks: Blocks) -> dict[str, Tensor]:
        """Return, for each type that relations lead to, the sums (R,) of each relation's scores over the destinations."""
        q, linear = self.conv.q, self.conv.k_lin
        made = self._of_relations(hidden, blocks)
        return {name: torch.stack([(q * torch.tanh(linear(rows))).sum() for rows in own]) for name, own in made.items()}

    def _of_relations(self, hidden: Hidden, blocks: Blocks) -> dict[str, list[Tensor]]:
        """Return, for each type that relations lead to, the output (num_dst, H) of each of these relations."""
        made: dict[str, list[Tensor]] = {}
        for relation, block in blocks.items():
            ends = {self.kinds[relation[0]]: hidden[relation[0]]}
            if relation[0] != relation[2]:
                ends[self.kinds[relation[2]]] = hidden[relation[2]][: block.num_dst]
            # HANConv gives a single relation weight 1
            out = self.conv(ends, {self.numbered[relation]: block.edge_index()})[self.kinds[relation[2]]]
            made.setdefault(relation[2], []).append(out[: block.num_dst])
        return made


def destinations(blocks: Blocks) -> dict[str, int]:
    """Return the number of destinations of each type that a relation leads to."""
    return {relation[2]: block.num_dst for relation, block in blocks.items()}


def _edges(blocks: Blocks) -> dict[Relation, Tensor]:
    return {relation: block.edge_index() for relation, block in blocks.items()}


def _offsets(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the start of each key's rows in a concatenation."""
    return {name: sum(list(counts.values())[:place]) for place, name in enumerate(counts)}
