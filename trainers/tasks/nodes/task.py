"""Classification of nodes, and regression: training on sampled batches, evaluation on full neighbourhoods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from torch import Tensor, nn

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import check_choice
from hoptrain.engine.features.take import take_rows
from hoptrain.samplers import HeteroMiniBatch, MiniBatch
from hoptrain.trainers.models.batches import ForwardInputs, HeteroForwardInputs, apply_hetero_model, chunk_of
from hoptrain.trainers.models.features import with_edge_features
from hoptrain.trainers.models.hetero.gnn import HeteroGNN
from hoptrain.trainers.models.hetero.inference import hetero_neighborhood_logits
from hoptrain.trainers.models.hetero.layers import HeteroArch
from hoptrain.trainers.models.inference import neighborhoods
from hoptrain.trainers.models.layered import Chunk
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import ExactTask, GraphTask, HeteroTask, check_embeddings
from hoptrain.trainers.tasks.labelled import LabelMixin
from hoptrain.trainers.tasks.nodes.data import HeteroDataModule, NodeDataModule
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.shared_data import NodeBatch, SharedDataModule

_OF_ANY_MODEL = {"normalize_features", "lr", "weight_decay"}


class NodeTask(LabelMixin, ExactTask):
    """A task that learns labels of nodes."""

    def match_node_labels(self) -> None:
        """Compare the model's labels with those of the data, or take these where none were stated."""
        data = self._datamodule.data
        self.match_labels(data.name, data.y, data.num_classes, data.splits.get("train"))

    def node_step(self, batch: MiniBatch | HeteroMiniBatch, weights: Tensor | None) -> Tensor:
        """Return the loss of a mini-batch with ``weights`` (B,) of its seeds, scaled so that the ranks' average is the mean over the step's seeds."""
        _refuse_links(batch)
        self.seed_dropout(batch)
        total = self.compute_loss("fit", self(batch), batch.y, weights)
        self.log("train_loss_step", total.detach() / batch.num_seeds, batch_size=batch.num_seeds)
        return total * (self.trainer.world_size / batch.num_step_seeds)

    def evaluate(self, stage: str, batch: NodeBatch) -> None:
        """Evaluate this rank's share of a split."""
        logits = self.infer(batch.node_ids.cpu().numpy())
        if batch.y is not None and len(batch.y):
            self.compute_loss(stage, logits, batch.y.to(self.device))


