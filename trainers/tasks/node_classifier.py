"""Node classification: training on sampled batches, exact evaluation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MultilabelF1Score

from hoptrain.engine import InputError
from hoptrain.samplers import MiniBatch, MVSSampler, VRGCNSampler
from hoptrain.trainers.feedback.gradient_norms import GradientNorms
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.features import to_input
from hoptrain.trainers.models.gnn import Arch, Conv, Norm
from hoptrain.trainers.models.inference import exact_logits
from hoptrain.trainers.pipeline.chunk import Chunk, address_seed
from hoptrain.trainers.pipeline.seeds import ChunkedBatch, chunk_of
from hoptrain.trainers.tasks.node_data import GraphDataModule, NodeBatch
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.scored import ScoredModule

if TYPE_CHECKING:
    from hoptrain.trainers.feedback.variance_reduction import VarianceReduction


class NodeClassifier(ScoredModule):
    """A GNN that classifies vertices.

    Logs ``train_loss``, ``train_acc``, ``val_loss``, ``val_acc``, ``test_loss`` and ``test_acc``, each over all ranks with every vertex
    counted once. With several labels a vertex, ``acc`` is the micro-averaged F1 score.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        num_layers: int,
        multilabel: bool = False,
        arch: Arch = "sage",
        hidden_channels: int = 256,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        heads: int = 8,
        out_heads: int = 1,
        norm: Norm = "none",
        conv: Conv = "pyg",
        normalize_features: bool = False,
        lr: float = 0.003,
        weight_decay: float = 0.0,
    ) -> None:
        """Build the model. The first four arguments come from the data when the command line is used.

        Args:
            in_channels: features of a vertex.
            num_classes: number of classes (or labels).
            num_layers: hops of the sampler.
            multilabel: whether a vertex may have several labels.
            arch: sage, gat, gcn or gin.
            hidden_channels: width between layers (for gat over all heads together).
            dropout: share of hidden inputs dropped (and of gat's attention).
            input_dropout: share of features dropped.
            heads: attention heads of gat.
            out_heads: attention heads of gat's last layer, averaged.
            norm: normalisation between layers.
            conv: library of the convolutions.
            normalize_features: divide each vertex's features by their sum.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty.
        """
        check_training(dropout=dropout, input_dropout=input_dropout, lr=lr, weight_decay=weight_decay)
        super().__init__(partial(_score, multilabel, num_classes))
        self.save_hyperparameters()
        self.model = GNN(
            arch,
            in_channels,
            hidden_channels,
            num_classes,
            num_layers,
            dropout=dropout,
            input_dropout=input_dropout,
            heads=heads,
            out_heads=out_heads,
            norm=norm,
            conv=conv,
        )
        self.normalize_features = normalize_features
        self.multilabel = multilabel
        self.score_title = "micro-F1" if multilabel else "accuracy"
        # (V,) in-degrees of the graph, on the model's device; not part of a checkpoint, since it belongs to the data.
        self.register_buffer("degrees", torch.empty(0), persistent=False)
        self.degrees: Tensor
        # What some samplers learn from the training: made in ``setup``.
        self.reduction: VarianceReduction | None = None
        self.norms: GradientNorms | None = None

    def setup(self, stage: str) -> None:
        """Take the graph's degrees."""
        data = self._datamodule.data
        if data.num_features != self.model.widths[0] or self._datamodule.num_hops != self.model.num_layers:
            raise InputError(
                f"the model takes {self.model.widths[0]} features and {self.model.num_layers} blocks, {data.name} with this sampler gives "
                f"{data.num_features} and {self._datamodule.num_hops}: use the data set and the number of hops that it was made for"
            )
        self.degrees = torch.from_numpy(data.graph.in_degrees()).float().to(self.device)
        if stage == "fit":
            sampler = self._datamodule.sampler
            self.norms = GradientNorms(sampler, data.graph.num_nodes) if isinstance(sampler, MVSSampler) else None
            blocks_of = sampler.sampler if isinstance(sampler, MVSSampler) else sampler
            self.reduction = self._make_reduction() if isinstance(blocks_of, VRGCNSampler) else None

    def _make_reduction(self) -> VarianceReduction:
        from hoptrain.trainers.feedback.variance_reduction import VarianceReduction

        reduction = VarianceReduction(self.model, self._datamodule.data, normalize=self.normalize_features).to(self.device)
        # Each rank has a history of its own; by default DDP would send rank 0's to the others, at every step.
        self._ddp_params_and_buffers_to_ignore = [f"reduction.{name}" for name, _ in reduction.named_buffers()]
        return reduction

    def forward(self, batch: MiniBatch) -> Tensor:
        """Scores of the batch's seeds, (B, num_classes)."""
        x, degrees = to_input(batch.x, self.normalize_features), self.degrees[batch.node_ids.long()]
        logits: Tensor = self.model(x, batch.blocks, degrees) if self.reduction is None else self.reduction(x, batch, degrees)
        return logits

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Loss of one mini-batch, scaled so that the ranks' average is the mean over all seeds of the step."""
        _refuse_links(batch)
        torch.manual_seed(dropout_seed(batch))
        logits = self(batch)
        total = self._loss(logits, batch.y, batch.seed_weights)
        self.count("fit", logits, batch.y, total)
        if self.norms is not None:
            self.norms.see(batch, logits)
        self.log("train_loss_step", total.detach() / batch.num_seeds, batch_size=batch.num_seeds)
        return total * (self.trainer.world_size / batch.num_step_seeds)

    def make_chunks(self, batch: ChunkedBatch) -> list[Chunk]:
        """What a pipeline moves for a batch: of each chunk its blocks and, where they were gathered, features and labels."""
        if self.reduction is not None or self.norms is not None:
            raise InputError(
                f"{type(self._datamodule.sampler).__name__} in a pipeline: it needs activations that no stage has; use another sampler"
            )
        return [self._chunk(part, number) for number, part in enumerate(batch.chunks)]

    def _chunk(self, batch: MiniBatch, number: int) -> Chunk:
        _refuse_links(batch)
        return chunk_of(batch, number, self.degrees, normalize=self.normalize_features)

    def example_chunk(self, num_seeds: int) -> Chunk:
        """A chunk of the training split's first ``num_seeds`` vertices with all its inputs: layers are timed with it."""
        data = self._datamodule.data
        seeds = data.split("train")[:num_seeds]
        batch = self._datamodule.sampler.prepare(data.graph, seeds).sample(data.graph, seeds)
        x, y = (np.take(rows, ids, axis=0) for rows, ids in ((data.x, batch.node_ids), (data.y, seeds)) if rows is not None)
        batch = replace(batch, x=x, y=y)
        return self._chunk(batch.to(self.device), 0)

    def chunk_loss(self, logits: Tensor, target: tuple[Tensor, Tensor | None, int]) -> Tensor:
        """A chunk's share of the mean loss over all seeds of the step; the last stage's metrics take its scores."""
        y, weights, num_step_seeds = target
        total = self._loss(logits, y, weights)
        self.count("fit", logits, y, total)
        return total / num_step_seeds

    def commit(self) -> None:
        """Count what the batch that is done gave, and keep its activations where the sampler asks for them."""
        super().commit()
        if self.reduction is not None:
            self.reduction.commit()

    def rank_state(self) -> dict[str, Tensor]:
        """This rank's figures of the epoch so far, its history of activations and the gradient norms that it has seen."""
        return super().rank_state() | self._tables()

    def load_rank_state(self, state: dict[str, Tensor]) -> None:
        """Take them back."""
        super().load_rank_state(state)
        for name, table in self._tables().items():
            table.copy_(state[name])

    def _tables(self) -> dict[str, Tensor]:
        tables = {} if self.reduction is None else {f"history.{name}": table for name, table in self.reduction.history.named_buffers()}
        return tables if self.norms is None else tables | {"norms": self.norms.norms}

    def on_train_epoch_start(self) -> None:
        """Begin the epoch's figures, and tell the sampler what it draws by: the norms seen in the epoch before."""
        super().on_train_epoch_start()
        if self.norms is not None:
            self.norms.hand_over(self.trainer)

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Scores of this rank's share of the vertices, (N, num_classes) float32 on the CPU."""
        return self._exact(batch).float().cpu()

    def _exact(self, batch: NodeBatch) -> Tensor:
        return exact_logits(
            self.model,
            self._datamodule.data,
            batch.node_ids.cpu().numpy(),
            normalize=self.normalize_features,
            device=self.device,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
        )

    def evaluate(self, stage: str, batch: NodeBatch) -> None:
        """This rank's share of a split, exactly."""
        logits = self._exact(batch)
        if batch.y is not None and len(batch.y):
            y = batch.y.to(self.device)
            self.count(stage, logits, y, self._loss(logits, y))

    def _loss(self, logits: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum over the vertices (with several labels, of their labels' mean), each with its weight."""
        logits = self.checked(logits, len(y), self.hparams["num_classes"])
        if self.multilabel:
            losses = F.binary_cross_entropy_with_logits(logits, y.float(), reduction="none").mean(1)
        else:
            losses = F.cross_entropy(logits, y, reduction="none")
        return losses.sum() if weights is None else losses @ weights

    @property
    def _datamodule(self) -> GraphDataModule:
        datamodule: Any = getattr(self.trainer, "datamodule", None)
        if not isinstance(datamodule, GraphDataModule):
            raise InputError("NodeClassifier evaluates on the whole graph: run it with trainer.fit(model, datamodule=GraphDataModule(...))")
        return datamodule


def dropout_seed(batch: MiniBatch) -> int:
    """Torch's seed for a batch's dropout, from the address of the batch: a resumed run drops the units that one in one piece drops."""
    return address_seed(batch.seed, batch.epoch, batch.batch)


def _refuse_links(batch: MiniBatch) -> None:
    if "pairs" in batch.extra:
        raise InputError("a node classifier with a sampler of links: its batches have no vertices to learn from; use a sampler of vertices")


def _score(multilabel: bool, num_classes: int) -> Metric:
    if multilabel:
        return MultilabelF1Score(num_labels=num_classes, average="micro")
    return MulticlassAccuracy(num_classes=num_classes, average="micro")
