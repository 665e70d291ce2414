"""Classification of vertices, and regression: training on sampled batches, evaluation on full neighbourhoods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from hoptrain.engine import InputError
from hoptrain.engine.features.take import take_rows
from hoptrain.samplers import MiniBatch
from hoptrain.trainers.models.batches import Takes, chunk_of
from hoptrain.trainers.models.features import with_edge_features
from hoptrain.trainers.models.inference import neighborhoods
from hoptrain.trainers.models.layered import Chunk
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import seed_dropout
from hoptrain.trainers.tasks.labelled import LabelledTask
from hoptrain.trainers.tasks.node_data import GraphDataModule, NodeBatch

_OF_ANY_MODEL = {"normalize_features", "lr", "weight_decay"}


class NodeClassifier(LabelledTask):
    """A model that classifies vertices: a ``GNN``, or a module of your own.

    Logs ``train_loss``, ``train_acc``, ``val_loss``, ``val_acc``, ``test_loss`` and ``test_acc``, each over all ranks with every vertex
    counted once; or another score by its name. With several labels a vertex, ``acc`` is the micro-averaged F1 score.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import GraphDataModule, NeighborSampler, NodeClassifier
        >>> data = GraphDataModule("digits-knn", NeighborSampler([5, 5]), batch_size=256, num_workers=0, seed=1)
        >>> model = NodeClassifier(data.num_features, data.num_classes, data.num_hops, hidden_channels=16)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_acc', 'train_loss', 'train_loss_step', 'val_acc', 'val_loss']
    """

    data_class: ClassVar[type[GraphDataModule]] = GraphDataModule

    def __init__(
        self,
        in_channels: int = 0,
        num_classes: int = 0,
        num_layers: int = 0,
        multilabel: bool = False,
        model: Any = None,
        takes: Takes = "blocks",
        score: str = TASKS["nodes"].score,
        class_weight: Literal["balanced"] | None = None,
        **options: Any,
    ) -> None:
        """Build the model. The first four arguments come from the data when the command line is used, and with ``model`` where they are 0.

        Args:
            in_channels: features of a vertex.
            num_classes: number of classes (or labels, or targets).
            num_layers: hops of the sampler.
            multilabel: whether a vertex may have several labels.
            model: an ``nn.Module`` to train in place of a ``GNN``, in Python only: it gives (B, num_classes) scores of a batch's seeds.
            takes: what its ``forward`` takes beside the features: blocks, blocks+degrees or edge_index (``hoptrain.trainers.models.batches``).
            score: of classes acc, macro_f1 or auc; of several labels acc or micro_f1, macro_f1, auc or ap; of targets rmse, mae or r2, with
                which the model learns them by their mean squared error. Training has no auc and no ap.
            class_weight: balanced multiplies a vertex's loss so that each class of the training split counts alike.
            options: as ``GraphTask``.

        Raises:
            InputError: as ``GraphTask``, or options of a ``GNN`` with another model; weights of what are no classes.
        """
        if model is not None and (unused := sorted(options.keys() - _OF_ANY_MODEL)):
            raise InputError(f"{unused[0]} with a model of your own: it builds a GNN, which that takes the place of; leave it out")
        if model is None and takes != "blocks":
            raise InputError(f"takes is {takes} without a model of your own: it tells what that takes; give model, or leave takes out")
        options |= {"num_classes": num_classes, "multilabel": multilabel, "score": score, "class_weight": class_weight}
        super().__init__(in_channels, num_classes, num_layers, model=model, takes=takes, **options)

    def setup(self, stage: str) -> None:
        """See ``GraphTask``; the classes are the data's, where they were not stated.

        Raises:
            InputError: besides, labels of another kind, or more classes than the model has.
        """
        super().setup(stage)
        data = self._datamodule.data
        self.take_labels(data.name, data.y, data.num_classes, data.splits.get("train"))

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Loss of one mini-batch, scaled so that the ranks' average is the mean over all seeds of the step."""
        _refuse_links(batch)
        seed_dropout(batch, self.device)
        logits = self(batch)
        total = self.judge("fit", logits, batch.y, batch.seed_weights)
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

    def chunks_to_predict(self, batch: NodeBatch, is_first: bool) -> Iterator[Chunk]:
        """Chunks of vertices with their whole neighbourhoods; the first stage's with features."""
        data = self._datamodule.data
        for part in neighborhoods(data, batch.node_ids.cpu().numpy(), self._datamodule.num_hops):
            x = take_rows(data.x, part.node_ids) if is_first and data.x is not None else None
            yield self._chunk(replace(part, x=x).to(self.device), 0)

    def chunk_loss(self, logits: Tensor, target: tuple[Tensor, Tensor | None, int]) -> Tensor:
        """A chunk's share of the mean loss over all seeds of the step; the last stage's metrics take its scores."""
        y, weights, num_step_seeds = target
        return self.judge("fit", logits, y, weights) / num_step_seeds

    def evaluate(self, stage: str, batch: NodeBatch) -> None:
        """This rank's share of a split."""
        logits = self.infer(batch.node_ids.cpu().numpy())
        if batch.y is not None and len(batch.y):
            self.judge(stage, logits, batch.y.to(self.device))


def _refuse_links(batch: MiniBatch) -> None:
    if "pairs" in batch.extra:
        raise InputError("a node classifier with a sampler of links: its batches have no vertices to learn from; use a sampler of vertices")
