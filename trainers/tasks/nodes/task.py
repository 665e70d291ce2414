"""Node classification and regression: training on sampled batches, evaluation from full neighbourhoods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.take import take_rows
from hoptrain.samplers import HeteroMiniBatch, MiniBatch
from hoptrain.samplers.batch.minibatch import SampledBatch
from hoptrain.trainers.metrics.own import AnyMetric
from hoptrain.trainers.models.batches import ForwardInputs, HeteroForwardInputs, apply_hetero_model, choose_inputs, chunk_of
from hoptrain.trainers.models.features import with_edge_features
from hoptrain.trainers.models.hetero.gnn import HeteroGNN
from hoptrain.trainers.models.hetero.inference import hetero_neighborhood_logits
from hoptrain.trainers.models.hetero.layers import HeteroArch
from hoptrain.trainers.models.inference import neighborhoods
from hoptrain.trainers.models.layered import Chunk
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import ExactTask, GraphTask, HeteroTask, no_sizes
from hoptrain.trainers.tasks.labelled import LabelMixin
from hoptrain.trainers.tasks.nodes.data import HeteroDataModule, NodeDataModule
from hoptrain.trainers.tasks.shared_data import NodeBatch, SharedDataModule

_OF_ANY_MODEL = {"normalize_features", "lr", "weight_decay", "loss", "optimizer", "lr_scheduler"}


class NodeTask(LabelMixin, ExactTask):
    """A base class of tasks that learn labels of nodes."""

    forward_inputs: Any

    def match_node_labels(self) -> None:
        """Compare the model's labels with those of the data's nodes; a model without labels adopts those of the data.

        Raises:
            InputError: the data have labels of another kind, more classes than the model, or, unless the trainer predicts, no labels; or the
                ``eval_sampler`` has another number of hops than a model over blocks needs.
        """
        module, data = self._datamodule, self._datamodule.data
        hops, eval_hops = module.num_hops, module.num_hops if module.eval_sampler is None else module.eval_sampler.num_hops
        if eval_hops != hops and self.forward_inputs != "edge_index":
            raise InputError(
                f"eval_sampler has {eval_hops} hops, sampler {hops}: a model over blocks needs the same number in evaluation; give {hops} fanouts"
            )
        if not self.trainer.predicting:
            module.check_labels()
        if data.y is not None:
            self.match_labels(data.name, data.y, data.num_classes, data.splits.get("train"))

    def node_step(self, batch: MiniBatch | HeteroMiniBatch, weights: Tensor | None) -> Tensor:
        """Return the loss of a mini-batch with ``weights`` (B,) of its seeds. The average over ranks is the mean over the step's seeds."""
        _refuse_links(batch)
        self.seed_dropout(batch)
        total = self.compute_loss("fit", self(batch), batch.y, weights)
        self.log_step(total / batch.num_seeds, batch.num_seeds)
        return total * (self.trainer.world_size / batch.num_step_seeds)

    def evaluate(self, stage: str, batch: NodeBatch | SampledBatch) -> None:
        """Compute loss and metric of this rank's part of a split, given as node ids or as a mini-batch of the ``eval_sampler``."""
        logits = self.outputs_of(batch)
        if batch.y is not None and len(batch.y):
            self.compute_loss(stage, logits, batch.y.to(self.device))


