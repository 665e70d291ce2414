"""The cost model chooses by bytes that can be counted by hand."""

import pytest

from hoptrain.kernels.cuda.thresholds import THRESHOLDS
from hoptrain.samplers.cuda.cost_model import choose_schedule, expected_transits, schedule_bytes

GRAPH = {"num_nodes": 1_000_000, "num_edges": 50_000_000, "id_bytes": 4, "adjacency_cost": 1, "thresholds": THRESHOLDS}


def test_expected_transits():
    assert expected_transits(1, 10**9) == pytest.approx(1)
    assert expected_transits(10**6, 10**6) == pytest.approx(632_121, rel=1e-3)  # 1 - 1/e of the vertices
    assert expected_transits(10**9, 1000) == pytest.approx(1000)


def test_bytes_by_sample():
    costs = schedule_bytes(1000, 10, **GRAPH)
    assert costs["sample"] == 1000 * (32 + 10 * 32)  # offsets, and a sector for each draw
    assert schedule_bytes(1000, -1, **GRAPH)["sample"] == 1000 * (32 + 50 * 4)  # the whole column in order
    assert schedule_bytes(1000, 60, **GRAPH)["sample"] == 1000 * (32 + 50 * 4)


def test_few_requests_go_by_sample_and_many_by_transit():
    assert choose_schedule(1000, 5, **GRAPH) == "sample"
    assert choose_schedule(50_000_000, 15, **GRAPH) == "transit"


def test_a_slow_link_to_the_graph_makes_transits_pay_earlier():
    assert choose_schedule(1_000_000, -1, **GRAPH) == "sample"
    assert choose_schedule(1_000_000, -1, **(GRAPH | {"adjacency_cost": 75})) == "transit"
