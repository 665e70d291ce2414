"""The cost model chooses a schedule by byte counts that can be computed by hand."""

import numpy as np
import pytest
from conftest import make_graph
from cuda_case import TESTED, _replays, needs_cuda, simulated, to_host  # noqa: F401

from hoptrain.engine import Graph, HeteroGraph
from hoptrain.kernels.cuda.thresholds import THRESHOLDS
from hoptrain.samplers import HeteroSampler, NeighborSampler, Workspace
from hoptrain.samplers.cuda.cost_model import choose_schedule, expected_transits, schedule_bytes
from hoptrain.samplers.cuda.drivers import driver_for

pytestmark = needs_cuda
GRAPH = {"num_nodes": 1_000_000, "num_edges": 50_000_000, "id_bytes": 4, "adjacency_cost": 1, "thresholds": THRESHOLDS}


def test_expected_transits():
    assert expected_transits(1, 10**9) == pytest.approx(1)
    assert expected_transits(10**6, 10**6) == pytest.approx(632_121, rel=1e-3)  # 1 - 1/e of the nodes
    assert expected_transits(10**9, 1000) == pytest.approx(1000)


def test_bytes_by_sample():
    costs = schedule_bytes(1000, 10, **GRAPH)
    column = 1 + 49 * 4 / 32  # sectors of the 50 edges
    drawn = column * (1 - (1 - 1 / column) ** 10)
    assert costs["sample"] == pytest.approx(
        1000 * (32 + 4 + 8 + 32 * drawn + 10 * 8)
    )  # offsets; id and offset; one sector per draw; output
    whole = 1000 * (32 + 4 + 8 + 32 * column + 50 * 8)
    assert schedule_bytes(1000, -1, **GRAPH)["sample"] == pytest.approx(whole)
    assert schedule_bytes(1000, 60, **GRAPH)["sample"] == pytest.approx(whole)


def test_grouping_pays_where_columns_are_long_and_met_often():
    long = GRAPH | {"num_nodes": 100_000}  # 500 edges each
    assert choose_schedule(1000, 25, **GRAPH) == "sample"
    assert choose_schedule(50_000_000, 10, **GRAPH) == "sample", "a column of 200 bytes is read as cheaply by each request"
    assert choose_schedule(1000, 25, **long) == "sample"
    assert choose_schedule(5_000_000, 25, **long) == "transit"


def test_a_slow_link_to_the_graph_makes_transits_pay_earlier():
    assert choose_schedule(1_000_000, 10, **GRAPH) == "sample"
    assert choose_schedule(1_000_000, 10, **(GRAPH | {"adjacency_cost": 75})) == "transit"


def test_the_first_bulk_gives_the_number_of_requests():
    """After the first bulk, the model knows the number of requests; before, twelve for one node could become 9 * 8 * 7 = 504."""
    graph = Graph.from_edge_index(np.array([[0] * 8, range(1, 9)]), num_nodes=9)
    workspace = Workspace(device="cuda")
    workspace.on_device.thresholds = TESTED
    sampler, seeds = NeighborSampler([8, 8, 8]), [np.arange(3), np.arange(5, 8)]
    sampler.sample_bulk(graph, seeds, workspace=workspace)
    driver = workspace.on_device.driver
    assert driver.expected(0) == 6
    found = sampler.sample_bulk(graph, seeds)
    assert driver.expected(1) == sum(batch.blocks[1].num_dst for batch in found)
    assert driver.expected(2) == sum(batch.blocks[0].num_dst for batch in found)


def test_the_first_bulk_gives_the_requests_of_each_relation():
    """After the first bulk, the model knows the requests of each relation.

    In the second hop, two relations lead into different numbers of nodes, and the third has no destinations yet.
    """
    pairs = {("p", "cites", "p"): [[0] * 4, range(1, 5)], ("p", "of", "a"): [[0], [0]], ("a", "writes", "p"): [[0] * 4, range(1, 5)]}
    graph = HeteroGraph.from_edges({"p": 5, "a": 1}, {relation: tuple(map(np.array, ends)) for relation, ends in pairs.items()})
    workspace, sampler, seeds = Workspace(device="cuda"), HeteroSampler([4, 4], "p"), [np.arange(1, 3), np.arange(2, 5)]
    workspace.on_device.thresholds = TESTED
    sampler.sample_bulk(graph, seeds, workspace=workspace)
    driver, found = workspace.on_device.driver, sampler.sample_bulk(graph, seeds)
    num_dst = [sum(batch.blocks[1 - hop][relation].num_dst for batch in found) for hop in range(2) for relation in driver.columns]
    assert [driver.expected(step) for step in range(6)] == num_dst
    assert len(set(num_dst)) > 2
    used = {step: draws.expected for step, draws, _, _ in driver.schedules}
    assert used == {step: num_dst[step] for step in used}


@simulated
def test_a_bulk_whose_schedule_changes_is_not_captured_before_it_was_queued(monkeypatch, replays):
    workspace, graph, seeds = Workspace(device="cuda"), make_graph(), [np.arange(6)]
    workspace.on_device.thresholds = TESTED
    chosen = iter(["sample", "transit", *["transit"] * 9])
    monkeypatch.setattr("hoptrain.samplers.cuda.draws.choose_schedule", lambda *_: next(chosen))
    sampler, schedules = NeighborSampler([3]), []
    driver_for(graph, sampler, workspace).tables.share = 1  # so that the first bulk is not repeated for lack of space
    for _ in range(3):
        (found,) = sampler.sample_bulk(graph, seeds, workspace=workspace)
        np.testing.assert_array_equal(to_host(found.node_ids), sampler.sample(graph, seeds[0]).node_ids)
        driver = workspace.on_device.driver
        schedules.append((driver.schedule, len(replays)))
    assert schedules == [(["sample"], 0), (["transit"], 0), (["transit"], 1)]
