"""Base of tasks that learn labels: the labels' kind, its loss and its score."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.trainers.metrics.labels import KEEP_ALL, Labels, class_weights, kind_of, labels_of
from hoptrain.trainers.tasks.scored import STAGES, ScoredModule


class LabelMixin(ScoredModule):
    """A task that learns labels.

    Attributes:
        labels: what examples are labelled with; None until the data tell it.
        example: what an example is, for messages.
    """

    example = "node"
    labels: Labels | None = None
    _class_weights: Tensor | None = None

    def define_labels(self, num_classes: int, multilabel: bool, metric: str, class_weight: str | None) -> None:
        """State what is learnt.

        Args:
            num_classes: number of classes, labels or targets; 0 where the data tell it.
            multilabel: whether an example may have several labels.
            metric: its name; of a score of targets the model learns these.
            class_weight: balanced, or None.

        Raises:
            InputError: a score that such labels have not, another weight.
        """
        if class_weight not in (None, "balanced"):
            raise InputError(f"class_weight is {class_weight!r}: it is balanced, or left out")
        self.name_score(metric)
        self._is_balanced = class_weight is not None
        if num_classes:
            self._state_labels(Labels(kind_of(metric, multilabel), num_classes))

    def _state_labels(self, labels: Labels) -> None:
        self.labels = labels
        self.score_title: str = labels.title(self.score_name)
        if self.score_name in KEEP_ALL:
            self.scored: tuple[str, ...] = STAGES[1:]
        self.make_scores(lambda: labels.make_score(self.score_name))

    def match_labels(self, name: str, y: Any, number: int, train: Array | None) -> None:
        """Compare the model's labels with those of the data, or take these where none were stated.

        Args:
            name: of the data, for messages.
            y: (N,) or (N, C) labels.
            number: C.
            train: (M,) places in ``y`` of the training's examples, whose classes are to count alike; None where nothing is trained.

        Raises:
            InputError: labels of another kind, or more classes than the model has.
        """
        theirs = labels_of(y, number)
        if self.labels is None:
            self._state_labels(theirs)
        mine = self.labels or theirs
        is_wider = mine.kind == theirs.kind == "classes" and mine.number > theirs.number
        if mine != theirs and not is_wider:
            a = "an" if self.example[0] in "aeiou" else "a"
            raise InputError(
                f"the model tells {mine} {a} {self.example}, {name} has {theirs} {a} {self.example}: choose a score of such "
                "labels, and in Python give num_classes and multilabel as the data module has them (num_classes, is_multilabel)"
            )
        if self._is_balanced and train is not None:
            self._class_weights = class_weights(y[train], mine).to(self.device)

    def compute_loss(self, stage: str, outputs: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """The sum of the examples' losses, each with its weight, which is counted for the stage."""
        if self.labels is None:
            raise RuntimeError("the labels are not known before setup")
        y = self.labels.taken(y)
        losses = self.labels.losses(self.checked(outputs, len(y), self.labels.number), y, self._class_weights)
        total = losses.sum() if weights is None else losses @ weights
        self.count(stage, outputs, y, total)
        return total
