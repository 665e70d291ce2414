"""The traffic model's byte counts for each kernel's arrays agree with the accesses of compiled kernels; run by ``test_ptx``.

Sequential accesses are compared by the distinct sectors of a launch, since a device loads a sector that two warps share only once.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from conftest import make_graph
from numba import cuda

from hoptrain.benchmarks.traffic.bulk import TABLE, count_bytes
from hoptrain.benchmarks.traffic.count import Count, Moved
from hoptrain.benchmarks.traffic.facts import Facts, facts_of
from hoptrain.benchmarks.traffic.record import recorded
from hoptrain.engine.gpu_memory.device_store import DeviceRows
from hoptrain.kernels.cuda.thresholds import THRESHOLDS
from hoptrain.samplers import NeighborSampler, Workspace
from ptx.launch import SESSION
from ptx.watch import DISTINCT_READ, SECTOR

BLOCKS = replace(THRESHOLDS, block=128, max_blocks=64)
CASES = {
    "sample": (20_000, "sample", {"fanouts": [8, 4]}, BLOCKS),
    "transit": (20_000, "transit", {"fanouts": [8, 4]}, replace(BLOCKS, warp_work=8)),
    "new, replace, direct": (6000, "sample", {"fanouts": [6, 5], "expand": "new", "replace": True}, BLOCKS),
}
"""(number of nodes, schedule, options of the sampler, thresholds) by name."""
SHARE = 0.2
"""Relative tolerance of a count: spans overlap by chance, and rows begin within a sector."""
ALWAYS = 0.4
"""Absolute tolerance in bytes per edge: sizes that each warp reads, and the ends of rows."""
SEEN = set()


@pytest.fixture
def counted():
    SESSION.mode, SESSION.traffic = "warps", []
    yield SESSION.traffic
    SESSION.mode, SESSION.traffic = None, None


def accessed(traffic, ordered):
    """Return bytes by kernel, array and direction; arrays in ``ordered`` count distinct sectors only."""
    found = defaultdict(float)
    for kernel, arrays in traffic:
        for array, counts in arrays.items():
            for is_write in (False, True):
                key = kernel, array, is_write
                found[key] += SECTOR * counts[is_write + (DISTINCT_READ if key in ordered else 0)]
    return found


@pytest.mark.parametrize("case", CASES)
def test_bulks(case, counted):
    nodes, kernel, options, thresholds = CASES[case]
    graph, rng = make_graph(nodes, 25 * nodes), np.random.default_rng(0)
    sampler, workspace = NeighborSampler(**options), Workspace(device="cuda", kernel=kernel, placement="device", cuda_graphs=False)
    workspace.on_device.thresholds = thresholds
    seeds = [rng.permutation(nodes)[:40] for _ in range(3)]
    sampler.sample_bulk(graph, seeds, workspace=workspace)
    counted.clear()
    with recorded() as launches:
        sampler.sample_bulk(graph, seeds, workspace=workspace)
    batches = sampler.sample_bulk(graph, seeds)
    moved = count_bytes(launches, facts_of(graph, batches), workspace.on_device.driver)
    check(moved, counted, sum(batch.num_edges for batch in batches))


def check(moved, counted, items):
    expected, ordered = defaultdict(float), set()
    for launch in moved:
        for access in launch.accesses:
            key = launch.kernel, access.array, access.is_write
            expected[key] += access.ordered + SECTOR * access.sectors
            ordered |= set() if access.sectors else {key}
    ordered -= {(launch.kernel, a.array, a.is_write) for launch in moved for a in launch.accesses if a.sectors}
    found = accessed(counted, ordered)
    SEEN.update(launch.kernel for launch in moved)
    wrong = {
        key: f"{found[key] / items:.2f} bytes an item, the model says {expected[key] / items:.2f}"
        for key in expected
        if abs(found[key] - expected[key]) > SHARE * expected[key] + ALWAYS * items
    }
    assert not wrong
    left_out = sum(found[key] for key in found if key not in expected)
    assert left_out < 0.12 * sum(expected.values()), "what the model leaves out is little"


def test_the_gather(counted):
    workspace, ids = Workspace(device="cuda"), np.random.default_rng(0).integers(0, 2000, 1500).astype(np.int32)
    stream = workspace.stream
    rows = DeviceRows(np.zeros((2000, 50), np.float32), stream, placement="device")
    device_ids = cuda.to_device(ids)
    counted.clear()
    with recorded() as launches:
        rows.gather(device_ids)
    stream.synchronize()
    check([_moved(launch) for launch in launches if launch.kernel in TABLE], counted, len(ids))


def _moved(launched):
    count = Count(launched, Facts(sizes={"zeros": np.zeros(1)}, hops=(), num_edges=0), {}, THRESHOLDS, 0)
    TABLE[launched.kernel](count)
    return Moved(launched.kernel, launched.grid, launched.block, tuple(count.accesses))


def test_every_kernel_of_the_table_was_held_to_its_accesses():
    """The tests of this file compare every kernel of the traffic model's table; this test must be the last of the file."""
    assert TABLE.keys() == SEEN
