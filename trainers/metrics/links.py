"""Scores of links: ROC AUC, average precision, mean reciprocal rank and Hits@K, each from how many pairs that are no links score as high.

Ties and bounds are those of ``ogb.linkproppred.Evaluator`` (Hu et al. 2020, "Open Graph Benchmark").
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
    """What a score is called, for people.

    Raises:
        InputError: it is none of these.
    """
    if metric in TITLES:
        return TITLES[metric]
    if _HITS.fullmatch(metric) is None and not top_of(metric):
        raise InputError(
            f"score is {metric!r}: links are scored by {', '.join(TITLES)} or hits@K, each source's best by {NAMES}, K at least 1; choose one"
        )
    return metric.upper() if metric.startswith("ndcg") else metric.capitalize()


class PooledScore(Metric):
    """A score of links among pairs that are none, all links against all of these pairs.

    Hits@K is the share of the links that score above the K-th highest of the others, 1 if there are fewer than K. A link's rank, for MRR, is the
    mean of the best and the worst that it may have among those that score the same. Not a number without
    links or without other pairs, or where a score is none.
    """

    full_state_update = False
    links: Any
    others: Any

    def __init__(self, metric: str) -> None:
        """Take the name of a score: auc, ap, mrr or hits@K."""
        super().__init__()
        title_of(metric)
        self.metric = metric
        for name in ("links", "others"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Take scores (N,) of pairs, and their labels (N,), 1 for links and 0 for others."""
        self.links.append(scores[labels > 0])
        self.others.append(scores[labels == 0])

    def compute(self) -> Tensor:
        """The score so far, float64."""
        links, others = (dim_zero_cat(parts) if len(parts) else torch.empty(0) for parts in (self.links, self.others))
        return pooled(self.metric, links, others)


def pooled(metric: str, links: Tensor, others: Tensor) -> Tensor:
    """``PooledScore`` of the scores of all links (N,) and of all others (M,)."""
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
    """The mean of links' reciprocal ranks, or the share of ranks that are at most K: each link among pairs of its own."""

    full_state_update = False
    total: Tensor
    number: Tensor

    def __init__(self, metric: str) -> None:
        """Take the name of a score: mrr or hits@K.

        Raises:
            InputError: one that is of all pairs together.
        """
        super().__init__()
        title_of(metric)
        if metric in ("auc", "ap"):
            raise InputError(f"score is {metric}: here each link has a rank among pairs of its own; give mrr or hits@K, or {NAMES}")
        self.metric = metric
        for name in ("total", "number"):
            self.add_state(name, default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, ranks: Tensor, labels: Tensor) -> None:
        """Take ranks (N,) from 1, which may end in a half. All are of links, so that ``labels`` tell nothing."""
        values = reciprocal(ranks) if self.metric == "mrr" else ranks <= int(self.metric.removeprefix("hits@"))
        self.total += values.double().sum()
        self.number += len(ranks)

    def compute(self) -> Tensor:
        """The score so far, float64; not a number without links."""
        return self.total / self.number


def reciprocal(ranks: Tensor) -> Tensor:
    """1 / ranks, in float32 as OGB's evaluator has it."""
    return 1.0 / ranks.float()


def _above(scores: Tensor, others: Tensor, or_equal: bool) -> Tensor:
    """(N,) int64: how many of ``others`` (M,) are above each of ``scores`` (N,), or as high."""
    return len(others) - torch.searchsorted(others.sort().values, scores.contiguous(), right=not or_equal)
