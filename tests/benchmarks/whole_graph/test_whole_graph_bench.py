"""``hoptrain bench whole-graph`` runs both systems, and records the time at which each system reaches its targets."""

import pytest

from hoptrain.benchmarks import whole_graph
from hoptrain.engine import load_dataset


def test_both_systems_alternate_and_learn():
    data = load_dataset("digits-knn")
    records = whole_graph.compare(data, whole_graph.Setting(batch_size=256), "sage", seed=1, seconds=0.3)
    assert [record["system"] for record in records] == ["sampled", "whole"]
    for record in records:
        assert record["epochs"] >= 1
        assert 0.3 < record["best_val"] <= 1  # better than chance for ten classes
        assert record["seconds_to_0.95"] is None or record["seconds_to_0.95"] <= record["epochs"] * record["epoch_ms"] / 1000
    assert any(record["seconds_to_0.99"] is not None for record in records)


def test_times_are_when_a_score_was_first_seen(monkeypatch):
    """The recorded time is the end of the first epoch that reaches the target accuracy; an epoch takes one second here."""

    def system(scores):
        return lambda *_: iter([(1.0, score) for score in scores])

    monkeypatch.setattr(whole_graph, "SYSTEMS", {"sampled": system([0.5, 0.96, 1.0, 0.7]), "whole": system([0.1, 0.8, 0.7, 0.2])})
    monkeypatch.setattr(whole_graph, "LOOKS", 4)
    monkeypatch.setattr(whole_graph, "scores_on", lambda data, setting, score: (score, score / 2))
    sampled, whole = whole_graph.compare(load_dataset("digits-knn"), whole_graph.Setting(), "sage", 1, seconds=4)
    assert [sampled[name] for name in ("seconds_to_0.95", "seconds_to_0.99", "best_val", "test", "epochs")] == [2, 3, 1.0, 0.5, 4]
    assert [whole[name] for name in ("seconds_to_0.95", "seconds_to_0.99", "best_val", "test", "epoch_ms")] == [None, None, 0.8, 0.4, 1000]
    summary = whole_graph.summary([sampled, whole])
    assert summary == {"digits-knn_sage_1_gap_points": pytest.approx(-20)}
