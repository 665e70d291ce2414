"""Captured bulks with real driver calls: batches equal the golden ones, a replay is one call, and a failed capture has no effect."""

import threading
from itertools import islice

import pytest
import torch
from cuda_case import TESTED, to_host
from golden_batches import check, digests, read
from golden_samplers import ADDRESSES, SAMPLED
from nodewise_cuda_case import on_cuda

from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.samplers import Workspace
from host_layer.record import recorded

GOLDEN = read()
NAMES = [
    "neighbor",
    "neighbor, weighted",
    "neighbor, share",
    "labor",
    "temporal",
    "typed",
    "ladies",
    "saint, walk",
    "shadow, ppr",
    "links",
    "mvs",
    "program",
    "walk",
]


def bulk_of(case, workspace, which):
    """Return the digests of a bulk's batches, and their positions among the golden batches."""
    number = len(case.bulk)
    return digests(case.in_bulks(workspace, [ADDRESSES[which]], to_host)), slice(which * number, (which + 1) * number)


@pytest.mark.parametrize("name", NAMES)
def test_a_replayed_bulk_is_one_call(name):
    case, workspace = SAMPLED[name](), on_cuda()
    for which in (1, 2, 2, 2):
        with recorded() as record:
            found, place = bulk_of(case, workspace, which)
        check(name, found, dict(islice(GOLDEN[name].items(), place.start, place.stop)))
    assert (record.calls("cuGraphLaunch"), record.launches, record.memory) == (1, 0, 0)


@pytest.mark.answers_with_errors
def test_a_capture_that_fails_spoils_nothing():
    """After a failed capture, torch's allocator and random generator still work, and another capture succeeds."""
    stream, x = DeviceStream(), torch.zeros(8, device="cuda")
    memory = stream.empty((4,), "int64")

    def asks_for_memory():
        torch.empty(200 << 18, dtype=torch.uint8, device="cuda")  # more memory than torch's allocator has cached

    with recorded() as record, pytest.raises(RuntimeError):
        stream.capture(asks_for_memory)
    assert record.mistakes.keys() == {"cuMemAlloc"}
    assert torch.nn.functional.dropout(x, 0.5, training=True).shape == x.shape
    replay = stream.capture(lambda: memory.copy_to_device(memory, stream=stream.numba))
    replay()
    stream.synchronize()


def test_a_second_gpu_from_another_thread():
    """A workspace on GPU 1 samples the golden batches in a new thread, whose current device is GPU 0, and allocates on GPU 1 only."""
    errors, workspace = [], Workspace(device="cuda", gpu=1)
    workspace.on_device.thresholds = TESTED

    def sample():
        try:
            check_first(workspace)
        except BaseException as error:
            errors.append(error)

    def check_first(workspace):
        case = SAMPLED["neighbor"]()
        found, place = bulk_of(case, workspace, 1)
        check("neighbor", found, dict(islice(GOLDEN["neighbor"].items(), place.start, place.stop)))

    with recorded() as record:
        check_first(workspace)
        thread = threading.Thread(target=sample)
        thread.start()
        thread.join(60)
    assert errors == []
    assert record.of("memory of device").keys() <= {"1"}
