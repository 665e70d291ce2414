"""Kinds of labels: the loss that each is learnt by, and the scores that it has, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, R2Score
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score, MultilabelF1Score

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.trainers.metrics.each_label import PerLabelMetric

Kind = Literal["classes", "labels", "targets"]
_Scores = dict[str, tuple[str, Callable[[int], Metric]]]
KEEP_ALL = ("auc", "ap")
"""Scores that keep all outputs until they are told: not of training, whose checkpoints in mid-epoch would hold them."""

# Labels were checked with the data set: to check each batch's again torchmetrics would sort them, and wait for a GPU.
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
"""By the kind of the labels and the name of a score: its title, and the metric of so many classes, labels or targets."""
_TEXT = {"classes": "{} classes, one", "labels": "{} labels, several", "targets": "{} targets of a regression for"}


class Labels(NamedTuple):
    """What examples are labelled with.

    Attributes:
        kind: classes, one of C each; labels, any of C each; targets, C numbers each.
        number: C.
    """

    kind: Kind
    number: int

    def __str__(self) -> str:
        """As in ``3 classes, one a vertex``."""
        return _TEXT[self.kind].format(self.number)

    def title(self, metric: str) -> str:
        """What a score is called, for people.

        Raises:
            InputError: such labels have no such score.
        """
        return self._score(metric)[0]

    def make_score(self, metric: str) -> Metric:
        """The metric of a score; it takes (N, C) outputs and labels as ``losses`` does."""
        return self._score(metric)[1](self.number)

    def _score(self, metric: str) -> tuple[str, Callable[[int], Metric]]:
        if self.kind == "classes" and self.number < 2:
            raise InputError(
                f"num_classes is {self.number} with score {metric}: classes are two at least; targets are scored by rmse, mae or r2"
            )
        scores = _SCORES[self.kind]
        if metric not in scores:
            raise InputError(f"score is {metric!r} and the labels are {self.kind}: these are scored by {', '.join(scores)}; choose one")
        return scores[metric]

    def taken(self, y: Tensor) -> Tensor:
        """Labels as losses and scores take them: (N,) int64 classes, (N, C) uint8 or int8 labels, (N, C) float targets."""
        return y.reshape(len(y), -1) if self.kind == "targets" else y

    def losses(self, outputs: Tensor, y: Tensor, class_weights: Tensor | None = None) -> Tensor:
        """(N,) cross-entropies; of several labels (or targets) the mean of their binary cross-entropies (or squared errors).

        Labels that are unknown (-1) do not count; an example without any that is known has a loss of 0.

        Args:
            outputs: (N, C).
            y: as ``taken`` gives it.
            class_weights: (C,) by which an example's loss is multiplied, of classes.
        """
        if self.kind == "classes":
            return F.cross_entropy(outputs, y, reduction="none", weight=class_weights)
        if self.kind == "targets":
            return F.mse_loss(outputs, y.to(outputs.dtype), reduction="none").mean(1)
        known = y >= 0
        losses = F.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype), reduction="none") * known
        return losses.sum(1) / known.sum(1).clamp(min=1)


def kind_of(metric: str, multilabel: bool) -> Kind:
    """The kind of labels that a model with this score learns."""
    return "targets" if metric in _SCORES["targets"] else "labels" if multilabel else "classes"


def labels_of(y: Array, number: int) -> Labels:
    """What labels (N,) or (N, C) of a data set are."""
    return Labels("targets" if y.dtype.kind == "f" else "labels" if y.ndim == 2 else "classes", number)


def class_weights(y: Array, labels: Labels) -> Tensor:
    """(C,) float32 weights by which each class counts alike in ``y`` (N,): N / (C n), n of a class; 0 for one without examples.

    King & Zeng 2001, "Logistic regression in rare events data"; scikit-learn's ``class_weight="balanced"``.

    Raises:
        InputError: the labels are no classes.
    """
    if labels.kind != "classes":
        raise InputError(f"class_weight is balanced and the labels are {labels.kind}: only classes have weights; leave it out")
    counts = np.bincount(y, minlength=labels.number)
    return torch.from_numpy(np.where(counts > 0, len(y) / (labels.number * np.maximum(counts, 1)), 0).astype(np.float32))