class NodeClassifier(NodeTask, GraphTask):
    """A LightningModule that classifies nodes with a ``GNN``, or with your own module.

    It logs ``train_loss``, ``train_acc``, ``val_loss``, ``val_acc``, ``test_loss`` and ``test_acc``, over all ranks, with every node counted once.
    Another metric is logged under its own name. With several labels per node, ``acc`` is the micro-averaged F1 score.

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
        forward_inputs: ForwardInputs | None = None,
        metric: AnyMetric = TASKS["nodes"].metric,
        class_weight: Literal["balanced"] | None = None,
        **options: Any,
    ) -> None:
        """Build the model. On the command line, the first four arguments come from the data; in Python, they do if ``model`` is given and they are 0.

        Args:
            in_channels: number of features of a node.
            num_classes: number of classes, labels or targets.
            num_layers: number of layers, which equals the sampler's hops.
            multilabel: whether a node may have several labels.
            model: your own ``nn.Module`` to train instead of a ``GNN``, in Python only. It returns logits (B, num_classes) for a batch's seeds.
            forward_inputs: inputs of your module's ``forward`` in addition to the features: blocks, blocks+degrees or edge_index
                (``hoptrain.trainers.models.batches``). By default edge_index if ``forward`` has a parameter of this name, else blocks.
            metric: metric to log. For classes: acc, macro_f1 or auc. For several labels: acc or micro_f1, macro_f1, auc or ap. For regression: rmse, mae or
                r2, with the mean squared error as loss. auc and ap are not computed in training. Or a metric or MetricCollection of torchmetrics.
            class_weight: balanced weights the loss of each class inversely to its frequency in the training split. By default all classes count equally.
            options: further options of ``GraphTask``, such as arch, hidden_channels, lr, loss and optimizer.

        Raises:
            InputError: an option is out of range or unknown, options of a ``GNN`` are given with another model, or class weights without classes.
        """
        if isinstance(model, nn.Module) and (unused := sorted(options.keys() - _OF_ANY_MODEL)):
            known = ", ".join(sorted(_OF_ANY_MODEL))
            raise InputError(f"{unused[0]} with your own model: the options are {known}, others are for the built-in GNN; leave it out")
        super().__init__(in_channels, num_classes, num_layers, model, forward_inputs, **options)
        self.define_labels(num_classes, multilabel, metric, class_weight)

    def setup(self, stage: str) -> None:
        """Check that the model matches the data; the number of classes comes from the data if it was not given.

        Raises:
            InputError: the model was built for other data, or the data have labels of another kind or more classes than the model.
        """
        super().setup(stage)
        self.match_node_labels()

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Return the loss of a mini-batch."""
        return self.node_step(batch, batch.seed_weights)

    chunked_step = training_step

    def make_chunks(self, batch: Any) -> list[Chunk]:
        """Return the pipeline's chunks of a ``ChunkedBatch``: each with its blocks and, if the batch has them, features and labels."""
        if self._feedback():
            raise InputError(
                f"{type(self._datamodule.sampler).__name__} in a pipeline: it needs activations of all layers, which no stage has; use another sampler"
            )
        return [self._chunk(part, number) for number, part in enumerate(batch.chunks)]

    def _chunk(self, batch: MiniBatch, number: int) -> Chunk:
        _refuse_links(batch)
        return chunk_of(batch, number, self.degrees, normalize=self.normalize_features, forward_inputs=self.forward_inputs)

    def example_chunk(self, num_seeds: int) -> Chunk:
        """Return a chunk of the first ``num_seeds`` training nodes with all its inputs, for timing the layers."""
        data: Dataset = self._datamodule.data
        seeds = data.split("train")[:num_seeds]
        batch = with_edge_features(self._datamodule.sampler.prepare(data.graph, seeds).sample(data.graph, seeds), data)
        x, y = (take_rows(rows, ids) for rows, ids in ((data.x, batch.node_ids), (data.y, seeds)) if rows is not None)
        batch = replace(batch, x=x, y=y)
        return self._chunk(batch.to(self.device), 0)

    def chunks_to_predict(self, batch: NodeBatch, is_first: bool) -> Iterator[Chunk]:
        """Yield chunks of nodes with their full neighbourhoods. On the first stage of a pipeline, chunks include features."""
        data = self._datamodule.data
        for part in neighborhoods(data, batch.seeds.cpu().numpy(), self._datamodule.num_hops):
            x = take_rows(data.x, part.node_ids) if is_first and data.x is not None else None
            yield self._chunk(replace(part, x=x).to(self.device), 0)

    def chunk_loss(self, logits: Tensor, target: tuple[Tensor, Tensor | None, int]) -> Tensor:
        """Return a chunk's share of the mean loss over all seeds of the step, and update the last stage's metrics."""
        y, weights, num_step_seeds = target
        return self.compute_loss("fit", logits, y, weights) / num_step_seeds


