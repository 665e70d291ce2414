"""Kinds of labels: the loss of each kind, and its metrics by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, R2Score
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score, MultilabelF1Score

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.trainers.metrics.each_label import PerLabelMetric
from hoptrain.trainers.metrics.own import row_losses

Kind = Literal["classes", "labels", "targets"]
_Scores = dict[str, tuple[str, Callable[[int], Metric]]]

# torchmetrics must not check each batch: it would sort labels and synchronise with a GPU. The data set has checked the labels already.
_SCORES: dict[Kind, _Scores] = {
    "classes": {
        "acc": ("accuracy", lambda number: MulticlassAccuracy(num_classes=number, average="micro", validate_args=False)),
        "macro_f1": ("macro-F1", lambda number: MulticlassF1Score(num_classes=number, average="macro", validate_args=False)),
        "auc": ("ROC AUC", lambda number: PerLabelMetric("auc")),
    },
    "labels": {
        "acc": ("micro-F1", lambda number: MultilabelF1Score(num_labels=number, average="micro", ignore_index=-1, validate_args=False)),
        "micro_f1": (
            "micro-F1",
            lambda number: MultilabelF1Score(num_labels=number, average="micro", ignore_index=-1, validate_args=False),
        ),
        "macro_f1": (
            "macro-F1",
            lambda number: MultilabelF1Score(num_labels=number, average="macro", ignore_index=-1, validate_args=False),
        ),
        "ap": ("average precision", lambda number: PerLabelMetric("ap")),
        "auc": ("ROC AUC", lambda number: PerLabelMetric("auc")),
    },
    "targets": {
        "rmse": ("RMSE", lambda number: MeanSquaredError(squared=False)),
        "mae": ("MAE", lambda number: MeanAbsoluteError()),
        "r2": ("R2", lambda number: R2Score()),
    },
}
"""Kind of labels -> name of a metric -> its title, and a function that makes the metric for a number of classes, labels or targets."""
_TEXT = {"classes": "{} classes, one", "labels": "{} labels, several", "targets": "{} targets of a regression for"}


class Labels(NamedTuple):
    """A description of labels: their kind, and the number of classes, labels or targets.

    Attributes:
        kind: classes (one of C per example), labels (any of C), or targets (C numbers).
        number: number of classes, labels or targets, C.
    """

    kind: Kind
    number: int

    def __str__(self) -> str:
        """Return a description, such as ``3 classes, one``, that a message continues with the example, such as ``a node``."""
        return _TEXT[self.kind].format(self.number)

    def title(self, metric: str) -> str:
        """Return the readable name of a metric.

        Raises:
            InputError: the metric does not exist for this kind of labels.
        """
        return self._score(metric)[0]

    def make_score(self, metric: str) -> Metric:
        """Make the metric with a name; its update takes outputs (N, C) and labels in the layout of ``losses``."""
        return self._score(metric)[1](self.number)

    def _score(self, metric: str) -> tuple[str, Callable[[int], Metric]]:
        if self.kind == "classes" and self.number < 2:
            raise InputError(
                f"num_classes is {self.number} with metric {metric}: there must be at least two classes; for regression set metric to rmse, mae or r2"
            )
        scores = _SCORES[self.kind]
        if metric not in scores:
            names = ", ".join(scores)
            raise InputError(
                f"metric is {metric!r} and the labels are {self.kind}: it must be one of {names}, or a metric of torchmetrics; choose one"
            )
        return scores[metric]

    def prepare(self, y: Tensor) -> Tensor:
        """Return labels in the layout of losses and metrics: classes (N,) int64, labels (N, C) uint8 or int8, or targets (N, C) float."""
        return y.reshape(len(y), -1) if self.kind == "targets" else y

    def losses(self, outputs: Tensor, y: Tensor, class_weights: Tensor | None = None) -> Tensor:
        """Return the examples' losses (N,): cross-entropy, mean binary cross-entropy of several labels, or mean squared error of targets.

        Unknown labels (-1) do not count; an example without known labels has a loss of 0.

        Args:
            outputs: logits or predictions (N, C).
            y: labels in the layout of ``prepare``.
            class_weights: factors (C,) of the losses by class.
        """
        if self.kind == "classes":
            return F.cross_entropy(outputs, y, reduction="none", weight=class_weights)
        if self.kind == "targets":
            return F.mse_loss(outputs, y.to(outputs.dtype), reduction="none").mean(1)
        return _of_known(F.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype), reduction="none"), y)

    def losses_by(self, loss: Any, outputs: Tensor, y: Tensor, *, rows_needed: bool = False) -> Tensor:
        """Return the examples' losses (N,) by a custom loss (see ``row_losses``), which gets multi-label labels and targets as floats.

        Unknown labels (-1) do not count if the loss returns one value for each label.
        """
        losses = row_losses(loss, outputs, y if self.kind == "classes" else y.to(outputs.dtype), rows_needed=rows_needed)
        if self.kind == "labels" and losses.shape == y.shape:
            return _of_known(losses, y)
        return losses.reshape(len(y), -1).mean(1)


def _of_known(losses: Tensor, y: Tensor) -> Tensor:
    """Return for each row of ``losses`` (N, C) the mean over its known labels, (N,); 0 for rows without known labels."""
    known = y >= 0
    return (losses * known).sum(1) / known.sum(1).clamp(min=1)


def kind_of(metric: str, multilabel: bool) -> Kind:
    """Return the kind of labels that a model with this metric learns."""
    return "targets" if metric in _SCORES["targets"] else "labels" if multilabel else "classes"


def labels_of(y: Array, number: int) -> Labels:
    """Return the description of a data set's labels ``y`` (N,) or (N, C); ``number`` is the number of classes, labels or targets."""
    return Labels("targets" if y.dtype.kind == "f" else "labels" if y.ndim == 2 else "classes", number)


def class_weights(y: Array, labels: Labels) -> Tensor:
    """Return weights (C,) float32 with which each class in ``y`` (N,) has the same total weight: N / (C n) for n examples, 0 for a class without examples.

    King & Zeng 2001, "Logistic regression in rare events data"; scikit-learn's ``class_weight="balanced"``.

    Raises:
        InputError: the labels are not classes.
    """
    if labels.kind != "classes":
        raise InputError(f"class_weight is balanced and the labels are {labels.kind}: only classes have weights; leave it out")
    counts = np.bincount(y, minlength=labels.number)
    return torch.from_numpy(np.where(counts > 0, len(y) / (labels.number * np.maximum(counts, 1)), 0).astype(np.float32))
