"""Metrics of links: ROC AUC, average precision, mean reciprocal rank (MRR) and Hits@K, computed from logits of links and negatives.

Ties are treated as in ``ogb.linkproppred.Evaluator`` (Hu et al. 2020, "Open Graph Benchmark").
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from hoptrain.engine import InputError
from hoptrain.trainers.metrics.top import NAMES, top_of

_HITS = re.compile(r"hits@([1-9]\d*)")
TITLES = {"auc": "ROC AUC", "ap": "average precision", "mrr": "MRR"}


def title_of(metric: str) -> str:
    """Return the readable name of a metric.

    Raises:
        InputError: the metric is unknown.
    """
    if metric in TITLES:
        return TITLES[metric]
    if _HITS.fullmatch(metric) is None and not top_of(metric):
        raise InputError(f"metric is {metric!r}: it must be one of {', '.join(TITLES)}, hits@K, {NAMES}, with K at least 1; choose one")
    return metric.upper() if metric.startswith("ndcg") else metric.capitalize()


def check_ranked(metric: str) -> str:
    """Return the readable name of a metric, after checking that it is computed from ranks.

    Raises:
        InputError: the metric is unknown, or not one of ranks.
    """
    title = title_of(metric)
    if metric in ("auc", "ap") or top_of(metric):
        raise InputError(f"metric is {metric}: answers are ranked here; give mrr, hits@K with K at least 1, or a metric of torchmetrics")
    return title


class PooledScore(Metric):
    """A metric of all links against all negatives.

    Hits@K is the fraction of links with a higher logit than the K-th highest negative, or 1 with fewer than K negatives. In MRR, the rank of a link is
    the mean of its best and its worst rank among ties. The metric is NaN without links, without negatives, or if a logit is NaN.
    """

    full_state_update = False
    links: Any
    others: Any

    def __init__(self, metric: str) -> None:
        """Set the metric: auc, ap, mrr or hits@K."""
        super().__init__()
        title_of(metric)
        self.metric = metric
        for name in ("links", "others"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Add logits (N,) of pairs, and their labels (N,): 1 for links and 0 for negatives."""
        self.links.append(scores[labels > 0])
        self.others.append(scores[labels == 0])

    def compute(self) -> Tensor:
        """Return the metric over all pairs so far, float64."""
        links, others = (dim_zero_cat(parts) if len(parts) else torch.empty(0) for parts in (self.links, self.others))
        return pooled(self.metric, links, others)


def pooled(metric: str, links: Tensor, others: Tensor) -> Tensor:
    """Compute ``PooledScore`` from the logits of all links (N,) and of all negatives (M,)."""
    if not len(links) or not len(others) or links.isnan().any() or others.isnan().any():
        return torch.tensor(torch.nan)
    above, at_least = (_above(links, others, or_equal) for or_equal in (False, True))
    if metric == "auc":
        return 1 - (above + at_least).double().mean() / (2 * len(others))
    if metric == "ap":
        links_at_least = _above(links, links, or_equal=True)
        return (links_at_least / (links_at_least + at_least).double()).mean()
    if metric == "mrr":
        return reciprocal(1 + (above + at_least) / 2).double().mean()
    return (at_least < int(metric.removeprefix("hits@"))).double().mean()


class RankScore(Metric):
    """A metric of links that are each ranked among their own negatives: the mean reciprocal rank, or the fraction of ranks up to K."""

    full_state_update = False
    total: Tensor
    number: Tensor

    def __init__(self, metric: str) -> None:
        """Set the metric: mrr or hits@K.

        Raises:
            InputError: the metric needs all pairs together.
        """
        super().__init__()
        title_of(metric)
        if metric in ("auc", "ap"):
            raise InputError(f"metric is {metric}: each link is ranked among its own negatives here; give mrr or hits@K, or {NAMES}")
        self.metric = metric
        for name in ("total", "number"):
            self.add_state(name, default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, ranks: Tensor, labels: Tensor) -> None:
        """Add ranks (N,) from 1, which may be half-integers. All belong to links, so ``labels`` are ignored."""
        values = reciprocal(ranks) if self.metric == "mrr" else ranks <= int(self.metric.removeprefix("hits@"))
        self.total += values.double().sum()
        self.number += len(ranks)

    def compute(self) -> Tensor:
        """Return the metric over all links so far, float64; NaN without links."""
        return self.total / self.number


def reciprocal(ranks: Tensor) -> Tensor:
    """Return 1 / ranks in float32, as OGB's evaluator does."""
    return 1.0 / ranks.float()


def _above(scores: Tensor, others: Tensor, or_equal: bool) -> Tensor:
    """Return for each of ``scores`` (N,) how many of ``others`` (M,) are greater (with ``or_equal``: greater or equal), (N,) int64."""
    return len(others) - torch.searchsorted(others.sort().values, scores.contiguous(), right=not or_equal)
