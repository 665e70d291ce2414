"""Metrics of recommendation, averaged over sources. They use the K destinations with the highest logits of each source, without its training links.

recall@K is the fraction of the source's links that are among these K destinations. precision@K is the fraction of the K destinations that are links. ndcg@K
is the sum of 1 / log2(1 + position) over the destinations that are links, divided by its maximum (Järvelin & Kekäläinen 2002, "Cumulated gain-based
evaluation of IR techniques"). PyG's classes compute them.
"""

from __future__ import annotations

import re

from torchmetrics import Metric, MetricCollection

_TOP = re.compile(r"(recall|precision|ndcg)@([1-9]\d*)")
NAMES = "recall@K, precision@K or ndcg@K"


def top_of(score: str) -> int:
    """Return K from the name of a metric such as ``recall@K``; 0 for metrics of other kinds."""
    match = _TOP.fullmatch(score)
    return int(match[2]) if match else 0


def most_of(metrics: MetricCollection) -> int:
    """Return the largest K among the metrics of ``torch_geometric.metrics`` in a collection; 0 if it has none."""
    numbers = [getattr(each, "k", 0) for each in metrics.children() if type(each).__module__.startswith("torch_geometric.metrics")]
    return max(numbers, default=0)


def make_top_score(score: str) -> Metric:
    """Make a metric by name. Its ``update`` takes the best destinations (B, K) of B sources, the best first, and the links (2, N) of these sources."""
    from torch_geometric.metrics import LinkPredNDCG, LinkPredPrecision, LinkPredRecall

    kinds = {"recall": LinkPredRecall, "precision": LinkPredPrecision, "ndcg": LinkPredNDCG}
    metric: Metric = kinds[score.partition("@")[0]](top_of(score))
    return metric
