"""ROC AUC and average precision of each label by itself, averaged: of several labels, or of classes, one against all others."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from hoptrain.trainers.metrics.links import pooled


class PerLabelMetric(Metric):
    """The mean over labels that have examples with and without them, as ``ogb.graphproppred.Evaluator`` has it (Hu et al. 2020).

    Labels that are unknown (-1) do not count. Two classes have the AUC of the one; of more it is the mean of each against all others
    (scikit-learn's ``roc_auc_score(multi_class="ovr")``). Not a number where no label has both.
    """

    full_state_update = False
    outputs: Any
    labels: Any

    def __init__(self, metric: str) -> None:
        """Take the name of a score: auc or ap."""
        super().__init__()
        self.metric = metric
        for name in ("outputs", "labels"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, outputs: Tensor, y: Tensor) -> None:
        """Take outputs (N, C) and labels (N, C) of 0, 1 and -1, or classes (N,)."""
        if y.ndim == 1:
            outputs = torch.stack([own - rest.logsumexp(1) for own, rest in _one_and_rest(outputs)], 1)
            y = F.one_hot(y, outputs.shape[1])
        self.outputs.append(outputs)
        self.labels.append(y.to(torch.int8))

    def compute(self) -> Tensor:
        """The score so far, float64."""
        if not len(self.outputs):
            return torch.tensor(torch.nan)
        outputs, labels = dim_zero_cat(self.outputs), dim_zero_cat(self.labels)
        scores = [pooled(self.metric, own[y > 0], own[y == 0]) for own, y in zip(outputs.T, labels.T, strict=True)]
        told = [metric for metric, y in zip(scores, labels.T, strict=True) if (y == 0).any() and (y > 0).any()]
        return torch.stack(told).mean() if told else torch.tensor(torch.nan)


def _one_and_rest(outputs: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Of (N, C) each column (N,) and the others (N, C - 1)."""
    columns = range(outputs.shape[1])
    return [(outputs[:, own], outputs[:, [other for other in columns if other != own]]) for own in columns]