class HeteroClassifier(NodeTask, HeteroTask):
    """A LightningModule that classifies the nodes of one type of a heterogeneous graph, with a ``HeteroGNN`` or with your own module.

    It logs the same metrics as ``NodeClassifier``.

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
        forward_inputs: HeteroForwardInputs | None = None,
        metric: AnyMetric = TASKS["hetero"].metric,
        class_weight: Literal["balanced"] | None = None,
        arch: HeteroArch = "rgcn",
        hidden_channels: int = 64,
        embeddings: bool = False,
        **options: Any,
    ) -> None:
        """Build the model. On the command line, the first seven arguments come from the data; in Python, they do if ``model`` is given and they are left out.

        Args:
            in_channels: number of features of a node, by type, for the types with features.
            num_nodes: number of nodes, by type, for the types without features.
            relations: names ``source:name:destination`` of the relations.
            seed_type: type of the nodes that are classified.
            num_classes: number of classes, labels or targets.
            num_layers: number of layers, which equals the sampler's hops.
            multilabel: whether a node may have several labels.
            model: your own ``nn.Module`` to train instead of a ``HeteroGNN``, in Python only. Options of ``HeteroGNN`` do not apply to it.
            forward_inputs: inputs of your module's ``forward``: blocks or edge_index. By default edge_index if the name of a parameter begins with it.
            metric: metric to log: acc or macro_f1; for several labels also micro_f1 or ap; for regression rmse, mae or r2. Or a metric of torchmetrics.
            class_weight: balanced weights the loss of each class inversely to its frequency in the training split. By default all classes count equally.
            arch: layer type: rgcn, gat, gin, graphconv, hgt or han; or gatv2 or transformer, which read edge features.
            hidden_channels: width of all layers (the sum over all attention heads).
            embeddings: learn an embedding for each node of the types without features.
            options: further options of ``HeteroTask`` and ``HeteroGNN``, such as lr, loss, optimizer and dropout.

        Raises:
            InputError: a number is out of range, a type without features needs ``embeddings``, or neither sizes nor a model are given.
        """
        if model is None and not (relations and num_layers and num_classes):
            raise InputError(no_sizes("HeteroClassifier", "in_channels, relations, seed_type, num_classes and num_layers"))
        super().__init__(model, **options)
        self.hparams["forward_inputs"] = self.forward_inputs = choose_inputs(model, forward_inputs, HeteroForwardInputs)
        self.define_labels(num_classes, multilabel, metric, class_weight)
        if model is not None:
            self.model = self.note_module(model)
            return
        self.hparams["num_nodes"] = bare = num_nodes or {}
        sizes = hidden_channels, num_classes, num_layers
        self.model = self.make_gnn(arch, in_channels or {}, bare, relations or [], [seed_type], *sizes, embeddings)

    def setup(self, stage: str) -> None:
        """Check that the model matches the data; the number of classes comes from the data if it was not given.

        Raises:
            InputError: the model was built for other data, or the data have labels of another kind or more classes than the model.
        """
        super().setup(stage)
        module = self._datamodule
        self.compare(["num_nodes", "relations", "seed_type"])
        if self.forward_inputs == "edge_index" and module.num_nodes:
            raise InputError(
                f"forward_inputs is edge_index and nodes of type {next(iter(module.num_nodes))} have no features: PyG's models need features of each "
                "type; give them some, or use a model that takes blocks"
            )
        self.match_node_labels()

    def forward(self, batch: HeteroMiniBatch) -> Tensor:
        """Compute logits (B, C) for the seeds of a batch."""
        return apply_hetero_model(self.model, self.forward_inputs, self.inputs(batch), batch)

    def training_step(self, batch: HeteroMiniBatch, batch_idx: int) -> Tensor:
        """Return the loss of a mini-batch."""
        return self.node_step(batch, batch.extra.get("seed_weights"))

    def infer(self, nodes: Array) -> Tensor:
        """Compute logits (N, C) for ``nodes`` (N,) from full neighbourhoods."""
        module = self._datamodule
        if isinstance(self.model, HeteroGNN):
            return self.exact({module.seed_type: nodes})[module.seed_type]
        options = {"normalize": self.hparams["normalize_features"], "device": self.device}
        apply = partial(apply_hetero_model, self.model, self.forward_inputs)
        return hetero_neighborhood_logits(apply, module.data, nodes, num_hops=module.num_hops, **options)


def _refuse_links(batch: MiniBatch | HeteroMiniBatch) -> None:
    if "pairs" in batch.extra:
        raise InputError("a node classifier with a sampler of links: its batches have no labelled nodes; use a sampler of nodes")
