"""Direct tables over many bulks, and when they are taken."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import make_graph
from cuda_case import TESTED, _quick_simulator, launch, needs_cuda, to_host  # noqa: F401

from hoptrain.engine.device import Buffers, DeviceStream
from hoptrain.kernels.cuda.direct import EMPTY
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.samplers.cuda.tables import DirectTables

pytestmark = needs_cuda


def test_bulks_start_lower_until_the_tables_are_filled_anew():
    tables, buffers = DirectTables(), Buffers(DeviceStream())
    span = EMPTY // 2 - 6
    assert [tables.begin(launch(2), span) for _ in range(2)] == [EMPTY - span, EMPTY - 2 * span]
    entries = tables.entries(buffers, launch(2), "table", 5)
    assert (to_host(entries) == EMPTY).all()
    marked = np.full((2, 5), EMPTY, np.int32)
    marked[1, 3] = 7
    entries.copy_to_device(marked)
    assert tables.entries(buffers, launch(1), "table", 5) is entries
    assert to_host(entries)[1, 3] == 7, "it is filled once"
    assert tables.begin(launch(1), 8) == EMPTY - 2 * span - 8
    assert to_host(entries)[1, 3] == 7
    assert tables.begin(launch(1), 8) == EMPTY - 8
    assert (to_host(entries) == EMPTY).all(), "all rows, also those of larger bulks"


def a_workspace(**options):
    workspace = Workspace(device="cuda", kernel="sample", **options)
    workspace.on_device.thresholds = TESTED
    return workspace


@pytest.mark.parametrize("capture", [True, False])
def test_bulks_before_and_after_the_tables_are_filled_anew(capture):
    graph, sampler, workspace = make_graph(), NeighborSampler([3, 2]), a_workspace(capture=capture)
    for bulk in range(5):
        seeds = [np.arange(6) + 7 * bulk, np.arange(50, 56)]
        for found, one in zip(sampler.sample_bulk(graph, seeds, workspace=workspace), sampler.sample_bulk(graph, seeds), strict=True):
            for name, array in one.arrays().items():
                np.testing.assert_array_equal(to_host(found.arrays()[name]), array, err_msg=name)
        tables = workspace.on_device.driver.direct
        if bulk == 2:
            tables.start = 5  # less than a bulk has numbers
    assert EMPTY - tables.start < 10_000


@pytest.mark.parametrize("change", [{}, {"cache_bytes": 0}], ids=["direct", "hash"])
def test_both_kinds_of_tables(change):
    graph, sampler, workspace = make_graph(), NeighborSampler([4, 3]), a_workspace()
    workspace.on_device.thresholds = replace(TESTED, **change)
    seeds = [np.arange(9), np.array([3])]
    found = sampler.sample_bulk(graph, seeds, workspace=workspace)
    for one, other in zip(found, sampler.sample_bulk(graph, seeds), strict=True):
        np.testing.assert_array_equal(to_host(one.node_ids), other.node_ids)
    assert ("table.entries" in workspace.on_device.driver.buffers) == (not change)
    assert ("table.keys" in workspace.on_device.driver.buffers) == bool(change)


def test_a_graph_of_many_vertices_has_hash_tables():
    workspace = a_workspace()
    NeighborSampler([2]).sample_bulk(make_graph(5000, 9000), [np.arange(4)], workspace=workspace)
    assert "table.keys" in workspace.on_device.driver.buffers
