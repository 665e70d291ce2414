"""Dropout in CUDA C++ is bit-identical to the CPU's kernels, forward and backward, for each dtype and size."""

import ctypes
import mmap
import re

import numpy as np
import pytest
from cases.bfloat16 import narrowed, widened
from cases.dropout import DROPPED, SEED, SIZES, elements, expected_drop, expected_gradient
from cpp.machines import ARCHITECTURES, Host, Interpreter, host_library, on_each_machine
from cpp.nvrtc import compile_source, text_of
from cuda_case import needs_cuda

from hoptrain.kernels.cuda.native.dropout import NAMES
from hoptrain.kernels.shared.dropout import num_calls

pytestmark = needs_cuda
THREADS = 96
"""Number of threads of a launch: fewer than make a block of elements, and no power of two."""
MAP_NORESERVE = 0x4000  # which Python names from 3.13 on


def stored(values, dtype):
    return narrowed(values) if dtype == "bfloat16" else values


def computed(stored, dtype):
    return widened(stored) if dtype == "bfloat16" else stored


def run(machine, name, arrays, dtype, *options):
    """Run a kernel on arrays and another one for its results, and return these."""
    out = machine.array(np.zeros_like(arrays[0]), arrays[0].dtype)
    given = [machine.array(array, array.dtype) for array in arrays]
    machine.run("dropout", f"{name}_{NAMES[dtype]}", (2,), (THREADS,), [*given, out, *options, len(out)])
    return out


def check(machine, dtype, size, *, clip):
    x = stored(elements(size, np.float64 if dtype == "float64" else np.float32), dtype)
    out = run(machine, "drop", [x], dtype, SEED, DROPPED, int(clip))
    assert out.tobytes() == stored(expected_drop(computed(x, dtype), clip=clip), dtype).tobytes()
    if clip:
        gradient = stored(elements(size, computed(x, dtype).dtype, seed=1)[::-1].copy(), dtype)
        by_x = run(machine, "pass_gradient", [gradient, out], dtype, DROPPED)
        expected = stored(expected_gradient(computed(gradient, dtype), computed(out, dtype)), dtype)
        assert by_x.tobytes() == expected.tobytes()


@pytest.mark.parametrize("machine", [Host(), Interpreter(ARCHITECTURES[0])], ids=["g++", ARCHITECTURES[0]])
def test_relu_and_dropout(machine):
    check(machine, "float32", 1100, clip=True)


@pytest.mark.long
@on_each_machine
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("clip", [False, True], ids=["dropout", "with relu"])
def test_each_dtype_and_size(machine, dtype, size, clip):
    check(machine, dtype, size, clip=clip)


@pytest.mark.parametrize("first", [2**31, 3 * 2**31], ids=["2**31", "3 * 2**31"])
def test_elements_whose_index_exceeds_32_bits(first):
    """Run one block of threads on a block of elements in memory that is mapped, but not used except for this block."""
    library, size = host_library("dropout"), first + 1024 - 5
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    maps = [mmap.mmap(-1, 2 * size, flags) for _ in range(2)]
    x, out = (np.frombuffer(memory, np.uint16) for memory in maps)
    x[first:] = narrowed(np.arange(1, 1024 - 4, dtype=np.float32))
    index = ctypes.c_uint * 3
    calls = num_calls(size)
    index.in_dll(library, "gridDim")[:] = calls // 128, 1, 1
    index.in_dll(library, "blockDim")[:] = 128, 1, 1
    index.in_dll(library, "blockIdx")[:] = first // 1024, 0, 0
    for thread in range(128):
        index.in_dll(library, "threadIdx")[:] = thread, 0, 0
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, out)]
        library.drop_bfloat16(*pointers, *map(ctypes.c_longlong, (SEED, 1, 0, size)))
    assert np.count_nonzero(out[first:] == x[first:]) > 1000  # one in 65,536 is dropped; the scale rounds to 1
    assert out[first - 1] == 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kernel", ["drop_float", "drop_bfloat16", "pass_gradient_float"])
def test_eight_loads_are_under_way_before_the_first_store(kernel, arch):
    text = text_of(compile_source("dropout", arch)[0], kernel)
    order = re.findall(r"\b(ld|st)\.global", text)
    assert order[:8] == ["ld"] * 8
    assert "fma" not in text
