"""What tasks on typed graphs share: the data's sizes by type, and a model whose vectors of vertices have an optimiser of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hoptrain.engine import HeteroDataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.samplers import HeteroMiniBatch
from hoptrain.trainers.models.features import to_input
from hoptrain.trainers.models.typed.gnn import TypedGNN, relations_by_layer
from hoptrain.trainers.models.typed.inference import exact_typed_logits
from hoptrain.trainers.models.typed.layers import READ_EDGES
from hoptrain.trainers.models.typed.sparse_adam import DenseAndSparseAdam
from hoptrain.trainers.tasks.node_data import SampledDataModule
from hoptrain.trainers.tasks.scored import ScoredModule


class TypedDataModule(SampledDataModule):
    """Sizes of a typed graph, which a model takes."""

    data: Any

    @property
    def num_features(self) -> dict[str, int]:
        """F_t by type, of the types that have features."""
        return {name: int(rows.shape[1]) for name, rows in self.data.x.items()}

    @property
    def num_vertices(self) -> dict[str, int]:
        """V_t by type, of the types without features."""
        return {name: number for name, number in self.data.graph.num_nodes.items() if name not in self.data.x}

    @property
    def edge_channels(self) -> dict[str, int]:
        """Features of an edge, by relation, of those that have some."""
        return {relation_name(relation): int(rows.shape[1]) for relation, rows in self.data.edge_attr.items()}

    @property
    def relations(self) -> list[str]:
        """``source:name:destination`` of each."""
        return [relation_name(relation) for relation in self.data.graph.relations]


def check_within_reach(data: HeteroDataset, seed_types: Sequence[str], num_hops: int) -> None:
    """Refuse data that a model of ``num_hops`` layers cannot learn from.

    Raises:
        InputError: a relation without edges or a type without vertices among those within reach.
    """
    for relation in relations_by_layer(list(data.graph.relations), seed_types, num_hops)[0]:
        empty = next((name for name in (relation[0], relation[2]) if not data.graph.num_nodes[name]), None)
        if empty is not None:
            raise InputError(f"{data.name}: type {empty} has no vertices: nothing can be learnt of it; leave it and its relations out")
        if not data.graph.relations[relation].num_edges:
            raise InputError(f"{data.name}: relation {relation_name(relation)} has no edges: nothing can be learnt of it; leave it out")


class TypedTask(ScoredModule):
    """A subclass says its ``data_class``, and makes the ``model``: a ``TypedGNN``, or one of the user's."""

    data_class: ClassVar[type[TypedDataModule]]
    model: Any

    def compare(self, names: Sequence[str]) -> None:
        """Compare the model's arguments ``names``, which come from the data, with those of the data module.

        Raises:
            InputError: the model is for other data, or gradients are to be clipped that are sparse.
        """
        module, ours = self._datamodule, {**self.hparams, "edge_channels": self.hparams.get("edge_channels") or {}}
        of_data = {"in_channels": module.num_features, "num_layers": module.num_hops} | {name: getattr(module, name) for name in names}
        if ours.get("arch") in READ_EDGES:
            of_data["edge_channels"] = module.edge_channels
        for name, theirs in of_data.items():
            if (ours[name] or isinstance(self.model, TypedGNN)) and ours[name] != theirs:
                raise InputError(
                    f"the model has {name} {ours[name]}, {module.data.name} with this sampler {theirs}: use the data set and the sampler that it "
                    "was made for"
                )
        if self._tables and self.trainer.gradient_clip_val:
            raise InputError(
                "gradient_clip_val with embeddings: their gradients are sparse, and torch does not clip such; leave one of them out"
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam; for the vectors of vertices torch's ``SparseAdam``, which moves those of a batch alone."""
        if not self._tables:
            return super().configure_optimizers()
        others = [
            parameter for name, parameter in self.named_parameters() if parameter.requires_grad and not name.startswith("model.tables.")
        ]
        return DenseAndSparseAdam(others, self._tables, lr=self.hparams["lr"], weight_decay=self.hparams["weight_decay"])

    @property
    def _tables(self) -> list[nn.Parameter]:
        """Vectors of vertices."""
        return list(self.model.tables.parameters()) if isinstance(self.model, TypedGNN) else []

    def inputs(self, batch: HeteroMiniBatch) -> dict[str, Tensor]:
        """The features of a batch's nodes, as the model takes them."""
        return {name: to_input(rows, self.hparams["normalize_features"]) for name, rows in batch.x.items()}

    def exact(self, nodes: Mapping[str, Array]) -> dict[str, Tensor]:
        """What a ``TypedGNN`` gives for ``nodes`` of each type of seeds, from full neighbourhoods; see ``exact_typed_logits``."""
        ranks = {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
        normalize = self.hparams["normalize_features"]
        return exact_typed_logits(self.model, self._datamodule.data, nodes, normalize=normalize, device=self.device, **ranks)

    @property
    def _datamodule(self) -> Any:
        datamodule, wanted = getattr(self.trainer, "datamodule", None), self.data_class.__name__
        if not isinstance(datamodule, self.data_class):
            raise InputError(
                f"{type(self).__name__} needs the graph that it learns from: run it with trainer.fit(model, datamodule={wanted}(...))"
            )
        return datamodule


def check_embeddings(model: TypedGNN, num_vertices: Mapping[str, int], embeddings: bool) -> None:
    """Refuse vectors of vertices that were not asked for.

    Raises:
        InputError: a type without features, and no ``embeddings``.
    """
    bare = next(iter(model.tables.keys()), None)
    if bare is not None and not embeddings:
        raise InputError(
            f"vertices of type {bare} have no features: give them some, or set embeddings: true, which learns a vector for each of the "
            f"{num_vertices[bare]:,}"
        )
