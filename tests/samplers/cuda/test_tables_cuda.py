"""Relabelling tables that many bulks use without clearing: their layout, their size, and the batches."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import make_graph
from cuda_case import TESTED, launch, needs_cuda, to_host
from golden.golden_graphs import hetero_graph

from hoptrain.engine import Graph
from hoptrain.engine.gpu_memory.device_stream import Buffers, DeviceStream
from hoptrain.kernels.cuda.stamped import EMPTY
from hoptrain.samplers import HeteroSampler, LaborSampler, LadiesSampler, NeighborSampler, Workspace
from hoptrain.samplers.cuda.drivers import driver_for
from hoptrain.samplers.cuda.tables import FIRST_SHARE, StampedTables

pytestmark = needs_cuda


def test_bulks_start_lower_until_the_tables_are_refilled():
    tables, buffers = StampedTables(), Buffers(DeviceStream())
    span = EMPTY // 2 - 6
    assert tables.begin(launch(2), span) == [EMPTY - span]
    assert tables.begin(launch(2), span) == [EMPTY - 2 * span]
    entries = tables.entries(buffers, launch(2), "table", 5)
    assert (to_host(entries) == EMPTY).all()
    marked = np.full((2, 5), EMPTY, np.int32)
    marked[1, 3] = 7
    entries.copy_to_device(marked)
    assert tables.entries(buffers, launch(1), "table", 5) is entries
    assert to_host(entries)[1, 3] == 7, "it is filled once"
    assert tables.begin(launch(1), 4, 2) == [EMPTY - 2 * span - 4, EMPTY - 2 * span - 8]
    assert to_host(entries)[1, 3] == 7
    assert tables.begin(launch(1), 4, 2) == [EMPTY - 4, EMPTY - 8]
    assert (to_host(entries) == EMPTY).all(), "all rows, also those of larger bulks"


def a_workspace(**options):
    workspace = Workspace(device="cuda", kernel="sample", **options)
    workspace.on_device.thresholds = TESTED
    return workspace


@pytest.mark.parametrize("capture", [True, False])
def test_bulks_before_and_after_the_tables_are_refilled(capture):
    graph, sampler, workspace = make_graph(), NeighborSampler([3, 2]), a_workspace(cuda_graphs=capture)
    for bulk in range(5):
        seeds = [np.arange(6) + 7 * bulk, np.arange(50, 56)]
        for found, one in zip(sampler.sample_bulk(graph, seeds, workspace=workspace), sampler.sample_bulk(graph, seeds), strict=True):
            for name, array in one.arrays().items():
                np.testing.assert_array_equal(to_host(found.arrays()[name]), array, err_msg=name)
        tables = workspace.on_device.driver.tables
        if bulk == 2:
            tables.start = 5  # fewer numbers than a bulk needs
    assert EMPTY - tables.start < 10_000


def check(sampler, graph, seeds, workspace):
    """Check that a bulk equals the CPU's, and return the driver."""
    found = sampler.sample_bulk(graph, seeds, workspace=workspace)
    for one, other in zip(found, sampler.sample_bulk(graph, seeds), strict=True):
        for name, array in other.arrays().items():
            np.testing.assert_array_equal(to_host(one.arrays()[name]), array, err_msg=name)
    return workspace.on_device.driver


@pytest.mark.parametrize(("change", "name"), [({}, "table.entries"), ({"cache_bytes": 0}, "table.words")], ids=["direct", "packed"])
def test_both_kinds_of_tables(change, name):
    graph, workspace = make_graph(), a_workspace()
    workspace.on_device.thresholds = replace(TESTED, **change)
    driver = check(NeighborSampler([4, 3]), graph, [np.arange(9), np.array([3])], workspace)
    assert [own for own in ("table.entries", "table.words", "table.keys") if own in driver.buffers] == [name]


@pytest.mark.parametrize(("change", "name"), [({}, "table.entries"), ({"cache_bytes": 0}, "table.words")], ids=["direct", "packed"])
def test_tables_of_which_nodes_are_forgotten(change, name):
    """Batches equal the CPU's if the tables are cleared, as in the third bulk, which exhausts the range of the tables' numbers."""
    graph, sampler, workspace = make_graph(40, 120), LaborSampler([2, 2], importance_rounds=1), a_workspace()
    workspace.on_device.thresholds = replace(TESTED, **change)
    driver = check(sampler, graph, [np.array([0, 9]), np.array([3])], workspace)
    used = driver.tables.start
    check(sampler, graph, [np.array([1])], workspace)
    driver.tables.start = driver.tables.span * 3 - 1
    check(sampler, graph, [np.array([5, 3])], workspace)
    assert driver.tables.start > used // 2
    assert [own for own in ("table.entries", "table.words", "table.keys") if own in driver.buffers] == [name]


