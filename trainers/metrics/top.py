"""Scores of recommendations: the K destinations that score highest for a source, beside those that it is linked with, the mean over sources.

recall@K is the share of a source's links among them, precision@K the share of the K that are links, ndcg@K the sum of 1 / log2(1 + place) over those
that are, as a share of the greatest that it can be (Järvelin & Kekäläinen 2002, "Cumulated gain-based evaluation of IR techniques"). They are PyG's.
"""

from __future__ import annotations

import re

from torchmetrics import Metric

_TOP = re.compile(r"(recall|precision|ndcg)@([1-9]\d*)")
NAMES = "recall@K, precision@K or ndcg@K"


def top_of(score: str) -> int:
    """K of such a score; 0 where it is none."""
    match = _TOP.fullmatch(score)
    return int(match[2]) if match else 0


def make_top_score(score: str) -> Metric:
    """The metric of a score; it takes (B, K) columns, the best first, and the links (2, N) of the B sources, rows above columns, each once."""
    from torch_geometric.metrics import LinkPredNDCG, LinkPredPrecision, LinkPredRecall

    kinds = {"recall": LinkPredRecall, "precision": LinkPredPrecision, "ndcg": LinkPredNDCG}
    metric: Metric = kinds[score.partition("@")[0]](top_of(score))
    return metric
