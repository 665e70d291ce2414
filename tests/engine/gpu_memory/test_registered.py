"""Memory maps are registered with the CUDA driver, read-only if the driver supports it. A stub replaces the driver."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_case import needs_cuda
from numba import cuda

from hoptrain.engine.gpu_memory import registered as module
from hoptrain.engine.gpu_memory.registered import MAPPED, PORTABLE, READ_ONLY, registered

pytestmark = needs_cuda


@pytest.fixture
def driver(monkeypatch):
    """Return a stub of the driver that records registrations."""
    calls = []

    def register(*arguments):
        calls.append(arguments)
        if arguments[2] in stand_in.refuses:
            raise RuntimeError("[CUresult.CUDA_ERROR_OUT_OF_MEMORY] cuMemHostRegister")

    stand_in = SimpleNamespace(cuMemHostRegister=register, cuMemHostUnregister=calls.append, calls=calls, refuses=())
    stand_in.READ_ONLY_HOST_REGISTER_SUPPORTED = 1
    device = SimpleNamespace(device=stand_in)
    monkeypatch.setattr("numba.cuda.cudadrv.driver.driver", stand_in)
    monkeypatch.setattr(module, "is_simulated", lambda: False)
    monkeypatch.setattr(cuda, "current_context", lambda: device)
    monkeypatch.setattr(cuda, "as_cuda_array", lambda lent: lent, raising=False)
    return stand_in


def pages(asked):
    def mapped(writable):
        asked.append(writable)
        return np.arange(6, dtype=np.uint32).reshape(2, 3)

    return mapped


@pytest.mark.parametrize(("supported", "flags"), [(1, PORTABLE | MAPPED | READ_ONLY), (0, PORTABLE | MAPPED)])
def test_flags_go_with_the_mapping(driver, supported, flags):
    driver.READ_ONLY_HOST_REGISTER_SUPPORTED = supported
    asked = []
    found = registered(pages(asked))
    interface = found.__cuda_array_interface__
    address = interface["data"][0]
    assert asked == [not supported]
    assert driver.calls == [(address, 24, flags)]
    assert (interface["shape"], interface["typestr"]) == ((2, 3), "<u4")
    del found
    gc.collect()
    assert driver.calls[1:] == [address]


def test_a_driver_that_refuses_pages_for_reading_alone_gets_others(driver):
    """If the driver rejects read-only pages with CUDA_ERROR_NOT_SUPPORTED, although it reports support, a writable map is registered."""
    driver.refuses = (PORTABLE | MAPPED | READ_ONLY,)
    asked = []
    found = registered(pages(asked))
    assert asked == [False, True]
    assert found.__cuda_array_interface__["shape"] == (2, 3)
    assert [flags for _, _, flags in driver.calls] == [PORTABLE | MAPPED | READ_ONLY, PORTABLE | MAPPED]


def test_a_driver_that_refuses(driver, caplog):
    driver.refuses = (PORTABLE | MAPPED | READ_ONLY, PORTABLE | MAPPED)
    assert registered(pages([])) is None
    assert (
        "shared host memory cannot be registered ([CUresult.CUDA_ERROR_OUT_OF_MEMORY] cuMemHostRegister): this rank makes its own copy"
        in caplog.text
    )