class NodeClassifier(NodeTask, GraphTask):
    """A model that classifies nodes: a ``GNN``, or your own module.

    Logs ``train_loss``, ``train_acc``, ``val_loss``, ``val_acc``, ``test_loss`` and ``test_acc``, each over all ranks with every node
    counted once; or another score by its name. With several labels a node, ``acc`` is the micro-averaged F1 score.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import NodeDataModule, NeighborSampler, NodeClassifier
        >>> data = NodeDataModule("digits-knn", NeighborSampler([5, 5]), batch_size=256, num_workers=0, seed=1)
        >>> model = NodeClassifier(data.num_features, data.num_classes, data.num_hops, hidden_channels=16)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_acc', 'train_loss', 'train_loss_step', 'val_acc', 'val_loss']
    """

    data_class: ClassVar[type[SharedDataModule]] = NodeDataModule

    def __init__(
        self,
        in_channels: int = 0,
        num_classes: int = 0,
        num_layers: int = 0,
        multilabel: bool = False,
        model: Any = None,
        forward_inputs: ForwardInputs = "blocks",
        metric: str = TASKS["nodes"].metric,
        class_weight: Literal["balanced"] | None = None,
        **options: Any,
    ) -> None:
        """Build the model. The first four arguments come from the data when the command line is used, and with ``model`` where they are 0.

        Args:
            in_channels: features of a node.
            num_classes: number of classes (or labels, or targets).
            num_layers: hops of the sampler.
            multilabel: whether a node may have several labels.
            model: an ``nn.Module`` to train in place of a ``GNN``, in Python only: it gives (B, num_classes) scores of a batch's seeds.
            forward_inputs: what its ``forward`` takes beside the features: blocks, blocks+degrees or edge_index (``hoptrain.trainers.models.batches``).
            metric: of classes acc, macro_f1 or auc; of several labels acc or micro_f1, macro_f1, auc or ap; of targets rmse, mae or r2, with
                which the model learns them by their mean squared error. Training has no auc and no ap.
            class_weight: balanced multiplies a node's loss so that each class of the training split counts alike.
            options: as ``GraphTask``.

        Raises:
            InputError: as ``GraphTask``, or options of a ``GNN`` with another model; weights of what are no classes.
        """
        if model is not None and (unused := sorted(options.keys() - _OF_ANY_MODEL)):
            raise InputError(f"{unused[0]} with a model of your own: it builds a GNN, which that takes the place of; leave it out")
        if model is None and forward_inputs != "blocks":
            raise InputError(
                f"forward_inputs is {forward_inputs} without a model of your own: it tells what that takes; give model, or leave forward_inputs out"
            )
        super().__init__(in_channels, num_classes, num_layers, None, model, forward_inputs, **options)
        self.define_labels(num_classes, multilabel, metric, class_weight)

    def setup(self, stage: str) -> None:
        """Compare the model with the data; the classes are the data's, where they were not stated.

        Raises:
            InputError: as ``GraphTask``; labels of another kind, or more classes than the model has.
        """
        super().setup(stage)
        self.match_node_labels()

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Return the loss of a mini-batch."""
        return self.node_step(batch, batch.seed_weights)

    chunked_step = training_step

    def make_chunks(self, batch: Any) -> list[Chunk]:
        """What a pipeline moves for a ``ChunkedBatch``: of each chunk its blocks and, where they were gathered, features and labels."""
        if self._feedback():
            raise InputError(
                f"{type(self._datamodule.sampler).__name__} in a pipeline: it needs activations that no stage has; use another sampler"
            )
        return [self._chunk(part, number) for number, part in enumerate(batch.chunks)]

    def _chunk(self, batch: MiniBatch, number: int) -> Chunk:
        _refuse_links(batch)
        return chunk_of(batch, number, self.degrees, normalize=self.normalize_features, forward_inputs=self.forward_inputs)

    def example_chunk(self, num_seeds: int) -> Chunk:
        """A chunk of the training split's first ``num_seeds`` nodes with all its inputs: layers are timed with it."""
        data: Dataset = self._datamodule.data
        seeds = data.split("train")[:num_seeds]
        batch = with_edge_features(self._datamodule.sampler.prepare(data.graph, seeds).sample(data.graph, seeds), data)
        x, y = (np.take(rows, ids, axis=0) for rows, ids in ((data.x, batch.node_ids), (data.y, seeds)) if rows is not None)
        batch = replace(batch, x=x, y=y)
        return self._chunk(batch.to(self.device), 0)

    def chunks_to_predict(self, batch: NodeBatch, is_first: bool) -> Iterator[Chunk]:
        """Chunks of nodes with their whole neighbourhoods; the first stage's with features."""
        data = self._datamodule.data
        for part in neighborhoods(data, batch.node_ids.cpu().numpy(), self._datamodule.num_hops):
            x = take_rows(data.x, part.node_ids) if is_first and data.x is not None else None
            yield self._chunk(replace(part, x=x).to(self.device), 0)

    def chunk_loss(self, logits: Tensor, target: tuple[Tensor, Tensor | None, int]) -> Tensor:
        """Return a chunk's share of the mean loss over all seeds of the step; the last stage's metrics take its scores."""
        y, weights, num_step_seeds = target
        return self.compute_loss("fit", logits, y, weights) / num_step_seeds


