"""Bulks of every sampler, with blocks of several warps, equal the CPU's bit for bit, on a device or on the interpreter in ``tests/ptx``."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from cuda_case import needs_cuda, to_host
from golden_batches import digests
from golden_graphs import make_graph
from golden_samplers import ADDRESSES, ON_CPU, SAMPLED, one_of_each
from large_cases import LARGE, SyntheticProducts

from hoptrain.engine.device import is_simulated
from hoptrain.kernels.cuda.group import CLASSES, NUM_COUNTERS
from hoptrain.kernels.cuda.thresholds import THRESHOLDS
from hoptrain.samplers import NeighborSampler, Workspace

pytestmark = [
    needs_cuda,
    pytest.mark.skipif(is_simulated(), reason="the simulator runs every CUDA thread as a Python thread: these are too many"),
]
on_a_device = pytest.mark.skipif("ptx.plugin" in sys.modules, reason="needs a CUDA device: the interpreter takes hours")

CLOSE = replace(THRESHOLDS, block=128, max_blocks=8, resident_blocks=4, thread_work=1, warp_work=3, block_work=6, shares=2)
"""Thresholds so close that small graphs have nodes in all classes of work, if a request is one unit of work."""
MODES = {
    "distinct": {},
    "all": {"fanouts": [-1, 3]},
    "replace": {"replace": True},
    "weighted": {"weighted": True},
    "weighted, replace": {"weighted": True, "replace": True},
    "new": {"expand": "new"},
}


def on_cuda(kernel, thresholds):
    workspace = Workspace(device="cuda", kernel=kernel)
    workspace.on_device.thresholds = thresholds
    return workspace


def check_equal(case, workspace):
    expected = digests(case.in_bulks(None, ADDRESSES[-1:]))
    assert digests(case.in_bulks(workspace, ADDRESSES[-1:], to_host)) == expected


SMALL = [name for name in SAMPLED if "large" not in name and "METIS" not in name and name not in ON_CPU]


@pytest.mark.parametrize(
    ("name", "kernel"),
    [*((name, "sample") for name in SMALL), *(pytest.param(name, "transit", marks=one_of_each(name)) for name in SMALL)],
)
def test_every_sampler(name, kernel):
    check_equal(SAMPLED[name](), on_cuda(kernel, CLOSE))


@pytest.mark.parametrize("kernel", ["sample", "transit"])
@pytest.mark.parametrize("name", ["neighbor", "typed", "neighbor, new", "labor"])
def test_packed_tables(name, kernel):
    """Bulks with packed relabelling tables equal the CPU's, also the second bulk, whose tables contain the first bulk's entries."""
    case, workspace = SAMPLED[name](), on_cuda(kernel, replace(CLOSE, cache_bytes=0))
    for _ in range(2):
        check_equal(case, workspace)


@pytest.mark.parametrize("kernel", ["sample", "transit"])
@pytest.mark.parametrize("mode", MODES)
def test_bulks_of_several_sizes(mode, kernel):
    """Bulks with thousands of edges and the default block sizes equal the CPU's, also a second bulk that needs less than the buffers hold."""
    graph, rng = make_graph(600, 7000), np.random.default_rng(0)
    options = {"fanouts": [10, 5]} | MODES[mode]
    sampler, workspace = NeighborSampler(**options), on_cuda(kernel, replace(CLOSE, block=THRESHOLDS.block))
    for sizes in ((30,) * 8, (64, 1)):
        seeds = [rng.permutation(600)[:size] for size in sizes]
        found = sampler.sample_bulk(graph, seeds, seed=5, workspace=workspace)
        check_same(found, sampler.sample_bulk(graph, seeds, seed=5))
        if (mode, kernel, len(seeds)) == ("distinct", "transit", 8):
            counters = to_host(workspace.on_device.driver.buffers.array("counters", (NUM_COUNTERS,), np.int64))
            assert (counters[CLASSES:] > 0).all(), "all classes of transits occur"


def check_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        arrays = other.arrays()
        assert one.arrays().keys() == arrays.keys()
        for name, array in one.arrays().items():
            np.testing.assert_array_equal(to_host(array), arrays[name], err_msg=name)


@pytest.fixture(scope="module")
def products():
    return SyntheticProducts.of(0.05)


@on_a_device
@pytest.mark.parametrize("number", [1, 8, 64])
@pytest.mark.parametrize("kernel", ["sample", "transit"])
@pytest.mark.parametrize("name", LARGE)
def test_a_graph_of_a_hundred_thousand_nodes(products, name, kernel, number):
    work = LARGE[name](products)
    seeds, workspace = work.batches(0, number), Workspace(device="cuda", kernel=kernel)
    check_same(work.sampler.sample_bulk(work.graph, seeds, workspace=workspace), work.sampler.sample_bulk(work.graph, seeds))


@pytest.fixture(scope="module")
def small_products():
    return SyntheticProducts.of(0.0005)


@pytest.mark.parametrize("name", LARGE)
def test_the_same_cases_of_a_graph_of_a_thousand_nodes(small_products, name):
    """Bulks of each large case equal the CPU's on a graph of about a thousand nodes; seeds are few, so that it runs without a device."""
    work = LARGE[name](small_products)
    seeds, workspace = [some[:4] for some in work.batches(0, 2)], on_cuda("transit", CLOSE)
    check_same(work.sampler.sample_bulk(work.graph, seeds, workspace=workspace), work.sampler.sample_bulk(work.graph, seeds))
