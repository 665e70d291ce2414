"""Base class of tasks that learn labels: classes, several labels per example, or regression targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from lightning_utilities.core.rank_zero import rank_zero_info
from torch import Tensor

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.trainers.metrics.labels import Labels, class_weights, kind_of, labels_of
from hoptrain.trainers.metrics.own import AnyMetric
from hoptrain.trainers.tasks.scored import ScoredModule


class LabelMixin(ScoredModule):
    """A mixin for tasks that learn labels: it checks the labels, computes their loss and updates their metric.

    Attributes:
        labels: kind and number of the labels; None until the data module provides them.
        labels_of_checkpoint: those that the model of a loaded checkpoint learnt; None without a checkpoint.
        example: word for one example in messages.
    """

    example = "node"
    reads_classes = True
    labels: Labels | None = None
    labels_of_checkpoint: Labels | None = None
    _num_classes = 0
    _class_weights: Tensor | None = None

    def define_labels(self, num_classes: int, multilabel: bool, metric: AnyMetric, class_weight: str | None) -> None:
        """Set the metric, the class weighting and, if their number and kind are known, the labels.

        Args:
            num_classes: number of classes, labels or targets; 0 takes it from the data.
            multilabel: whether an example may have several labels.
            metric: the metric. A name of a regression metric makes the model learn targets; with a custom metric, the labels of the data set decide.
            class_weight: "balanced" weights classes inversely to their frequency; None weights all examples alike.

        Raises:
            InputError: ``class_weight`` is unknown or given with a loss, or the metric does not exist for such labels.
        """
        if class_weight not in (None, "balanced"):
            raise InputError(
                f"class_weight is {class_weight!r}: it must be balanced; for other weights give loss=torch.nn.CrossEntropyLoss(weight=...)"
            )
        if class_weight is not None and self.loss is not None:
            raise InputError(
                f"class_weight is {class_weight} with your own loss: the weights of classes are the loss's, as in torch.nn.CrossEntropyLoss(weight=...); "
                "leave class_weight out"
            )
        self.define_metric(metric)
        self._is_balanced, self._num_classes = class_weight is not None, num_classes
        if num_classes and isinstance(metric, str):
            self._state_labels(Labels(kind_of(metric, multilabel), num_classes))

    def _state_labels(self, labels: Labels) -> None:
        self.labels = labels
        if not self.has_own_metric:
            self.score_title: str = labels.title(self.score_name)
        self.make_scores(lambda: labels.make_score(self.score_name))

    def match_labels(self, name: str, y: Any, number: int, train: Array | None) -> None:
        """Compare the model's labels with those of the data; a model without labels adopts those of the data.

        Args:
            name: name of the data set, for messages.
            y: labels (N,) or (N, C).
            number: number of classes, labels or targets, C.
            train: positions (M,) in ``y`` of the training examples, whose classes get weights; None if nothing is trained.

        Raises:
            InputError: the data have labels of another kind, or more classes than the model.
        """
        theirs = labels_of(y, number)
        if self.trainer.training and (hint := _hint(y, theirs, self.example)):
            rank_zero_info(f"{name}: {hint}")
        if self.labels is None:
            self._state_labels(Labels(theirs.kind, self._num_classes or theirs.number))
        mine = self.labels or theirs
        is_wider = mine.kind == theirs.kind == "classes" and mine.number > theirs.number
        if mine != theirs and not is_wider:
            a = "an" if self.example[0] in "aeiou" else "a"
            raise InputError(
                f"the model predicts {mine} {a} {self.example}, {name} has {theirs} {a} {self.example}: choose a metric for such "
                "labels, and in Python take num_classes and multilabel from the data module (num_classes, is_multilabel)"
            )
        if self._is_balanced and train is not None:
            self._class_weights = class_weights(y[train], mine).to(self.device)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the kind and the number of the labels, which the data of a later prediction need not have."""
        super().on_save_checkpoint(checkpoint)
        if self.labels is not None:
            checkpoint["labels"] = list(self.labels)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check that the checkpoint fits this model, and read the kind and the number of the labels."""
        super().on_load_checkpoint(checkpoint)
        match checkpoint.get("labels"):
            case [("classes" | "labels" | "targets") as kind, int(number)]:
                self.labels_of_checkpoint = Labels(kind, number)

    def compute_loss(self, stage: str, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the sum of the examples' losses, weighted by ``weights`` if given, and update the stage's metrics."""
        if self.labels is None:
            raise RuntimeError("the kind of the labels is unknown before setup: call a method of the Trainer, such as fit")
        y = self.labels.prepare(y)
        outputs = self.check_outputs(outputs, len(y), self.labels.number)
        if self.loss is None:
            losses = self.labels.losses(outputs, y, self._class_weights)
        else:
            losses = self.labels.losses_by(self.loss, outputs, y, rows_needed=weights is not None)
        total = losses.sum() if weights is None else losses @ weights
        self.count(stage, outputs, y, total)
        return total


def _hint(y: Array, labels: Labels, example: str) -> str:
    """Return a hint if the labels look like one-hot classes, or if at most half of the classes occur; else an empty string."""
    if labels.kind == "labels" and labels.number > 1 and (y.sum(1) == 1).all() and y.min() >= 0:
        return (
            f"each {example} has exactly one of {labels.number} labels, and each label is learnt by itself; to learn one class a {example}, give the "
            "data y.argmax(1)"
        )
    if labels.kind == "classes" and 2 * (found := np.count_nonzero(np.bincount(y[y >= 0]))) <= labels.number:
        return f"only {found} of the {labels.number} classes occur; to leave the others out, renumber the labels with np.unique(y, return_inverse=True)[1]"
    return ""
