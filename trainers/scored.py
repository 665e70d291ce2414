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
_FREE = {"lr", "weight_decay", "dropout", "input_dropout"}
"""Arguments that a checkpoint may have otherwise: they change no weight's shape and no score."""


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

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Compare the checkpoint's model with this one, before torch lists every tensor that does not fit.

        Raises:
            InputError: it is another one.
        """
        theirs, remedy = checkpoint.get("hyper_parameters", {}), "use the data and the configuration that it was trained with"
        for name in sorted(set(theirs) & set(self.hparams) - _FREE):
            if theirs[name] != self.hparams[name]:
                raise InputError(f"the checkpoint's model has {name} {theirs[name]}, this one {self.hparams[name]}: {remedy}")
        other = sorted(checkpoint["state_dict"].keys() ^ self.state_dict().keys())
        if other:
            raise InputError(f"the checkpoint is of another kind of model: {other[0]} is in one of the two only; {remedy}, its task too")

    @abstractmethod
    def evaluate(self, stage: str, batch: Any) -> None:
        """``count`` the batch's loss and score."""

    def count(self, stage: str, outputs: Tensor, y: Tensor, total: Tensor) -> None:
        """Take a batch's ``total`` loss (a sum over its examples), and the score of ``outputs`` where the stage has one."""
        metric_of(self.losses, stage).update(total.detach() / len(y), weight=len(y))
        if stage in self.scores:
            metric_of(self.scores, stage).update(outputs.detach(), y)

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
