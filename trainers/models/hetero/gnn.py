"""A graph neural network for heterogeneous graphs, which takes blocks by relation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.errors import check_choice, explain_keywords
from hoptrain.engine.hetero_graph import Relation, relation_name
from hoptrain.samplers import Block
from hoptrain.trainers.models.edge_layers import temporary_pyg_files
from hoptrain.trainers.models.features import Standardize
from hoptrain.trainers.models.hetero.layers import READ_EDGES, Blocks, HeteroArch, Hidden, make_hetero_layer
from hoptrain.trainers.models.layers import Dropout


@explain_keywords
class HeteroGNN(nn.Module):
    """A GNN for heterogeneous graphs: an input module for each node type, ``num_layers`` convolutions of width H, and a linear map for each seed type.

    The input module of a type with features is a linear map; a type without features has an embedding per node, with sparse gradients. Between layers are
    dropout and an activation: ELU for gat and gatv2, none for hgt and han (whose layers contain an activation), else ReLU. Nodes of a type that no relation
    leads to keep their vectors. A layer contains only relations that the output depends on: the last layer those into the seed types, the layer before those
    into the source types of these, and so on.

    Attributes:
        relations: relations of each layer.
        edge_channels: number of edge features that layers read, by relation.
        needed: node types that enter each layer.
    """

    def __init__(
        self,
        arch: HeteroArch,
        in_channels: Mapping[str, int],
        num_nodes: Mapping[str, int],
        relations: Sequence[Relation],
        seed_types: Sequence[str],
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        *,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        standardize_features: bool = False,
        heads: int = 4,
        num_bases: int = 0,
        edge_channels: dict[str, int] | None = None,
    ) -> None:
        """Build the layers.

        Args:
            arch: layer type: rgcn, gat, gatv2, transformer, gin, graphconv, hgt or han.
            in_channels: number of features of a node, by type, for the types with features.
            num_nodes: number of nodes, by type, for the types without features.
            relations: relations of the graph.
            seed_types: types of the seeds.
            hidden_channels: width of the hidden layers, H (the sum over all attention heads).
            out_channels: number of classes, or width of the output vectors.
            num_layers: number of layers, which equals the hops of a mini-batch.
            dropout: dropout probability of the inputs of hidden layers (and of the attention weights of gat and han).
            input_dropout: dropout probability of the features.
            standardize_features: standardise each feature by mean and deviation of the seed type's training nodes, or of all nodes of another type.
            heads: number of attention heads, which divide ``hidden_channels`` among them.
            num_bases: number of basis matrices that the relations of rgcn share; 0 gives each relation its own matrix.
            edge_channels: number of features of an edge, by relation (``source:name:destination``), which gatv2 and transformer read.

        Raises:
            InputError: sizes do not match, or an option is unknown.
        """
        super().__init__()
        check_choice("arch", arch, get_args(HeteroArch))
        _check_sizes(arch, hidden_channels, out_channels, num_layers, heads, num_bases)
        with temporary_pyg_files():
            from torch_geometric.nn.module_dict import ModuleDict  # unlike torch's ModuleDict, this class accepts any type name as a key

        self.seed_types = tuple(dict.fromkeys(seed_types))
        self.relations = relations_by_layer(relations, self.seed_types, num_layers)
        self.needed = [list(dict.fromkeys([*_ends(own), *self.seed_types])) for own in self.relations]
        names = [name for name in (*in_channels, *num_nodes) if name in self.needed[0]]
        self.inputs = ModuleDict({name: nn.Linear(in_channels[name], hidden_channels) for name in names if name in in_channels})
        self.tables = ModuleDict({name: _table(num_nodes[name], hidden_channels) for name in names if name in num_nodes})
        of_edges = {relation: number for relation in relations if (number := (edge_channels or {}).get(relation_name(relation)))}
        self.edge_channels = of_edges if arch in READ_EDGES else {}
        options: dict[str, Any] = {"heads": heads, "num_bases": num_bases, "dropout": dropout, "edge_channels": self.edge_channels}
        self.layers = nn.ModuleList(make_hetero_layer(arch, hidden_channels, own, **options) for own in self.relations)
        self.heads = ModuleDict({name: nn.Linear(hidden_channels, out_channels) for name in self.seed_types})
        self.activation: nn.Module = nn.Identity() if arch in ("hgt", "han") else nn.ELU() if arch in ("gat", "gatv2") else nn.ReLU()
        self.dropout, self.input_dropout = Dropout(dropout), Dropout(input_dropout)
        self.standardize = ModuleDict({name: Standardize(in_channels[name]) for name in self.inputs if standardize_features})
        self._freeze_unused(hidden_channels)

    def _freeze_unused(self, channels: int) -> None:
        """Freeze parameters that no output depends on, since DDP would wait for their gradients. Example: HGT's weights for types that a layer only reads."""
        one: dict[str, Any] = {"indptr": torch.tensor([0, 1]), "indices": torch.tensor([0]), "edge_ids": torch.tensor([0]), "num_src": 1}
        hidden: Hidden = {name: torch.zeros(1, channels) for name in self.needed[0]}
        for i, own in enumerate(self.relations):
            hidden = self.layer(i, hidden, {r: Block(**one, edge_attr=torch.zeros(1, self.edge_channels.get(r, 0))) for r in own})
        parameters = list(self.layers.parameters())
        of_seeds: Any = sum(hidden[name].sum() for name in self.seed_types)
        gradients = torch.autograd.grad(of_seeds, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.requires_grad_(gradient is not None)

    def forward(self, x: Hidden, node_ids: Mapping[str, Tensor], blocks: Sequence[Blocks]) -> dict[str, Tensor]:
        """Compute the last layer's output for the seeds, by type.

        Args:
            x: float features (S_t, F_t) of the input nodes of each type t with features.
            node_ids: ids (S_t,) of the input nodes.
            blocks: blocks by relation, a dictionary per layer, outermost first.

        Returns:
            Outputs (at least B_t, out_channels) of each seed type t, with the seeds first.
        """
        hidden: Hidden = self.embed(x, node_ids)
        for i, hop in enumerate(blocks):
            hidden = self.layer(i, hidden, hop)
        return dict(hidden)

    def embed(self, x: Hidden, node_ids: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute input rows (S_t, H) of layer 0 by type, from features ``x`` and ids ``node_ids`` of the given types."""
        x = {name: self.standardize[name](rows) if name in self.standardize else rows for name, rows in x.items()}
        made = {name: F.relu(linear(self.input_dropout(x[name]))) for name, linear in self.inputs.items() if name in x}
        return made | {name: table(node_ids[name].long()) for name, table in self.tables.items() if name in node_ids}

    def layer(self, i: int, hidden: Hidden, blocks: Blocks, weights: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Apply layer ``i`` with its dropout and activation; the last layer includes the linear maps of the seed types.

        ``weights`` are the weights of relations that layer-wise inference computes for a ``HANLayer``.
        """
        hidden = {name: self.dropout(hidden[name]) for name in self.needed[i]}
        given = () if weights is None else (weights,)
        out: dict[str, Tensor] = self.layers[i](hidden, {relation: blocks[relation] for relation in self.relations[i]}, *given)
        if i == self.num_layers - 1:
            return {
                name: self.heads[name](self.activation(out[name])) if name in out else self.alone(i, name, hidden[name])
                for name in self.heads
            }
        return hidden | {name: self.activation(rows) for name, rows in out.items()}

    def alone(self, i: int, name: str, hidden: Tensor) -> Tensor:
        """Apply layer ``i`` to nodes of a type that none of its relations leads to: vectors stay the same, except for activation or linear map."""
        out: Tensor = self.heads[name](hidden) if i == self.num_layers - 1 else hidden
        return out

    def scores(self, i: int, hidden: Hidden, blocks: Blocks) -> dict[str, Tensor]:
        """Return ``HANLayer.scores`` for the inputs of layer ``i``. The model must be in eval mode."""
        found: dict[str, Tensor] = self.layers[i].scores(hidden, {relation: blocks[relation] for relation in self.relations[i]})  # type: ignore[operator]
        return found

    @property
    def weighs_relations(self) -> bool:
        """True if layers weight relations by a mean score over all nodes of a type, as HAN does."""
        return hasattr(self.layers[0], "scores")

    @property
    def num_layers(self) -> int:
        """Number of layers, and of blocks that ``forward`` takes."""
        return len(self.layers)


def relations_by_layer(relations: Sequence[Relation], seed_types: Sequence[str], num_layers: int) -> list[list[Relation]]:
    """Return for each layer, outermost first, the relations that the outputs of the ``seed_types`` depend on.

    Raises:
        InputError: no relation leads to any of the seed types.
    """
    wanted, found = set(seed_types), []
    for _ in range(num_layers):
        found.append([relation for relation in relations if relation[2] in wanted])
        wanted |= set(_ends(found[-1]))
    if found and not found[0]:
        raise InputError(
            f"no relation leads to {' or '.join(seed_types)}: its nodes have no neighbours to learn from; add the reverse of one that begins there "
            "(--data.add_reverse true, or with_reverse() in Python)"
        )
    return found[::-1]


def _ends(relations: Sequence[Relation]) -> list[str]:
    """Return the distinct node types of the relations: source types first."""
    return list(dict.fromkeys([relation[0] for relation in relations] + [relation[2] for relation in relations]))


def _table(rows: int, channels: int) -> nn.Embedding:
    table = nn.Embedding(rows, channels, sparse=True)
    nn.init.normal_(table.weight, std=channels**-0.5)
    return table


def _check_sizes(arch: HeteroArch, hidden_channels: int, out_channels: int, num_layers: int, heads: int, num_bases: int) -> None:
    """Raise InputError if sizes do not fit."""
    if min(num_layers, hidden_channels, out_channels, heads) < 1:
        raise InputError(
            f"a model of {num_layers} layers over {hidden_channels} to {out_channels} channels with {heads} heads: all must be at least 1; give 1 or more"
        )
    if arch not in ("rgcn", "gin", "graphconv") and hidden_channels % heads:
        raise InputError(f"hidden_channels {hidden_channels} cannot be divided among {heads} heads: give a multiple of heads")
    if num_bases < 0 or (num_bases and arch != "rgcn"):
        raise InputError(
            f"num_bases is {num_bases} with arch {arch}: it must be at least 0, and 0 for other layers than rgcn; leave it out"
        )