class HeteroClassifier(NodeTask, HeteroTask):
    """A model that classifies the nodes of one type of a heterogeneous graph: a ``HeteroGNN``, or your own module; it logs what ``NodeClassifier`` logs.

    Examples:
        >>> import numpy as np
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import HeteroClassifier, HeteroDataModule, HeteroDataset, HeteroGraph, HeteroSampler
        >>> graph = HeteroGraph.from_edges({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 0, 1], [0, 1, 2])}).with_reverse()
        >>> x, splits = {"user": np.eye(2), "item": np.eye(3)}, {"train": np.array([0, 2]), "val": np.array([1])}
        >>> shop = HeteroDataset(graph=graph, seed_type="item", x=x, y=np.array([0, 1, 1]), splits=splits)
        >>> data = HeteroDataModule(shop, HeteroSampler([2, 2], "item"), num_workers=0, seed=1)
        >>> model = HeteroClassifier(data.num_features, {}, data.relations, data.seed_type, data.num_classes, data.num_hops)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_acc', 'train_loss', 'train_loss_step', 'val_acc', 'val_loss']
    """

    data_class = HeteroDataModule

    def __init__(
        self,
        in_channels: dict[str, int] | None = None,
        num_nodes: dict[str, int] | None = None,
        relations: list[str] | None = None,
        seed_type: str = "",
        num_classes: int = 0,
        num_layers: int = 0,
        multilabel: bool = False,
        model: Any = None,
        forward_inputs: HeteroForwardInputs = "blocks",
        metric: str = TASKS["hetero"].metric,
        class_weight: Literal["balanced"] | None = None,
        arch: HeteroArch = "rgcn",
        hidden_channels: int = 64,
        embeddings: bool = False,
        normalize_features: bool = False,
        lr: float = 0.003,
        weight_decay: float = 0.0,
        **gnn: Any,
    ) -> None:
        """Build the model. The first seven arguments come from the data: on the command line, and with ``model`` where they are left out.

        Args:
            in_channels: features of a node, by type, of the types that have some.
            num_nodes: nodes of the types without features.
            relations: ``source:name:destination`` of each.
            seed_type: the type of the nodes that are classified.
            num_classes: number of classes (or labels, or targets).
            num_layers: hops of the sampler.
            multilabel: whether a node may have several labels.
            model: an ``nn.Module`` to train in place of a ``HeteroGNN``, in Python only; of the arguments below it has those of the training alone.
            forward_inputs: what its ``forward`` forward_inputs: blocks or edge_index (``hoptrain.trainers.models.batches``).
            metric: acc or macro_f1; of several labels also micro_f1 or ap; rmse, mae or r2, with which the model learns targets.
            class_weight: balanced multiplies a node's loss so that each class of the training split counts alike.
            arch: rgcn, gat, gin, graphconv, hgt, han; gatv2 or transformer, which read edges' features.
            hidden_channels: width of all layers (with attention over all heads together).
            embeddings: learn a vector for each node of the types without features.
            normalize_features: divide each node's features by their sum.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty; vectors of nodes have none.
            gnn: as ``HeteroGNN``.

        Raises:
            InputError: numbers without meaning, a bare type without ``embeddings``, neither sizes nor a model, options of a ``HeteroGNN`` with one.
        """
        check_training(lr=lr, weight_decay=weight_decay, **gnn)
        _check_model(model, forward_inputs, bool(relations and num_layers and num_classes), gnn)
        super().__init__(None)
        self.save_hyperparameters(ignore=["model", *([] if model is None else ["arch", "embeddings", "hidden_channels"])])
        self.forward_inputs, self.model = forward_inputs, model
        self.define_labels(num_classes, multilabel, metric, class_weight)
        if model is not None:
            self.note_module(model)
            return
        self.note_defaults(HeteroGNN)
        self.hparams["num_nodes"] = bare = num_nodes or {}
        ends: Any = [tuple(relation.split(":")) for relation in relations or []]
        self.model = HeteroGNN(arch, in_channels or {}, bare, ends, [seed_type], hidden_channels, num_classes, num_layers, **gnn)
        check_embeddings(self.model, bare, embeddings)

    def setup(self, stage: str) -> None:
        """Compare the model with the data; the classes are the data's, where they were not stated.

        Raises:
            InputError: as ``HeteroTask.compare``; labels of another kind, or more classes than the model has.
        """
        super().setup(stage)
        module = self._datamodule
        self.compare(["num_nodes", "relations", "seed_type"])
        if self.forward_inputs == "edge_index" and module.num_nodes:
            raise InputError(
                f"forward_inputs is edge_index and nodes of type {next(iter(module.num_nodes))} have no features: PyG's models take some of each "
                "type; give them some, or a model that takes blocks"
            )
        self.match_node_labels()

    def forward(self, batch: HeteroMiniBatch) -> Tensor:
        """Return the scores of the batch's seeds, (B, C)."""
        return apply_hetero_model(self.model, self.forward_inputs, self.inputs(batch), batch)

    def training_step(self, batch: HeteroMiniBatch, batch_idx: int) -> Tensor:
        """Return the loss of a mini-batch."""
        return self.node_step(batch, batch.extra.get("seed_weights"))

    def infer(self, nodes: Array) -> Tensor:
        """Return the scores of ``nodes`` (N,) from full neighbourhoods: (N, C)."""
        module = self._datamodule
        if isinstance(self.model, HeteroGNN):
            return self.exact({module.seed_type: nodes})[module.seed_type]
        options = {"normalize": self.hparams["normalize_features"], "device": self.device}
        apply = partial(apply_hetero_model, self.model, self.forward_inputs)
        return hetero_neighborhood_logits(apply, module.data, nodes, num_hops=module.num_hops, **options)


def _check_model(model: Any, forward_inputs: HeteroForwardInputs, has_sizes: bool, gnn: dict[str, Any]) -> None:
    """Refuse options of a ``HeteroGNN`` with another module, and the other way round."""
    check_choice("forward_inputs", forward_inputs, get_args(HeteroForwardInputs))
    if isinstance(model, nn.Module) and gnn:
        raise InputError(f"{next(iter(gnn))} with a model of your own: it builds a HeteroGNN, which that takes the place of; leave it out")
    if model is None and forward_inputs != "blocks":
        raise InputError(
            f"forward_inputs is {forward_inputs} without a model of your own: it tells what that takes; give model, or leave forward_inputs out"
        )
    if model is None and not has_sizes:
        raise InputError("HeteroClassifier without a model and without its sizes: give in_channels, relations, seed_type and so on")


def _refuse_links(batch: MiniBatch | HeteroMiniBatch) -> None:
    if "pairs" in batch.extra:
        raise InputError("a node classifier with a sampler of links: its batches have no nodes to learn from; use a sampler of nodes")
