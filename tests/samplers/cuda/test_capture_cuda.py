"""Bulks captured as CUDA graphs are replayed by one call. The simulator repeats the recorded launches and copies instead."""

import gc
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from cases.mistakes import refused, warned
from conftest import make_graph
from cuda_case import TESTED, _replays, needs_cuda, simulated, to_host  # noqa: F401
from golden.golden_graphs import small
from work_cuda_case import start_with_capacity_1

from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.samplers import ASGCNSampler, NeighborSampler, Workspace
from hoptrain.samplers.cuda.replays import MOST_SHAPES, Replays

pytestmark = [needs_cuda, simulated]


def on_device(kernel="auto", **options):
    workspace = Workspace(device="cuda", kernel=kernel, **options)
    workspace.on_device.thresholds = TESTED
    return workspace


def check_bulks(sampler, graph, bulks, workspace):
    """Check that each bulk equals the CPU's, whatever was captured before."""
    for epoch, bulk in enumerate(bulks):
        address = {"seed": 3 + epoch, "epoch": epoch, "first_batch": 7 * epoch}
        found = sampler.sample_bulk(graph, bulk, workspace=workspace, **address)
        for own, other in zip(found, sampler.sample_bulk(graph, bulk, **address), strict=True):
            ours, others = own.arrays(), other.arrays()
            assert ours.keys() == others.keys()
            assert all(np.array_equal(to_host(ours[name]), others[name]) for name in ours)
            assert (own.seed, own.epoch, own.batch) == (other.seed, other.epoch, other.batch)


@pytest.mark.parametrize("kernel", ["sample", "transit"])
def test_bulks_of_one_shape(kernel, replays):
    one, other = [np.array([3, 0, 8, 11]), np.array([5, 2])], [np.array([1, 7, 4]), np.array([9, 6, 10, 0])]
    check_bulks(NeighborSampler([3, 2]), small(), [one, other, one, other], on_device(kernel))
    assert len(replays) == 3


def test_bulks_of_several_shapes(replays):
    """Each shape of a bulk is captured once, and both graphs are kept; the last bulk of an epoch is smaller."""
    graph, workspace = make_graph(), on_device()
    one, two = [np.arange(9), np.arange(50, 54)], [np.arange(6)]
    check_bulks(NeighborSampler([3, 2]), graph, [one, two, one, two, two, one], workspace)
    assert len(replays) == 4


def test_numbers_of_seeds_that_are_nearly_equal_are_one_shape(replays):
    graph, workspace = make_graph(), on_device()
    check_bulks(NeighborSampler([1]), graph, [[np.arange(number)] for number in (64, 63, 61, 33)], workspace)
    assert len(replays) == 2


def test_the_shape_that_was_longest_not_asked_for_is_forgotten():
    """The shape whose last use is longest ago is dropped; ``of`` counts as a use of a shape, ``note`` only makes the shape known."""
    kept = Replays(SimpleNamespace(capture=lambda work: work), is_on=True)
    for shape in range(MOST_SHAPES):
        kept.note(shape)
    assert kept.of(0, list) is list
    kept.note(MOST_SHAPES)
    assert (kept.of(0, dict), kept.of(1, dict), kept.of(2, dict)) == (list, None, dict)
    kept.clear()
    assert kept.of(0, dict) is None


def test_buffers_that_move(replays):
    check_bulks(NeighborSampler([3, 2]), make_graph(), [[np.arange(3)]] * 2 + [[np.arange(40)]] * 2 + [[np.arange(3)]] * 2, on_device())
    assert len(replays) == 3


def test_a_capacity_that_grows(replays, monkeypatch):
    """If a buffer is too small for a captured bulk, hoptrain detects it and queues the bulk again."""
    start_with_capacity_1(monkeypatch)
    hubs, few = [np.arange(3)], [np.arange(150, 153)]
    check_bulks(NeighborSampler([-1]), make_graph(), [few, few, hubs, few, hubs], on_device("sample"))
    assert len(replays) == 4, "all but the first; the third was done again launch by launch"


def test_scores_that_change(replays):
    """A bulk is captured again if new scores have another address on the device, and equals the CPU's."""
    graph, workspace, sampler = small(), on_device(), ASGCNSampler([2])
    for number in range(4):
        if number > 1:
            sampler.set_scores(np.random.default_rng(number).random(graph.num_nodes))
        check_bulks(sampler, graph, [[np.arange(5)]], workspace)
    assert len(replays) == 1


def test_the_switch(replays):
    check_bulks(NeighborSampler([3, 2]), make_graph(), [[np.arange(3)]] * 3, on_device(cuda_graphs=False))
    assert not replays


def test_a_device_that_cannot_capture(monkeypatch):
    """On a device that cannot capture, sampling continues without capture and logs one warning."""

    def capture(self, work):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(DeviceStream, "capture", capture)
    with warned("not permitted", "bulks launch by launch cannot captured", "set cuda_graphs=False", RuntimeWarning):
        check_bulks(NeighborSampler([3, 2]), make_graph(), [[np.arange(3)]] * 4, on_device())


class Driver:
    """A wrapper of the CUDA driver that records calls and whether the garbage collector could run, and fails calls named in ``refuses``."""

    CUstream = int
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL="this thread")

    def __init__(self, refuses=()):
        self.asked, self.collects, self.refuses = [], [], refuses

    def __getattr__(self, name):
        def function(*arguments):
            self.asked.append(name)
            self.collects.append(gc.isenabled())
            return SimpleNamespace(name=name) if name in self.refuses else None, f"what {name} gives"

        function.__name__ = name
        return function


@pytest.fixture
def stream(monkeypatch):
    """Return a function that makes a stream of a driver."""

    def make(driver):
        monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver))
        monkeypatch.setattr(DeviceStream, "entered", lambda self: nullcontext())
        stream = DeviceStream()
        stream._gpu, stream.numba = 0, SimpleNamespace(handle=7)
        return stream

    return make


BEGIN, END = "cuStreamBeginCapture", "cuStreamEndCapture"
MADE = ["cuGraphInstantiate", "cuGraphDestroy"]


@simulated
def test_a_graph_is_captured_once_and_goes_with_its_replay(stream):
    driver = Driver()
    replay = stream(driver).capture(lambda: driver.asked.append("work"))
    assert driver.asked == [BEGIN, "work", END, *MADE]
    replay()
    replay()
    del replay
    gc.collect()
    assert driver.asked[5:] == ["cuGraphLaunch", "cuGraphLaunch", "cuGraphExecDestroy"]


@simulated
@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_no_garbage_is_collected_while_a_graph_is_captured(stream, fails, is_on):
    """The garbage collector is off during a capture, since freeing device memory would fail.

    The capture ends even if its body or the driver's end call fails.
    """
    driver = Driver(refuses=[END] if fails else [])

    def work():
        if fails:
            raise ValueError("a kernel")

    made, was = stream(driver), gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with pytest.raises(ValueError, match="a kernel") if fails else nullcontext():
            made.capture(work)
        assert driver.asked[:4] == [BEGIN, END, *([] if fails else MADE)]
        assert (driver.collects[: 2 if fails else 4], gc.isenabled()) == ([False] * (2 if fails else 4), is_on)
    finally:
        (gc.enable if was else gc.disable)()


@simulated
@pytest.mark.parametrize("function", [BEGIN, END, MADE[0]])
def test_a_driver_error_names_the_function(stream, function):
    with refused(function, "driver", error=RuntimeError):
        stream(Driver(refuses=[function])).capture(lambda: None)
