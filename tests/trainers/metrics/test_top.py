"""Top-K metrics equal a slow computation with lists, source by source, for several chunks and ranks."""

from math import log2

import numpy as np
import pytest
import torch

from hoptrain.engine import Graph
from hoptrain.trainers.metrics.links import title_of
from hoptrain.trainers.metrics.top import make_top_score, top_of
from hoptrain.trainers.models import ranks as top
from hoptrain.trainers.models.decoders import make_decoder

NAMES = ("recall@4", "precision@4", "ndcg@4", "recall@11")


def slow(score, scores, links, known, begin):
    """Return the mean over the sources of ``links``; ``scores`` (V, V) are logits of pairs."""
    kind, number = score.split("@")
    values = []
    for source in sorted({u for u, _ in links}):
        own = {v for u, v in links if u == source}
        left = [v for v in range(begin, len(scores)) if (source, v) not in known]
        best = sorted(left, key=lambda v: -scores[source, v])[: int(number)]
        gain = {"ndcg": sum(1 / log2(2 + i) for i, v in enumerate(best) if v in own)}.get(kind, len(own & set(best)))
        most = {"ndcg": sum(1 / log2(2 + i) for i in range(min(len(own), int(number)))), "recall": len(own), "precision": int(number)}
        values.append(gain / most[kind])
    return np.mean(values)


def problem(seed):
    """Return embeddings of 30 sources followed by 20 destinations, links of the sources (some repeated), and known links."""
    rng = np.random.default_rng(seed)
    vectors = torch.from_numpy(rng.normal(size=(50, 6)).astype(np.float32))
    places = rng.permutation(30 * 20)
    src, dst = places // 20, 30 + places % 20
    links, passed = np.stack([src, dst])[:, :60], np.stack([src, dst])[:, 60:200]
    return vectors, np.concatenate([links, links[:, :5]], 1), passed


def best(vectors, links, passed, number, decoder="dot"):
    known = Graph.from_pairs(*passed, 50)
    return top.best_of_sources(make_decoder(decoder, 6), vectors, torch.from_numpy(links), (30, 50), known, number)


@pytest.mark.parametrize("score", NAMES)
@pytest.mark.parametrize("most", [1, 70, 1 << 20])
def test_scores_are_those_of_lists(score, most, monkeypatch):
    monkeypatch.setattr(top, "MOST_NUMBERS", most)
    for seed in range(3):
        vectors, links, passed = problem(seed)
        metric = make_top_score(score)
        for found in best(vectors, links, passed, top_of(score)):
            metric.update(*found)
        expected = slow(score, (vectors @ vectors.T).numpy(), list(map(tuple, links.T)), set(map(tuple, passed.T)), 30)
        assert metric.compute().item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("score", NAMES[:3])
def test_ranks_of_a_run_add_up(score):
    """If each rank has all links of its sources, and torchmetrics reduces the states, the metric is that of one process."""
    vectors, links, passed = problem(7)
    parts = [make_top_score(score) for _ in range(3)]
    for metric, rows in zip(parts, (links[0] < 9, (links[0] >= 9) & (links[0] < 10), links[0] >= 10), strict=True):
        for found in best(vectors, links[:, rows], passed, 4):
            metric.update(*found)
    whole, together = make_top_score(score), parts[0]
    for found in best(vectors, links, passed, 4):
        whole.update(*found)
    for metric in parts[1:]:
        together.merge_state(metric)
    assert together.compute().item() == pytest.approx(whole.compute().item(), rel=1e-6)


def test_what_is_not_a_number_is_not_among_the_best():
    vectors, links, passed = problem(1)
    vectors[35] = torch.nan
    for columns, _ in best(vectors, links, passed, 4):
        assert 5 not in columns[:, :4]


def test_names():
    assert [title_of(name) for name in ("recall@20", "precision@5", "ndcg@10")] == ["Recall@20", "Precision@5", "NDCG@10"]
    assert [top_of(name) for name in ("recall@20", "recall@0", "recall", "hits@20")] == [20, 0, 0, 0]
