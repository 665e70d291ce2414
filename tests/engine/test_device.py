"""Which CUDA is used, and on which device; pages that are locked for it."""

import pickle
import warnings
from types import SimpleNamespace

import numpy as np
from cuda_case import needs_cuda
from numba import cuda

from hoptrain.engine import device
from hoptrain.engine.device import cuda_status, page_lock
from hoptrain.samplers.scratch.workspace import Workspace


@needs_cuda
def test_numba_s_own_cuda_target_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(cuda, "implementation", "Built-in")
    assert "Numba's own CUDA target is in use in place of numba-cuda" in cuda_status()


def test_asking_for_a_device_makes_no_context(monkeypatch):
    """Each rank asks about its own device, before Lightning has set one."""
    gpus = [SimpleNamespace(compute_capability=(9, 0), name="new"), SimpleNamespace(compute_capability=(6, 1), name="an old one")]
    monkeypatch.setattr(device, "is_simulated", lambda: False)
    monkeypatch.setattr(cuda, "gpus", gpus)
    monkeypatch.setattr(cuda, "get_current_device", None)
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert cuda_status() is None
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert cuda_status() == "an old one is too old: kernels need compute capability 7.0"


def test_pages_that_cannot_be_locked_are_used_unlocked(monkeypatch):
    """With one warning, for they all have the same words and come from the same line."""

    def refuse(code):
        raise RuntimeError("CUDA error: operation not permitted")

    runtime = SimpleNamespace(cudaHostRegister=lambda *arguments: 1, cudaHostUnregister=None)
    monkeypatch.setattr(
        device, "torch_on_device", lambda: SimpleNamespace(cuda=SimpleNamespace(cudart=lambda: runtime, check_error=refuse))
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(3):
            page_lock(np.zeros(10, np.uint8))
    assert [str(warning.message) for warning in said] == [
        "the queue's memory cannot be page-locked, so copies to the GPU wait for the processor: raise the limit of locked memory (ulimit -l), or "
        "leave page_lock out (CUDA error: operation not permitted)"
    ]


def test_a_worker_is_told_the_gpu_of_its_trainer(monkeypatch):
    monkeypatch.setattr("hoptrain.samplers.scratch.workspace.is_simulated", lambda: False)
    monkeypatch.setattr("hoptrain.samplers.scratch.workspace.default_gpu", lambda: 3)
    assert pickle.loads(pickle.dumps(Workspace(device="cuda"))).gpu == 3
    assert pickle.loads(pickle.dumps(Workspace(device="cuda", gpu=1))).gpu == 1
    assert pickle.loads(pickle.dumps(Workspace())).gpu is None
