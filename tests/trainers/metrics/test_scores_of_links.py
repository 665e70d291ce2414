"""Metrics of links equal OGB's evaluator and a loop over pairs, also across ranks."""

import numpy as np
import pytest
import torch
from cases.mistakes import refused
from ogb.linkproppred import Evaluator
from sklearn.metrics import average_precision_score

from hoptrain.trainers.metrics.links import PooledScore, RankScore, title_of
from hoptrain.trainers.models.ranks import ranks_among


def scores(seed, *shape):
    """Return logits with ties within links and negatives, and across them."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)) / 4


def pooled(score, links, others, parts=1):
    metric = PooledScore(score)
    for own, own_others in zip(links.chunk(parts), others.chunk(parts), strict=True):
        metric.update(torch.cat([own_others, own]), torch.tensor([0.0] * len(own_others) + [1.0] * len(own)))
    return metric.compute().item()


def slow_rank(own, others):
    """Return the mean of the best and the worst possible rank."""
    before, with_equals = sum(other > own for other in others), sum(other >= own for other in others)
    return 1 + (before + with_equals) / 2


def of_ogb(name, metric, **given):
    evaluator = Evaluator(name)
    assert evaluator.eval_metric == metric
    return evaluator.eval(given)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("parts", [1, 4])
def test_pooled_scores_are_ogbs(seed, parts):
    links, others = scores(seed, 70), scores(seed + 100, 240) - 0.5
    given = {"y_pred_pos": links, "y_pred_neg": others}
    assert pooled("hits@20", links, others, parts) == of_ogb("ogbl-ddi", "hits@20", **given)["hits@20"]
    assert pooled("hits@100", links, others, parts) == of_ogb("ogbl-ppa", "hits@100", **given)["hits@100"]
    assert pooled("auc", links, others, parts) == pytest.approx(of_ogb("ogbl-vessel", "rocauc", **given)["rocauc"], abs=1e-15)
    labels = np.r_[np.ones(70), np.zeros(240)]
    assert pooled("ap", links, others, parts) == pytest.approx(average_precision_score(labels, torch.cat([links, others])), abs=1e-15)


def test_hits_where_there_are_fewer_others():
    links, others = torch.tensor([0.0, 1.0]), torch.ones(19)
    assert pooled("hits@20", links, others) == of_ogb("ogbl-ddi", "hits@20", y_pred_pos=links, y_pred_neg=others)["hits@20"] == 1


@pytest.mark.parametrize("seed", range(5))
def test_pooled_mrr_is_counted_out(seed):
    links, others = scores(seed, 30), scores(seed + 100, 50)
    slow = [1 / slow_rank(own, others.tolist()) for own in links.tolist()]
    assert pooled("mrr", links, others) == pytest.approx(np.mean(slow), rel=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_ranks_are_ogbs(seed):
    links, others = scores(seed, 60), scores(seed + 100, 60, 40)
    ranks = ranks_among(links, others)
    assert ranks.tolist() == [slow_rank(own, row) for own, row in zip(links.tolist(), others.tolist(), strict=True)]
    theirs = of_ogb("ogbl-citation2", "mrr", y_pred_pos=links, y_pred_neg=others)
    for score, name in (("mrr", "mrr_list"), ("hits@1", "hits@1_list"), ("hits@3", "hits@3_list"), ("hits@10", "hits@10_list")):
        metric = RankScore(score)
        for part in ranks.split(7):
            metric.update(part, torch.ones(len(part)))
        assert metric.compute().item() == theirs[name].double().mean().item()


def test_what_is_not_a_number_is_no_score():
    nan, zeros = torch.full((3,), torch.nan), torch.zeros(3)
    assert ranks_among(nan, torch.zeros(3, 5)).tolist() == [6.0] * 3
    assert ranks_among(zeros, torch.full((3, 5), torch.nan)).tolist() == [6.0] * 3
    for links, others in ((nan, zeros), (zeros, nan), (zeros, zeros[:0]), (zeros[:0], zeros)):
        assert np.isnan(pooled("auc", links, others))


@pytest.mark.parametrize(("kind", "score"), [(PooledScore, "ap"), (PooledScore, "hits@3"), (RankScore, "mrr"), (RankScore, "hits@3")])
def test_ranks_of_a_run_add_up(kind, score):
    """If the states of several processes, one of them empty, are reduced as in torchmetrics, the metric is that of one process."""
    values, labels = scores(1, 40) + 4, (torch.arange(40) % 4 == 0).float()
    whole, parts = kind(score), [kind(score) for _ in range(3)]
    whole.update(values, labels)
    for metric, rows in zip(parts, (slice(0, 15), slice(15, 15), slice(15, 40)), strict=True):
        metric.update(values[rows], labels[rows])
    together = parts[0]
    for metric in parts[1:]:
        together.merge_state(metric)
    assert together.compute() == whole.compute()


def test_names():
    assert [title_of(name) for name in ("auc", "ap", "mrr", "hits@20")] == ["ROC AUC", "average precision", "MRR", "Hits@20"]
    for wrong in ("hits", "hits@0", "hits@-1", "hits@2.5", "mr", ""):
        with refused(f"'{wrong}'", "metric one", "auc ap mrr hits@K recall@K"):
            PooledScore(wrong)
    with refused("metric is auc", "link ranked own negatives", "mrr hits@K"):
        RankScore("auc")
