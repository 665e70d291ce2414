"""Common parts of the CUDA tests, which run in Numba's simulator (a CUDA thread is a Python thread), on a device, or on the interpreter in ``ptx``."""

import os
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numba import cuda

from hoptrain.engine.arrays import as_array
from hoptrain.engine.device import cuda_status, is_simulated
from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.thresholds import THRESHOLDS, Thresholds
from hoptrain.samplers.buffers.workspace import Workspace

needs_cuda = pytest.mark.skipif(cuda_status() is not None, reason=str(cuda_status()))

SMALL = Thresholds(
    block=4, max_blocks=2, resident_blocks=2, lanes=4, thread_work=1, warp_work=3, block_work=6,
    warp_stage_bytes=32, block_stage_bytes=64, shares=2,
)  # fmt: skip
"""Tiny blocks and tiles, so that small inputs reach every border, and the simulator starts few threads."""

_BLOCK = os.environ.get("HOPTRAIN_TEST_BLOCK")
TESTED = replace(THRESHOLDS, block=int(_BLOCK), max_blocks=8, resident_blocks=4) if _BLOCK else SMALL
"""Thresholds of the tests: ``SMALL``, or on a device or the interpreter the defaults with few blocks of the given size."""


@pytest.fixture
def tested_blocks(monkeypatch):
    """Give every new workspace, including those of loaders, the launch thresholds of the tests (``TESTED``)."""
    start = Workspace.__init__

    def init(self, *args, **options):
        start(self, *args, **options)
        self.on_device.thresholds = TESTED

    monkeypatch.setattr(Workspace, "__init__", init)


def launch(num_batches, thresholds=TESTED):
    return Launch(stream=cuda.stream(), thresholds=thresholds, num_batches=num_batches)


def to_device(values, dtype=np.int64):
    return cuda.to_device(np.ascontiguousarray(values, dtype))


def to_host(array):
    """Return a NumPy array from a result of a driver or a kernel, which may be a torch tensor on the device."""
    cuda.synchronize()
    if isinstance(array, np.ndarray):
        return array
    return as_array(array.cpu()) if hasattr(array, "cpu") else array.copy_to_host()


simulated = pytest.mark.skipif(not is_simulated(), reason="a stand-in takes torch's place in the simulator")


class OnDevice(torch.Tensor):
    """A tensor that claims to be on a GPU."""

    is_cuda = True


class StandIn:
    """A stub of torch whose device is the simulator; it has its own memory, and records tensors over foreign memory."""

    def __init__(self):
        self.foreign = []
        stream = SimpleNamespace(
            cuda_stream=0, device="cpu", wait_stream=lambda other: None, record_event=lambda: SimpleNamespace(synchronize=lambda: None)
        )
        self.cuda = SimpleNamespace(Stream=lambda gpu: stream, stream=lambda stream: nullcontext(), current_stream=lambda device: stream)

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, shape, dtype, device):
        return torch.empty(shape, dtype=dtype).as_subclass(OnDevice)

    def as_tensor(self, array, device):
        if isinstance(array, torch.Tensor):
            return array
        tensor = torch.from_numpy(getattr(array, "_ary", array))
        self.foreign.append(tensor)
        return tensor.as_subclass(OnDevice)


def put_stand_in(monkeypatch):
    """Use the memory of a new ``StandIn`` as device memory, and return it."""
    instead = StandIn()
    monkeypatch.setattr("hoptrain.engine.gpu_memory.device_stream.torch_on_device", lambda: instead)
    monkeypatch.setattr(DeviceStream, "capture", lambda self, work: None)
    monkeypatch.setattr(cuda, "external_stream", lambda pointer: cuda.stream(), raising=False)
    monkeypatch.setattr(cuda, "as_cuda_array", lambda tensor: cuda.to_device(np.empty(0)).__class__(tensor.numpy()), raising=False)
    return instead


@pytest.fixture(name="launched")
def _launched(monkeypatch):
    """Return a list to which every single kernel launch adds the kernel's name, and every upload "upload"."""
    names = []
    kernel, array = type(cuda.jit(lambda: None)), type(cuda.to_device(np.empty(0)))
    launch, upload = kernel.__call__, array.copy_to_device

    def note(kernel, *arguments):
        if not kernel._device:  # device functions are called by kernels, not launched
            names.append(kernel.fn.__name__)
        return launch(kernel, *arguments)

    def note_upload(*given, **named):
        names.append("upload")
        upload(*given, **named)

    monkeypatch.setattr(kernel, "__call__", note)
    monkeypatch.setattr(array, "copy_to_device", note_upload)
    return names


@pytest.fixture(name="replays")
def _replays(monkeypatch):
    """Return a list with an entry for each replay. A replay repeats captured launches and copies, and no host code."""
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
            number.append(sum(own is not None for _, own, *_ in queued))
            for function, own, given, named, state in queued:
                if own is None:
                    function(*given, **named)
                else:
                    vars(own).update(state)
                    function(own, *given)

        return replay

    monkeypatch.setattr(DeviceStream, "capture", capture)
    return number
