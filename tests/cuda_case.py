"""What the tests of CUDA share. The same tests run in Numba's simulator, where every CUDA thread is a Python thread, on a device, and on the
interpreter of compiled code in ``ptx``."""

import os
import sys
from dataclasses import replace

import numpy as np
import pytest
from numba import cuda

from hoptrain.engine.device import cuda_status, is_simulated
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.thresholds import THRESHOLDS, Thresholds
from hoptrain.samplers.scratch.workspace import Workspace

needs_cuda = pytest.mark.skipif(cuda_status() is not None, reason=str(cuda_status()))

SMALL = Thresholds(
    block=4, max_blocks=2, lanes=4, thread_work=1, warp_work=3, block_work=6,
    warp_stage_bytes=32, block_stage_bytes=64, shares=2,
)  # fmt: skip
"""Tiny blocks and tiles, so that small inputs reach every border, and the simulator starts few threads."""

_BLOCK = os.environ.get("HOPTRAIN_TEST_BLOCK")
TESTED = replace(THRESHOLDS, block=int(_BLOCK), max_blocks=8) if _BLOCK else SMALL
"""What the tests run with: ``SMALL``, or what users get but for few blocks of so many threads, on a device or on the interpreter."""


@pytest.fixture(autouse=True)
def _quick_simulator():
    """The simulator polls its threads; with Python's usual 5 ms for each to run, it would mostly wait."""
    before = sys.getswitchinterval()
    if is_simulated():
        sys.setswitchinterval(2e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def tested_blocks(monkeypatch):
    """Let every new workspace have the thresholds of the tests: a loader makes its own."""
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
    """A NumPy array from whatever a driver or a kernel gave: also a torch tensor on the device."""
    cuda.synchronize()
    if isinstance(array, np.ndarray):
        return array
    return array.cpu().numpy() if hasattr(array, "cpu") else array.copy_to_host()
