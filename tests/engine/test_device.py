"""CUDA detection, the choice of the device, and pinned memory."""

import gc
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from cases.mistakes import refused
from cuda_case import needs_cuda
from numba import cuda

from hoptrain.engine import device
from hoptrain.engine.device import cuda_status, pin_pages
from hoptrain.samplers import NeighborSampler, SampleLoader
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.bulk import Bulk


@needs_cuda
def test_numba_s_own_cuda_target_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(cuda, "implementation", "Built-in")
    assert "Numba's built-in CUDA target is used instead of numba-cuda" in cuda_status()


def test_asking_for_a_device_makes_no_context(monkeypatch):
    """``cuda_status`` examines the GPU of LOCAL_RANK without a CUDA context, since Lightning has not set the rank's device yet."""
    gpus = [SimpleNamespace(compute_capability=(9, 0), name="new"), SimpleNamespace(compute_capability=(6, 1), name="an old one")]
    monkeypatch.setattr(device, "is_simulated", lambda: False)
    monkeypatch.setattr(cuda, "gpus", gpus)
    monkeypatch.setattr(cuda, "get_current_device", None)
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert cuda_status() is None
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert cuda_status() == "an old one is too old: kernels need compute capability 7.0"


def test_memory_that_cannot_be_pinned_is_used_unpinned(monkeypatch):
    """If memory cannot be pinned, it is used unpinned, and one warning is logged for all arrays."""

    monkeypatch.setattr(device, "torch_on_device", lambda: SimpleNamespace(cuda=SimpleNamespace(mem_get_info=lambda: None)))
    monkeypatch.setattr(
        device.ctypes, "CDLL", lambda _: SimpleNamespace(cuMemHostRegister_v2=lambda *arguments: 1, cuMemHostUnregister=None)
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(3):
            pin_pages(np.zeros(10, np.uint8))
    assert [str(warning.message) for warning in said] == [
        "the queue's memory cannot be pinned, so copies to the GPU are synchronous: raise the limit of locked memory "
        "(ulimit -l) (error 1 of the driver)"
    ]


def test_memory_is_pinned_as_long_as_its_buffer_lives(monkeypatch):
    calls = []
    driver = SimpleNamespace(
        cuMemHostRegister_v2=lambda address, size, flags: calls.append(("lock", address.value, size.value, flags)),
        cuMemHostUnregister=lambda address: calls.append(("unlock", address.value)),
    )
    monkeypatch.setattr(
        device, "torch_on_device", lambda: SimpleNamespace(cuda=SimpleNamespace(mem_get_info=lambda: calls.append("context")))
    )
    monkeypatch.setattr(device.ctypes, "CDLL", lambda _: driver)
    buffer = np.zeros(10, np.uint8)
    address = buffer.ctypes.data
    pin_pages(buffer)
    assert calls == ["context", ("lock", address, 10, 1)]
    del buffer
    gc.collect()
    assert calls[2:] == [("unlock", address)]


def test_a_worker_gets_the_gpu_of_its_trainer(monkeypatch):
    monkeypatch.setattr("hoptrain.samplers.buffers.workspace.is_simulated", lambda: False)
    monkeypatch.setattr("hoptrain.samplers.buffers.workspace.default_gpu", lambda: 3)
    assert pickle.loads(pickle.dumps(Workspace(device="cuda"))).gpu == 3
    assert pickle.loads(pickle.dumps(Workspace(device="cuda", gpu=1))).gpu == 1
    assert pickle.loads(pickle.dumps(Workspace())).gpu is None


@pytest.fixture
def four_gpus(monkeypatch):
    """Replace Numba's driver by a stub with four GPUs, and return the list of accesses."""
    touched = []

    class Gpu(SimpleNamespace):
        def __enter__(self):
            touched.append(("entered", self.number))

        def __exit__(self, *_):
            touched.append(("left", self.number))

    class Gpus(list):
        def __getitem__(self, number):
            touched.append(("asked", number))
            return Gpu(compute_capability=(9, 0), name="new", number=number)

    def without_a_number(*_):
        raise AssertionError("a context on GPU 0")

    monkeypatch.setattr(device, "is_simulated", lambda: False)
    monkeypatch.setattr("hoptrain.engine.gpu_memory.device_stream.is_simulated", lambda: False)
    monkeypatch.setattr("hoptrain.samplers.buffers.workspace.is_simulated", lambda: False)
    monkeypatch.setattr(cuda, "gpus", Gpus(range(4)))
    monkeypatch.setattr(cuda, "current_context", without_a_number)
    monkeypatch.setattr(cuda, "get_current_device", without_a_number)
    return touched


def test_a_worker_touches_no_other_gpu_than_its_own(four_gpus):
    """A sampler process makes GPU 3 current if its workspace names GPU 3, although it has no torch device and LOCAL_RANK 0."""
    pickle.loads(pickle.dumps(Workspace(device="cuda", gpu=3))).stream.wait_for_torch()
    assert set(four_gpus) == {("asked", 3), ("entered", 3), ("left", 3)}


def test_a_stream_s_gpu_is_the_current_one_while_something_is_done_there(four_gpus, monkeypatch):
    """A stream makes its own GPU current while it queues work, even in a new thread, and restores the previous GPU afterwards."""
    workspace = Workspace(device="cuda", gpu=2)
    stream, said = workspace.stream, []
    started = SimpleNamespace(start=lambda *_, **__: said.append(four_gpus[-1]) or (lambda: said.append(four_gpus[-1]) or Bulk(0, None)))
    monkeypatch.setattr(NeighborSampler, "driver", lambda *_: started)
    finish = NeighborSampler([2]).start_bulk(None, [], seed=0, epoch=0, first_batch=0, workspace=workspace)
    assert four_gpus[-1] == ("left", 2)
    finish()
    assert four_gpus[-1] == ("left", 2)
    assert said == [("entered", 2)] * 2
    with pytest.raises(KeyError), stream.entered():
        raise KeyError
    assert four_gpus[-1] == ("left", 2)


def test_a_gpu_that_there_is_not(four_gpus):
    assert cuda_status(4) == "there is no GPU 4: GPUs are numbered 0 to 3"
    assert four_gpus == []


def test_loaders_take_torch_s_names(four_gpus, dataset):
    options = {"batch_size": 8, "num_workers": 1}
    loader = SampleLoader(dataset, NeighborSampler([2]), device="cuda:3", **options)
    assert (loader.task.workspace.device, loader.task.workspace.gpu) == ("cuda", 3)
    assert set(four_gpus) == {("asked", 3)}  # reading a property makes no context
    with refused("GPU 7", "device cuda no GPUs", '0 to 3 device="cpu"'):
        SampleLoader(dataset, NeighborSampler([2]), device="cuda:7", **options)
    with refused("'cuda:x'", "device sampler runs", "cpu cuda cuda:1 choose"):
        SampleLoader(dataset, NeighborSampler([2]), device="cuda:x", **options)
