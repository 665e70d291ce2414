"""Runs kernels launched on the emulated device: the PTX interpreter executes what numba-cuda compiled, on the device's memory."""

import ctypes
import gc
import itertools

import numpy as np
from numba import types
from numba.cuda import dispatcher
from ptx import launch, memory, watch
from ptx.launch import SESSION

from host_layer.record import LIBRARY

Words = ctypes.POINTER(ctypes.c_uint32)
RUNNER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, Words, Words, ctypes.c_int, Words, Words, ctypes.c_uint32)
FAILED: list[BaseException] = []
"""Errors of kernels since the test began, since the device's callback cannot raise."""
_kernels = {}
_runner = None


def install():
    """Let launches run kernels, and record the Python function that each kernel was compiled from."""
    global _runner
    SESSION.capability = (9, 0)
    _use_memory()
    _keep_functions()
    _runner = RUNNER(_run)
    LIBRARY.host_layer_run_kernels_by(_runner)


def _use_memory():
    """Let the interpreter use the memory of the emulated device."""
    size = ctypes.c_size_t()
    address = LIBRARY.host_layer_memory(ctypes.byref(size))
    number = memory._BYTES = size.value
    shared = memory.MEMORY
    shared.bytes, shared.address = np.ctypeslib.as_array((ctypes.c_uint8 * number).from_address(address)), address
    shared.written = np.ones(number, np.bool_)  # only the driver knows what was written to device memory
    shared.shadow = np.zeros((number, watch.SHADOW_COLUMNS), np.int32)
    shared.touched = np.zeros((number // watch.SECTOR, 2), np.int64)


def _keep_functions():
    launch_kernel, compile_kernel, make = dispatcher._Kernel.launch, dispatcher.CUDADispatcher.compile, dispatcher._Kernel.__init__

    def note_and_launch(self, *args, **named):
        _kernels[self.entry_name.encode()] = self
        launch.program_of(self)  # compiled here, since memory that Numba frees while compiling may wait for the device
        return launch_kernel(self, *args, **named)

    def compile_with_function(self, signature):
        kernel = compile_kernel(self, signature)
        kernel.py_func = self.py_func  # a kernel loaded from a cache has no function
        return kernel

    def make_with_lines(self, py_func, argtypes, *args, **options):
        make(self, py_func, argtypes, *args, **{**options, "lineinfo": True})
        self.py_func = py_func

    dispatcher._Kernel.launch = note_and_launch
    dispatcher.CUDADispatcher.compile = compile_with_function
    dispatcher._Kernel.__init__ = make_with_lines


def _run(name, packed, offsets, sizes, number, grid, block, shared_bytes):
    """Run one launch. Garbage collection is off, since freeing memory would call the driver during the launch call."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        kernel = _kernels[name]
        raw = iter([int.from_bytes(ctypes.string_at(packed + offsets[i], sizes[i]), "little") for i in range(number)])
        values = list(itertools.chain.from_iterable(_arguments(kind, raw) for kind in kernel.argument_types))
        program = launch.program_of(kernel)
        launch.run_program(kernel.py_func.__name__, program, values, tuple(grid[:3]), tuple(block[:3]), shared_bytes)
    except BaseException as error:
        FAILED.append(error)
    finally:
        if was_enabled:
            gc.enable()


def _arguments(kind, raw):
    """Convert the next argument of a launch to the interpreter's form: an array for a pointer, otherwise integers."""
    if isinstance(kind, types.Array):
        words = [next(raw) for _ in range(5 + 2 * kind.ndim)]  # two unused words, size, item size, address, then shape and strides
        begin, size = words[4] - memory.MEMORY.address, words[2] * words[3]
        words[4] = memory.MEMORY.bytes[begin : begin + size] if size else memory.MEMORY.bytes[:0]
        return words
    if isinstance(kind, types.BaseTuple):
        return list(itertools.chain.from_iterable(_arguments(each, raw) for each in kind))
    return [next(raw)]
