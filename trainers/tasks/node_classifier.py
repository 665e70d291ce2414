"""Node classification: training on sampled batches, evaluation on full neighbourhoods."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MultilabelF1Score

from hoptrain.engine import InputError
from hoptrain.samplers import MiniBatch
from hoptrain.trainers.models.batches import Takes, chunk_of
from hoptrain.trainers.models.features import with_edge_features
from hoptrain.trainers.models.layered import Chunk
from hoptrain.trainers.tasks.graph_task import GraphTask, dropout_seed
from hoptrain.trainers.tasks.node_data import GraphDataModule, NodeBatch

_OF_ANY_MODEL = {"normalize_features", "lr", "weight_decay"}


class NodeClassifier(GraphTask):
    """A model that classifies vertices: a ``GNN``, or a module of your own.

    Logs ``train_loss``, ``train_acc``, ``val_loss``, ``val_acc``, ``test_loss`` and ``test_acc``, each over all ranks with every vertex
    counted once. With several labels a vertex, ``acc`` is the micro-averaged F1 score.
    """

    data_class = GraphDataModule

    def __init__(
        self,
        in_channels: int = 0,
        num_classes: int = 0,
        num_layers: int = 0,
        multilabel: bool = False,
        model: Any = None,
        takes: Takes = "blocks",
        **options: Any,
    ) -> None:
        """Build the model. The first four arguments come from the data when the command line is used, and with ``model`` where they are 0.

        Args:
            in_channels: features of a vertex.
            num_classes: number of classes (or labels).
            num_layers: hops of the sampler.
            multilabel: whether a vertex may have several labels.
            model: an ``nn.Module`` to train in place of a ``GNN``, in Python only: it gives (B, num_classes) scores of a batch's seeds.
            takes: what its ``forward`` takes beside the features: blocks, blocks+degrees or edge_index (``hoptrain.trainers.models.batches``).
            options: as ``GraphTask``.

        Raises:
            InputError: as ``GraphTask``, or options of a ``GNN`` with another model.
        """
        if model is not None and (unused := sorted(options.keys() - _OF_ANY_MODEL)):
            raise InputError(f"{unused[0]} with a model of your own: it builds a GNN, which that takes the place of; leave it out")
        if model is None and takes != "blocks":
            raise InputError(f"takes is {takes} without a model of your own: it tells what that takes; give model, or leave takes out")
        super().__init__(in_channels, num_classes, num_layers, score=None, model=model, takes=takes, **options)
        if num_classes:
            self._state_classes(num_classes, multilabel)

    def _state_classes(self, num_classes: int, multilabel: bool) -> None:
        self.num_classes, self.multilabel = num_classes, multilabel
        self.score_title = "micro-F1" if multilabel else "accuracy"
        self.make_scores(partial(_score, multilabel, num_classes))

    def setup(self, stage: str) -> None:
        """See ``GraphTask``; the classes are the data's, where they were not stated.

        Raises:
            InputError: besides, labels of another kind, or more classes than the model has.
        """
        super().setup(stage)
        data = self._datamodule.data
        if not self.scores:
            self._state_classes(data.num_classes, data.is_multilabel)
        mine, theirs = (self.num_classes, self.multilabel), (data.num_classes, data.is_multilabel)
        is_wider = not (self.multilabel or data.is_multilabel) and self.num_classes > data.num_classes
        if mine != theirs and not is_wider:
            raise InputError(
                f"the model tells {_kind(*mine)}, {data.name} has {_kind(*theirs)}: give num_classes and multilabel as the data module has them "
                "(num_classes, is_multilabel)"
            )

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Loss of one mini-batch, scaled so that the ranks' average is the mean over all seeds of the step."""
        _refuse_links(batch)
        torch.manual_seed(dropout_seed(batch))
        logits = self(batch)
        total = self._loss(logits, batch.y, batch.seed_weights)
        self.count("fit", logits, batch.y, total)
        for feedback in self._feedback():
            feedback.see(batch, logits)
        self.log("train_loss_step", total.detach() / batch.num_seeds, batch_size=batch.num_seeds)
        return total * (self.trainer.world_size / batch.num_step_seeds)

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
        return chunk_of(batch, number, self.degrees, normalize=self.normalize_features, takes=self.takes)

    def example_chunk(self, num_seeds: int) -> Chunk:
        """A chunk of the training split's first ``num_seeds`` vertices with all its inputs: layers are timed with it."""
        data = self._datamodule.data
        seeds = data.split("train")[:num_seeds]
        batch = with_edge_features(self._datamodule.sampler.prepare(data.graph, seeds).sample(data.graph, seeds), data)
        x, y = (np.take(rows, ids, axis=0) for rows, ids in ((data.x, batch.node_ids), (data.y, seeds)) if rows is not None)
        batch = replace(batch, x=x, y=y)
        return self._chunk(batch.to(self.device), 0)

    def chunk_loss(self, logits: Tensor, target: tuple[Tensor, Tensor | None, int]) -> Tensor:
        """A chunk's share of the mean loss over all seeds of the step; the last stage's metrics take its scores."""
        y, weights, num_step_seeds = target
        total = self._loss(logits, y, weights)
        self.count("fit", logits, y, total)
        return total / num_step_seeds

    def evaluate(self, stage: str, batch: NodeBatch) -> None:
        """This rank's share of a split."""
        logits = self.infer(batch.node_ids.cpu().numpy())
        if batch.y is not None and len(batch.y):
            y = batch.y.to(self.device)
            self.count(stage, logits, y, self._loss(logits, y))

    def _loss(self, logits: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum over the vertices (with several labels, of their labels' mean), each with its weight."""
        logits = self.checked(logits, len(y), self.num_classes)
        if self.multilabel:
            losses = F.binary_cross_entropy_with_logits(logits, y.float(), reduction="none").mean(1)
        else:
            losses = F.cross_entropy(logits, y, reduction="none")
        return losses.sum() if weights is None else losses @ weights


def _refuse_links(batch: MiniBatch) -> None:
    if "pairs" in batch.extra:
        raise InputError("a node classifier with a sampler of links: its batches have no vertices to learn from; use a sampler of vertices")


def _kind(number: int, several: bool) -> str:
    return f"{number} {'labels, several' if several else 'classes, one'} a vertex"


def _score(multilabel: bool, num_classes: int) -> Metric:
    if multilabel:
        return MultilabelF1Score(num_labels=num_classes, average="micro")
    return MulticlassAccuracy(num_classes=num_classes, average="micro")
