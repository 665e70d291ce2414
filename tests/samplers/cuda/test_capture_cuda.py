"""Bulks that are queued by one call: on a device a CUDA graph, in the simulator what was launched and copied, done again."""

import numpy as np
import pytest
from conftest import make_graph
from cuda_case import TESTED, _quick_simulator, needs_cuda, simulated, to_host  # noqa: F401
from golden.golden_graphs import doubly_weighted, small, typed
from numba import cuda

from hoptrain.engine.device import DeviceStream
from hoptrain.samplers import (
    HeteroSampler,
    LaborSampler,
    LinkSampler,
    MVSSampler,
    NeighborSampler,
    Node2Vec,
    PinSAGESampler,
    RandomWalk,
    TemporalSampler,
    VRGCNSampler,
    Workspace,
)

pytestmark = [needs_cuda, simulated]
CAPTURED = {
    "distinct": (NeighborSampler([3, 2]), small()),
    "new": (NeighborSampler([3, 2], expand="new"), small()),
    "with replacement": (NeighborSampler([3, 2], replace=True), small()),
    "by weight": (NeighborSampler([3, 2], weighted=True), doubly_weighted()),
    "temporal": (TemporalSampler([3, 2], seed_times=np.arange(40) % 7), small()),
    "pinsage": (PinSAGESampler([2], num_walks=4), small()),
    "typed": (HeteroSampler([2, 2], "p"), typed()),
    "walks": (RandomWalk(3), small()),
    "node2vec": (Node2Vec(3, p=0.5), small()),
}


@pytest.fixture
def replays(monkeypatch):
    """How often something was done again that was captured: launches and copies alone, and nothing of the host's."""
    number = []
    kernel, array = type(cuda.jit(lambda: None)), type(cuda.to_device(np.empty(0)))
    launch, to_device, to_host = kernel.__call__, array.copy_to_device, array.copy_to_host

    def capture(self, work):
        queued = []

        def note_launch(kernel, *arguments):
            queued.append(
                (
                    launch,
                    kernel[kernel.grid_dim, kernel.block_dim, kernel.stream, kernel.dynshared_size],
                    arguments,
                    {},
                    vars(kernel).copy(),
                )
            )

        with monkeypatch.context() as patched:
            patched.setattr(kernel, "__call__", note_launch)
            patched.setattr(array, "copy_to_device", lambda *given, **named: queued.append((to_device, None, given, named, {})))
            patched.setattr(array, "copy_to_host", lambda *given, **named: queued.append((to_host, None, given, named, {})))
            work()

        def replay():
            number.append(len(queued))
            for function, own, given, named, state in queued:
                if own is None:
                    function(*given, **named)
                else:
                    vars(own).update(state)
                    function(own, *given)

        return replay

    monkeypatch.setattr(DeviceStream, "capture", capture)
    return number


def on_device(kernel="auto", **options):
    workspace = Workspace(device="cuda", kernel=kernel, **options)
    workspace.on_device.thresholds = TESTED
    return workspace


def check_bulks(sampler, graph, bulks, workspace):
    """As on the CPU, whatever came before."""
    for epoch, bulk in enumerate(bulks):
        address = {"seed": 3 + epoch, "epoch": epoch, "first_batch": 7 * epoch}
        found = sampler.sample_bulk(graph, bulk, workspace=workspace, **address)
        for own, other in zip(found, sampler.sample_bulk(graph, bulk, **address), strict=True):
            ours, others = own.arrays(), other.arrays()
            assert ours.keys() == others.keys()
            assert all(np.array_equal(to_host(ours[name]), others[name]) for name in ours)
            assert (own.seed, own.epoch, own.batch) == (other.seed, other.epoch, other.batch)


@pytest.mark.parametrize("kernel", ["sample", "transit"])
@pytest.mark.parametrize("name", [name if name == "distinct" else pytest.param(name, marks=pytest.mark.long) for name in CAPTURED])
def test_bulks_of_one_shape(name, kernel, replays):
    """The first makes the buffers; all later ones are done by one call."""
    sampler, graph = CAPTURED[name]
    one, other = [np.array([3, 0, 8, 11]), np.array([5, 2])], [np.array([1, 7, 4]), np.array([9, 6, 10, 0])]
    check_bulks(sampler, graph, [one, other, one, other], on_device(kernel))
    assert len(replays) == 3


def test_another_shape_in_between(replays):
    graph, workspace = make_graph(), on_device()
    one, two = [np.arange(6), np.arange(50, 54)], [np.arange(9)]
    check_bulks(NeighborSampler([3, 2]), graph, [one, one, two, one, one, one, two], workspace)
    assert len(replays) == 1 + 2


def test_buffers_that_move(replays):
    """A bulk of more seeds needs larger ones."""
    check_bulks(NeighborSampler([3, 2]), make_graph(), [[np.arange(3)]] * 2 + [[np.arange(40)]] * 2 + [[np.arange(3)]] * 2, on_device())
    assert len(replays) == 3


def test_the_switch(replays):
    check_bulks(NeighborSampler([3, 2]), make_graph(), [[np.arange(3)]] * 3, on_device(capture=False))
    assert not replays


def test_a_device_that_cannot_capture(monkeypatch):
    """It goes on without, and says so once."""

    def capture(self, work):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(DeviceStream, "capture", capture)
    with pytest.warns(RuntimeWarning, match="launch by launch, since they cannot be captured: .*not permitted") as said:
        check_bulks(NeighborSampler([3, 2]), make_graph(), [[np.arange(3)]] * 4, on_device())
    assert len(said) == 1


@pytest.mark.parametrize(
    "sampler",
    [NeighborSampler([3, -1]), LaborSampler([3]), VRGCNSampler([2]), MVSSampler(LaborSampler([2]), 2)],
    ids=lambda sampler: repr(sampler),
)
def test_bulks_whose_sizes_are_read_back_are_not_captured(sampler, replays):
    check_bulks(sampler, make_graph(), [[np.arange(5)]] * 3, on_device())
    assert not replays


def test_edges_that_are_taken_out_differ_from_bulk_to_bulk(replays):
    graph = make_graph()
    for exclude in ("reverse", "none"):
        check_bulks(LinkSampler(NeighborSampler([3, 2]), exclude=exclude), graph, [[np.arange(5)]] * 4, on_device())
        assert bool(replays) == (exclude == "none")
