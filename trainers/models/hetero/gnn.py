"""Graph neural networks over blocks of several relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.errors import check_choice
from hoptrain.engine.hetero_graph import Relation, relation_name
from hoptrain.samplers import Block
from hoptrain.trainers.models.edge_layers import temporary_files_that_go
from hoptrain.trainers.models.hetero.layers import READ_EDGES, Blocks, HeteroArch, Hidden, make_hetero_layer
from hoptrain.trainers.models.layers import Dropout


class HeteroGNN(nn.Module):
    """An input for each type, ``num_layers`` convolutions of width H, a linear map for each type of seeds: to its classes, or to vectors of it.

    A type with features has a linear map of its own as input; one without has a vector for each of its nodes, whose gradients are sparse. Between
    two layers stand activation (ELU for gat and gatv2, else ReLU; none for hgt and han, which have their own) and dropout. A type that no relation leads to
    keeps its vectors. A layer has only the relations that scores depend on: the last one those that lead to the seeds' types, and so on outward.

    Attributes:
        relations: of each layer.
        edge_channels: features of an edge that layers read, by relation.
        needed: types whose vectors enter each layer.
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
        heads: int = 4,
        num_bases: int = 0,
        edge_channels: dict[str, int] | None = None,
    ) -> None:
        """Build the layers.

        Args:
            arch: rgcn, gat, gatv2, transformer, gin, graphconv, hgt or han.
            in_channels: features of a node, by type, of the types that have some.
            num_nodes: nodes of the types without features.
            relations: of the graph.
            seed_types: the types of the seeds.
            hidden_channels: H (with attention over all heads together).
            out_channels: number of classes, or width of the vectors.
            num_layers: number of hops of a mini-batch.
            dropout: share of hidden inputs dropped (and of the attention of gat and han).
            input_dropout: share of features dropped.
            heads: attention heads of those with attention, which share ``hidden_channels``.
            num_bases: matrices that rgcn's relations share; 0 gives each its own.
            edge_channels: features of an edge, by relation (``source:name:destination``), of those that have some; gatv2 and transformer read them.

        Raises:
            InputError: sizes that do not fit, a word that is none of these.
        """
        super().__init__()
        check_choice("arch", arch, get_args(HeteroArch))
        _check_sizes(arch, hidden_channels, out_channels, num_layers, heads, num_bases)
        with temporary_files_that_go():
            from torch_geometric.nn.module_dict import ModuleDict  # a type may be called anything

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
        self._freeze_unused(hidden_channels)

    def _freeze_unused(self, channels: int) -> None:
        """Ask no gradient of what no score depends on, as HGT's weights of types that a layer reads alone: DDP would wait for them."""
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
        """What the last layer gives for the seeds, by type.

        Args:
            x: (S_t, F_t) float features of the input nodes of type t.
            node_ids: (S_t,) their ids.
            blocks: those of each relation, a dictionary a layer, the outermost first.

        Returns:
            (at least B_t, out_channels) of each type t of seeds, these first.
        """
        hidden: Hidden = self.embed(x, node_ids)
        for i, hop in enumerate(blocks):
            hidden = self.layer(i, hidden, hop)
        return dict(hidden)

    def embed(self, x: Hidden, node_ids: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What enters layer 0, (S_t, H) by type of those given; arguments as of ``forward``."""
        made = {name: F.relu(linear(self.input_dropout(x[name]))) for name, linear in self.inputs.items() if name in x}
        return made | {name: table(node_ids[name].long()) for name, table in self.tables.items() if name in node_ids}

    def layer(self, i: int, hidden: Hidden, blocks: Blocks, weights: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Layer ``i`` alone, with what stands before and after it; of the last one what the seeds' types are given.

        ``weights`` are those of relations, which a ``HANLayer`` is given in exact inference.
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
        """Layer ``i`` for nodes of a type that none of its relations leads to: they keep their vectors."""
        out: Tensor = self.heads[name](hidden) if i == self.num_layers - 1 else hidden
        return out

    def scores(self, i: int, hidden: Hidden, blocks: Blocks) -> dict[str, Tensor]:
        """What ``HANLayer.scores`` gives for the input of layer ``i``; the model is in eval mode."""
        found: dict[str, Tensor] = self.layers[i].scores(hidden, {relation: blocks[relation] for relation in self.relations[i]})  # type: ignore[operator]
        return found

    @property
    def weighs_relations(self) -> bool:
        """Whether layers weigh relations by a mean over all nodes of a type."""
        return hasattr(self.layers[0], "scores")

    @property
    def num_layers(self) -> int:
        """Number of hops that ``forward`` takes."""
        return len(self.layers)


def relations_by_layer(relations: Sequence[Relation], seed_types: Sequence[str], num_layers: int) -> list[list[Relation]]:
    """Of each layer the relations that scores of the ``seed_types`` depend on, the outermost first.

    Raises:
        InputError: no relation leads to any of them.
    """
    wanted, found = set(seed_types), []
    for _ in range(num_layers):
        found.append([relation for relation in relations if relation[2] in wanted])
        wanted |= set(_ends(found[-1]))
    if found and not found[0]:
        raise InputError(
            f"no relation leads to {' or '.join(seed_types)}: its nodes have no neighbours to learn from; add the reverse of one that begins there"
        )
    return found[::-1]


def _ends(relations: Sequence[Relation]) -> list[str]:
    """The types that relations join, sources first, each once."""
    return list(dict.fromkeys([relation[0] for relation in relations] + [relation[2] for relation in relations]))


def _table(rows: int, channels: int) -> nn.Embedding:
    table = nn.Embedding(rows, channels, sparse=True)
    nn.init.normal_(table.weight, std=channels**-0.5)
    return table


def _check_sizes(arch: HeteroArch, hidden_channels: int, out_channels: int, num_layers: int, heads: int, num_bases: int) -> None:
    """Refuse a model that cannot be built."""
    if min(num_layers, hidden_channels, out_channels, heads) < 1:
        raise InputError(
            f"a model of {num_layers} layers over {hidden_channels} to {out_channels} channels with {heads} heads: all are at least 1; correct it"
        )
    if arch not in ("rgcn", "gin", "graphconv") and hidden_channels % heads:
        raise InputError(f"hidden_channels {hidden_channels} cannot be shared by {heads} heads: give a multiple of heads")
    if num_bases < 0 or (num_bases and arch != "rgcn"):
        raise InputError(
            f"num_bases is {num_bases} with arch {arch}: matrices that rgcn's relations share, 0 for one each; correct it or leave it out"
        )