@pytest.mark.parametrize(
    ("change", "name"), [({}, "table.candidates.entries"), ({"cache_bytes": 0}, "table.candidates.words")], ids=["direct", "packed"]
)
def test_tables_of_candidates(change, name):
    """Batches equal the CPU's although bulks share the candidates' tables; in the third bulk the tables are cleared.

    Each hop starts with an empty table.
    """
    graph, sampler, workspace = make_graph(20, 200), LadiesSampler([3, 2]), a_workspace()
    workspace.on_device.thresholds = replace(TESTED, **change)
    for bulk, seeds in enumerate(([[0, 9], [3]], [[1]], [[5, 3]])):
        driver = check(sampler, graph, [np.array(some) for some in seeds], workspace)
        if bulk == 1:
            driver.tables.start = driver.tables.span * 2 - 1
    assert driver.tables.start == EMPTY - 2 * driver.tables.span
    names = [f"table.candidates.{kind}" for kind in ("entries", "words", "keys")]
    assert [own for own in names if own in driver.buffers] == [name]


def test_a_graph_of_many_nodes_has_packed_tables():
    driver = check(NeighborSampler([2]), make_graph(5000, 9000), [np.arange(4)], a_workspace())
    assert "table.words" in driver.buffers


def test_numbers_of_64_bits_have_tables_that_are_cleared():
    graph, sampler, workspace = make_graph(5000, 9000), NeighborSampler([2]), a_workspace()
    driver_for(graph, sampler, workspace).dtype = np.dtype(np.int64)
    assert "table.keys" in check(sampler, graph, [np.arange(4)], workspace).buffers


def of_own_neighbors():
    """Return a graph in which nodes 0 to 9 share two neighbours, and each of nodes 10 to 19 has two of its own."""
    own = np.arange(10, 20), np.arange(100, 120), np.arange(200, 240)
    source = np.concatenate([np.tile([50, 51], 10), own[1], own[2]])
    destination = np.concatenate([np.repeat(np.arange(10), 2), np.repeat(own[0], 2), np.repeat(own[1], 2)])
    return Graph.from_edge_index(np.stack([source, destination]), num_nodes=5000)


@pytest.mark.parametrize("capture", [True, False])
def test_packed_tables_grow_when_a_bulk_needs_it(capture):
    graph = of_own_neighbors()
    sampler, workspace = NeighborSampler([2, 2]), a_workspace(cuda_graphs=capture)
    shares = [check(sampler, graph, [np.arange(10) + first] * 2, workspace).tables.share for first in (0, 0, 0, 10, 10, 0, 10)]
    assert shares == [FIRST_SHARE] * 3 + [FIRST_SHARE // 2] * 4
    assert workspace.on_device.driver.double_buffer().tables.share == FIRST_SHARE // 2


@pytest.mark.parametrize("capture", [True, False])
def test_packed_tables_of_candidates_grow(capture):
    """Packed tables of candidates grow until they suffice: at first the buffer for in-edges is too small, and then the table."""
    graph, sampler, workspace = of_own_neighbors(), LadiesSampler([3, 2]), a_workspace(cuda_graphs=capture)
    shares = [check(sampler, graph, [np.arange(10) + first] * 2, workspace).tables.share for first in (0, 0, 0, 10, 10, 0, 10)]
    assert shares == [FIRST_SHARE] * 3 + [FIRST_SHARE // 2] * 4


def test_tables_of_heterogeneous_graphs_grow():
    graph, workspace = hetero_graph(), a_workspace()
    workspace.on_device.thresholds = replace(TESTED, cache_bytes=0)
    sampler = HeteroSampler([3, 2], "p")
    seeds = [np.arange(12), np.arange(5, 10)]
    for _ in range(2):
        found = sampler.sample_bulk(graph, seeds, workspace=workspace)
        for one, other in zip(found, sampler.sample_bulk(graph, seeds), strict=True):
            for name, array in other.arrays().items():
                np.testing.assert_array_equal(to_host(one.arrays()[name]), array, err_msg=name)
    assert workspace.on_device.driver.tables.share < FIRST_SHARE
