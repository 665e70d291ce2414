"""Stubs of CuPy, with kernels built by g++, and of torch on a device, which record the arguments of native kernels."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_case import put_stand_in
from numba import cuda

from cpp.machines import Host
from cpp.nvrtc import FOLDER
from hoptrain.engine.gpu_memory import device_store
from hoptrain.kernels.cuda import native
from hoptrain.kernels.cuda.native.gather import cupy_stream

STREAM = 4711
ARRAY = type(cuda.to_device(np.empty(0)))


class Stream(int):
    def synchronize(self):
        """Do nothing: the simulator queues nothing."""


class CuPy:
    def __init__(self):
        self.streams, self.launches, self.modules = [], [], []
        self.cuda = SimpleNamespace(Stream=self)

    def from_external(self, stream):
        version, self.address = stream.__cuda_stream__()
        assert version == 0
        return self

    def __enter__(self):
        self.streams.append(self.address)

    def __exit__(self, *_):
        self.streams.pop()

    def RawModule(self, code, options):
        (name,) = (path.stem for path in FOLDER.glob("*.cu") if path.read_text() == code)
        assert options == native.OPTIONS
        self.modules.append(name)
        return SimpleNamespace(get_function=lambda kernel: lambda *launch: self.run(name, kernel, *launch), compile=self.compile)

    def compile(self):
        """Do nothing: g++ has compiled the kernels already."""

    def run(self, name, kernel, grid, block, arguments):
        assert self.streams == [STREAM]
        self.launches.append(kernel)
        Host().run(name, kernel, grid, block, arguments)


@pytest.fixture(name="cupy")
def _cupy(monkeypatch):
    put_stand_in(monkeypatch)
    facts = property(lambda a: {"data": (a._ary.ctypes.data, False), "strides": None if a._ary.flags.c_contiguous else a._ary.strides})
    monkeypatch.setattr(ARRAY, "__cuda_array_interface__", facts, raising=False)
    monkeypatch.setattr(cuda, "external_stream", lambda pointer: Stream(STREAM), raising=False)
    monkeypatch.setattr(native, "reason_against", lambda: None)
    module = CuPy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    caches = native.kernel_of, native._module_of, device_store._loads, cupy_stream
    for cached in caches:
        cached.cache_clear()
    yield module
    for cached in caches:
        cached.cache_clear()
