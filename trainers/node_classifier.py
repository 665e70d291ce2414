"""Node classification: training on sampled batches, exact evaluation."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import torch.nn.functional as F
from pytorch_lightning import LightningModule
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric
from torchmetrics.classification import MulticlassAccuracy, MultilabelF1Score

from hoptrain.engine import InputError
from hoptrain.samplers import MiniBatch
from hoptrain.trainers.datamodule import GraphDataModule, NodeBatch
from hoptrain.trainers.features import to_input
from hoptrain.trainers.inference import exact_logits
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.gnn import Arch, Conv, Norm

_SHAPE = ("arch", "conv", "in_channels", "num_classes", "num_layers", "hidden_channels", "heads", "out_heads", "norm")
"""The arguments that fix the shapes of the weights."""


class NodeClassifier(LightningModule):
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
        super().__init__()
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
        self.losses = nn.ModuleDict({stage: MeanMetric() for stage in ("fit", "val", "test")})
        self.scores = nn.ModuleDict({stage: _score(multilabel, num_classes) for stage in ("fit", "val", "test")})
        # (V,) in-degrees of the graph, on the model's device; not part of a checkpoint, since it belongs to the data.
        self.register_buffer("degrees", torch.empty(0), persistent=False)
        self.degrees: Tensor

    def setup(self, stage: str) -> None:
        """Take the graph's degrees."""
        data = self._datamodule.data
        if data.num_features != self.model.widths[0] or self._datamodule.num_hops != self.model.num_layers:
            raise InputError(
                f"the model takes {self.model.widths[0]} features and {self.model.num_layers} blocks, {data.name} with this sampler gives "
                f"{data.num_features} and {self._datamodule.num_hops}: use the data set and the number of hops that it was made for"
            )
        self.degrees = torch.from_numpy(data.graph.in_degrees()).float().to(self.device)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Compare the checkpoint's model with this one, before torch lists every tensor that does not fit."""
        theirs = checkpoint.get("hyper_parameters", {})
        for name in _SHAPE:
            if name in theirs and theirs[name] != self.hparams[name]:
                raise InputError(
                    f"the checkpoint's model has {name} {theirs[name]}, this one {self.hparams[name]}: "
                    "use the data set and the configuration that it was trained with"
                )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.hparams["lr"], weight_decay=self.hparams["weight_decay"])

    def forward(self, batch: MiniBatch) -> Tensor:
        """Scores of the batch's seeds, (B, num_classes)."""
        x = to_input(batch.x, self.normalize_features)
        logits: Tensor = self.model(x, batch.blocks, self.degrees[batch.node_ids.long()])
        return logits

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Loss of one mini-batch, scaled so that the ranks' average is the mean over all seeds of the step."""
        if "pairs" in batch.extra:
            raise InputError(
                "a node classifier with a sampler of links: its batches have no vertices to learn from; use a sampler of vertices"
            )
        torch.manual_seed(dropout_seed(batch))
        logits = self(batch)
        total = self._loss(logits, batch.y, batch.seed_weights)
        self._update("fit", logits, batch.y, total)
        self.log("train_loss_step", total.detach() / batch.num_seeds, batch_size=batch.num_seeds)
        return total * (self.trainer.world_size / batch.num_step_seeds)

    def on_train_epoch_end(self) -> None:
        """Log the epoch's loss and score over all ranks."""
        self._log("fit", "train")

    def validation_step(self, batch: NodeBatch, batch_idx: int) -> None:
        """Evaluate this rank's share of the validation split exactly."""
        self._evaluate("val", batch)

    def on_validation_epoch_end(self) -> None:
        """Log loss and score over all ranks."""
        self._log("val", "val")

    def test_step(self, batch: NodeBatch, batch_idx: int) -> None:
        """Evaluate this rank's share of the test split exactly."""
        self._evaluate("test", batch)

    def on_test_epoch_end(self) -> None:
        """Log loss and score over all ranks."""
        self._log("test", "test")

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Scores of this rank's share of the vertices, (N, num_classes) float32 on the CPU."""
        return self._exact(batch).cpu()

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

    def _evaluate(self, stage: str, batch: NodeBatch) -> None:
        logits = self._exact(batch)
        if batch.y is not None and len(batch.y):
            y = batch.y.to(self.device)
            self._update(stage, logits, y, self._loss(logits, y))

    def _loss(self, logits: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum over the vertices (with several labels, of their labels' mean), each with its weight."""
        if self.multilabel:
            losses = F.binary_cross_entropy_with_logits(logits, y.float(), reduction="none").mean(1)
        else:
            losses = F.cross_entropy(logits, y, reduction="none")
        return losses.sum() if weights is None else losses @ weights

    def _update(self, stage: str, logits: Tensor, y: Tensor, total: Tensor) -> None:
        self._metric(self.losses, stage).update(total.detach() / len(y), weight=len(y))
        self._metric(self.scores, stage).update(logits.detach(), y)

    def _log(self, stage: str, name: str) -> None:
        for metrics, kind in ((self.losses, "loss"), (self.scores, "acc")):
            metric = self._metric(metrics, stage)
            self.log(f"{name}_{kind}", metric.compute(), prog_bar=True)
            metric.reset()

    @staticmethod
    def _metric(metrics: nn.ModuleDict, stage: str) -> Metric:
        metric = metrics[stage]
        if not isinstance(metric, Metric):
            raise TypeError(f"{stage} holds a {type(metric).__name__}, not a metric")
        return metric

    @property
    def _datamodule(self) -> GraphDataModule:
        datamodule: Any = getattr(self.trainer, "datamodule", None)
        if not isinstance(datamodule, GraphDataModule):
            raise InputError("NodeClassifier evaluates on the whole graph: run it with trainer.fit(model, datamodule=GraphDataModule(...))")
        return datamodule


def dropout_seed(batch: MiniBatch) -> int:
    """Torch's seed for a batch's dropout, from the address of the batch: a resumed run drops the units that one in one piece drops."""
    address = f"{batch.seed}/{batch.epoch}/{batch.batch}".encode()
    return int.from_bytes(hashlib.blake2b(address, digest_size=8).digest(), "little") >> 1


def _score(multilabel: bool, num_classes: int) -> Metric:
    if multilabel:
        return MultilabelF1Score(num_labels=num_classes, average="micro")
    return MulticlassAccuracy(num_classes=num_classes, average="micro")
