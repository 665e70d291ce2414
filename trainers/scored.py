"""What all tasks share: loss and score of each stage, over all ranks, with every example counted once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric

from hoptrain.engine import InputError

STAGES = ("fit", "val", "test")


class ScoredModule(LightningModule):
    """Logs ``train_loss``, ``val_loss`` and ``test_loss`` and likewise each of ``score_names`` at the end of an epoch.

    Attributes:
        score_names: under which a stage's score is logged.
        score_title: what the score is, for people.
    """

    score_names: ClassVar[tuple[str, ...]] = ("acc",)
    score_title = "accuracy"

    def __init__(self, score: Callable[[], Metric], scored: Sequence[str] = STAGES) -> None:
        """Make the metrics; ``scored`` are the stages that have a score."""
        super().__init__()
        self.losses = nn.ModuleDict({stage: MeanMetric() for stage in STAGES})
        self.scores = nn.ModuleDict({stage: score() for stage in scored})

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.hparams["lr"], weight_decay=self.hparams["weight_decay"])

    def on_train_epoch_end(self) -> None:
        """Log the epoch's loss and score over all ranks."""
        self._log("fit", "train")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Evaluate a batch of this rank's share."""
        self.evaluate("val", batch)

    def on_validation_epoch_end(self) -> None:
        """Log loss and score over all ranks."""
        self._log("val", "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Evaluate a batch of this rank's share."""
        self.evaluate("test", batch)

    def on_test_epoch_end(self) -> None:
        """Log loss and score over all ranks."""
        self._log("test", "test")

    @abstractmethod
    def evaluate(self, stage: str, batch: Any) -> None:
        """``count`` the batch's loss and score."""

    def count(self, stage: str, outputs: Tensor, y: Tensor, total: Tensor) -> None:
        """Take a batch's ``total`` loss (a sum over its examples), and the score of ``outputs`` where the stage has one."""
        metric_of(self.losses, stage).update(total.detach() / len(y), weight=len(y))
        if stage in self.scores:
            metric_of(self.scores, stage).update(outputs.detach(), y)

    def checked(self, outputs: object, rows: int, columns: int) -> Tensor:
        """What the model returned, if it is ``rows`` rows of ``columns`` scores. A subclass may bring any model.

        Raises:
            InputError: it is something else.
        """
        if isinstance(outputs, Tensor) and outputs.shape == (rows, columns) and outputs.is_floating_point():
            return outputs
        found = f"{outputs.dtype} of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InputError(
            f"the model of {type(self).__name__} returned {found}: it gives floating scores of shape ({rows}, {columns}), a row for each "
            "example of the batch; correct its forward"
        )

    def _log(self, stage: str, name: str) -> None:
        loss = metric_of(self.losses, stage)
        self.log(f"{name}_loss", loss.compute(), prog_bar=True)
        loss.reset()
        if stage in self.scores:
            score = metric_of(self.scores, stage)
            value = score.compute()
            for kind in self.score_names:
                self.log(f"{name}_{kind}", value, prog_bar=True)
            score.reset()


def metric_of(metrics: nn.ModuleDict, stage: str) -> Metric:
    """A stage's metric."""
    metric = metrics[stage]
    if not isinstance(metric, Metric):
        raise TypeError(f"{stage} holds a {type(metric).__name__}, not a metric")
    return metric
