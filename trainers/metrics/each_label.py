"""ROC AUC and average precision per label, averaged over several labels, or over classes (one against all others)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from hoptrain.trainers.metrics.links import pooled


class PerLabelMetric(Metric):
    """A metric averaged over the labels that have positive and negative examples, as in ``ogb.graphproppred.Evaluator`` (Hu et al. 2020).

    Unknown labels (-1) do not count. For two classes the metric is that of one class. For more classes, the metric of each class against all others is
    averaged (scikit-learn's ``roc_auc_score(multi_class="ovr")``). The result is NaN if no label has both kinds of examples.
    """

    full_state_update = False
    outputs: Any
    labels: Any

    def __init__(self, metric: str) -> None:
        """Set the metric: auc or ap."""
        super().__init__()
        self.metric = metric
        for name in ("outputs", "labels"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, outputs: Tensor, y: Tensor) -> None:
        """Add outputs (N, C) and labels (N, C) of 0, 1 and -1, or classes (N,)."""
        if y.ndim == 1:
            outputs = torch.stack([own - rest.logsumexp(1) for own, rest in _one_and_rest(outputs)], 1)
            y = F.one_hot(y, outputs.shape[1])
        self.outputs.append(outputs)
        self.labels.append(y.to(torch.int8))

    def compute(self) -> Tensor:
        """Return the metric over all examples so far, float64."""
        if not len(self.outputs):
            return torch.tensor(torch.nan)
        outputs, labels = dim_zero_cat(self.outputs), dim_zero_cat(self.labels)
        scores = [pooled(self.metric, own[y > 0], own[y == 0]) for own, y in zip(outputs.T, labels.T, strict=True)]
        told = [metric for metric, y in zip(scores, labels.T, strict=True) if (y == 0).any() and (y > 0).any()]
        return torch.stack(told).mean() if told else torch.tensor(torch.nan)


def _one_and_rest(outputs: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return pairs for each column of (N, C): the column (N,), and the other columns (N, C - 1)."""
    columns = range(outputs.shape[1])
    return [(outputs[:, own], outputs[:, [other for other in columns if other != own]]) for own in columns]
