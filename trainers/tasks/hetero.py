"""Classification of vertices of one type of a typed graph: training on sampled batches, evaluation on full neighbourhoods."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics.classification import MulticlassAccuracy

from hoptrain.engine import HeteroDataset, InputError, load_hetero_dataset
from hoptrain.engine.dataset import SPLITS
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.samplers import HeteroMiniBatch, Sampler
from hoptrain.trainers.models.features import to_input
from hoptrain.trainers.models.typed.gnn import TypedGNN, relations_by_layer
from hoptrain.trainers.models.typed.inference import exact_typed_logits
from hoptrain.trainers.models.typed.layers import TypedArch
from hoptrain.trainers.models.typed.sparse_adam import DenseAndSparseAdam
from hoptrain.trainers.tasks.graph_task import dropout_seed
from hoptrain.trainers.tasks.node_data import NodeBatch, SampledDataModule
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.scored import ScoredModule
from hoptrain.trainers.tasks.shared_data import opened


class HeteroDataModule(SampledDataModule):
    """Loads a data set on a typed graph and feeds training through a sampler of typed graphs."""

    def __init__(
        self, dataset: str | HeteroDataset, sampler: Sampler, root: str | None = None, splits: str | None = None, **feed: Any
    ) -> None:
        """Open the data set (and convert or download it the first time).

        Args:
            dataset: name ('hoptrain data list' shows them), a folder written by 'hoptrain data convert', or in Python a ``HeteroDataset``.
            sampler: a ``HeteroSampler`` with its fanouts and the type of its seeds.
            root: folder with the data's files; by default $HOPTRAIN_DATA.
            splits: which splits, where the data set has several by name: 60 takes train_60, val_60 and test_60.
            feed: as ``SampledDataModule``.

        Raises:
            InputError: what cannot be trained on; see ``check_typed``.
        """
        data = opened(dataset, load_hetero_dataset, root=root)
        if splits is not None:
            data = replace(data, splits={split: data.split(f"{split}_{splits}") for split in SPLITS}, validate=False)
        sampler.check_data(data)
        own = getattr(sampler, "seed_type", None)
        if own != data.seed_type:
            raise InputError(f"the sampler's seed_type is {own!r}, that of {data.name} {data.seed_type!r}: give the sampler the data's")
        check_typed(data, sampler.num_hops)
        super().__init__(data, sampler, **feed)

    @property
    def num_features(self) -> dict[str, int]:
        """F_t by type, of the types that have features."""
        return {name: int(rows.shape[1]) for name, rows in self.data.x.items()}

    @property
    def num_vertices(self) -> dict[str, int]:
        """V_t by type, of the types without features."""
        return {name: number for name, number in self.data.graph.num_nodes.items() if name not in self.data.x}

    @property
    def relations(self) -> list[str]:
        """``source:name:destination`` of each."""
        return [relation_name(relation) for relation in self.data.graph.relations]

    @property
    def seed_type(self) -> str:
        """The type of the vertices that are classified."""
        seed_type: str = self.data.seed_type
        return seed_type


def check_typed(data: HeteroDataset, num_hops: int) -> None:
    """Refuse data that a classifier of ``num_hops`` layers cannot learn from.

    Raises:
        InputError: no labels, or several a vertex; a relation without edges or a type without vertices among those within reach.
    """
    if data.y is None or data.y.ndim == 2:
        what = "no labels" if data.y is None else "several labels a vertex"
        raise InputError(f"{data.name} has {what}: task hetero takes one class for each vertex of type {data.seed_type}; give such a y")
    for relation in relations_by_layer(list(data.graph.relations), data.seed_type, num_hops)[0]:
        empty = next((name for name in (relation[0], relation[2]) if not data.graph.num_nodes[name]), None)
        if empty is not None:
            raise InputError(f"{data.name}: type {empty} has no vertices: nothing can be learnt of it; leave it and its relations out")
        if not data.graph.relations[relation].num_edges:
            raise InputError(f"{data.name}: relation {relation_name(relation)} has no edges: nothing can be learnt of it; leave it out")


class HeteroClassifier(ScoredModule):
    """A ``TypedGNN`` that classifies the vertices of one type.

    Logs ``train_loss``, ``train_acc``, ``val_loss``, ``val_acc``, ``test_loss`` and ``test_acc``, each over all ranks with every vertex counted once.
    """

    def __init__(
        self,
        in_channels: dict[str, int],
        num_vertices: dict[str, int],
        relations: list[str],
        seed_type: str,
        num_classes: int,
        num_layers: int,
        arch: TypedArch = "rgcn",
        hidden_channels: int = 64,
        embeddings: bool = False,
        normalize_features: bool = False,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        heads: int = 4,
        num_bases: int = 0,
        lr: float = 0.003,
        weight_decay: float = 0.0,
    ) -> None:
        """Build the model. The first six arguments come from the data when the command line is used.

        Args:
            in_channels: features of a vertex, by type, of the types that have some.
            num_vertices: vertices of the types without features.
            relations: ``source:name:destination`` of each.
            seed_type: the type of the vertices that are classified.
            num_classes: number of classes.
            num_layers: hops of the sampler.
            arch: rgcn, gat or hgt.
            hidden_channels: width of all layers (with attention over all heads together).
            embeddings: learn a vector for each vertex of the types without features.
            normalize_features: divide each vertex's features by their sum.
            dropout: share of hidden inputs dropped (and of gat's attention).
            input_dropout: share of features dropped.
            heads: attention heads of gat and hgt.
            num_bases: matrices that rgcn's relations share; 0 gives each its own.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty; vectors of vertices have none.

        Raises:
            InputError: numbers that have no meaning; a type without features and without ``embeddings``.
        """
        check_training(lr=lr, weight_decay=weight_decay, dropout=dropout, input_dropout=input_dropout)
        super().__init__(partial(MulticlassAccuracy, num_classes=num_classes, average="micro"))
        self.save_hyperparameters()
        triples: Any = [tuple(relation.split(":")) for relation in relations]
        sizes: dict[str, Any] = {"heads": heads, "num_bases": num_bases, "dropout": dropout, "input_dropout": input_dropout}
        self.model = TypedGNN(arch, in_channels, num_vertices, triples, seed_type, hidden_channels, num_classes, num_layers, **sizes)
        bare = next(iter(self.model.tables.keys()), None)
        if bare is not None and not embeddings:
            raise InputError(
                f"vertices of type {bare} have no features: give them some, or set embeddings: true, which learns a vector for each of the "
                f"{num_vertices[bare]:,}"
            )

    def setup(self, stage: str) -> None:
        """Compare the model with the data.

        Raises:
            InputError: the model is for other data, or gradients are to be clipped that are sparse.
        """
        module, ours = self._datamodule, self.hparams
        names = ("in_channels", "num_features"), ("num_layers", "num_hops"), *((name, name) for name in _OF_DATA)
        for mine, theirs in names:
            if ours[mine] != getattr(module, theirs):
                raise InputError(
                    f"the model has {mine} {ours[mine]}, {module.data.name} with this sampler {getattr(module, theirs)}: use the data set and "
                    "the sampler that it was made for"
                )
        if len(self.model.tables) and self.trainer.gradient_clip_val:
            raise InputError(
                "gradient_clip_val with embeddings: their gradients are sparse, and torch does not clip such; leave one of them out"
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam; for the vectors of vertices torch's ``SparseAdam``, which moves those of a batch alone."""
        tables = set(self.model.tables.parameters())
        others = [parameter for parameter in self.parameters() if parameter.requires_grad and parameter not in tables]
        rates = {"lr": self.hparams["lr"], "weight_decay": self.hparams["weight_decay"]}
        return DenseAndSparseAdam(others, list(self.model.tables.parameters()), **rates) if tables else torch.optim.Adam(others, **rates)

    def forward(self, batch: HeteroMiniBatch) -> Tensor:
        """Scores of the batch's seeds, (B, num_classes)."""
        x = {name: to_input(rows, self.hparams["normalize_features"]) for name, rows in batch.x.items()}
        logits: Tensor = self.model(x, batch.node_ids, batch.blocks)
        return logits

    def training_step(self, batch: HeteroMiniBatch, batch_idx: int) -> Tensor:
        """Loss of one mini-batch, scaled so that the ranks' average is the mean over all seeds of the step."""
        torch.manual_seed(dropout_seed(batch))
        logits = self(batch)
        total = F.cross_entropy(logits, batch.y, reduction="sum")
        self.count("fit", logits, batch.y, total)
        self.log("train_loss_step", total.detach() / batch.num_seeds, batch_size=batch.num_seeds)
        return total * (self.trainer.world_size / batch.num_step_seeds)

    def infer(self, batch: NodeBatch) -> Tensor:
        """Scores of ``batch``'s vertices, from full neighbourhoods: (N, num_classes). Every rank calls it, with its own."""
        ranks = {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
        options: dict[str, Any] = {"normalize": self.hparams["normalize_features"], "device": self.device, **ranks}
        return exact_typed_logits(self.model, self._datamodule.data, batch.node_ids.cpu().numpy(), **options)

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Scores of this rank's share of the vertices, (N, num_classes) float32 on the CPU."""
        return self.infer(batch).float().cpu()

    def evaluate(self, stage: str, batch: NodeBatch) -> None:
        """This rank's share of a split."""
        logits = self.infer(batch)
        if batch.y is not None and len(batch.y):
            y = batch.y.to(self.device)
            self.count(stage, logits, y, F.cross_entropy(logits, y, reduction="sum"))

    @property
    def _datamodule(self) -> HeteroDataModule:
        datamodule = getattr(self.trainer, "datamodule", None)
        if not isinstance(datamodule, HeteroDataModule):
            raise InputError(
                f"{type(self).__name__} needs the graph that it learns from: run it with trainer.fit(model, datamodule=HeteroDataModule(...))"
            )
        return datamodule


_OF_DATA = ("num_vertices", "relations", "seed_type", "num_classes")
"""Arguments of the model that the data module has under the same name."""
