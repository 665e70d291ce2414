"""Two ways to run native kernels without a device: built by g++, thread by thread, or compiled by NVRTC and interpreted."""

import ctypes
import functools
import itertools
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from ptx import allowed
from ptx.decode import decode
from ptx.launch import SESSION, address, run_program
from ptx.memory import MEMORY

from cpp.nvrtc import FOLDER, compile_source, text_of

HERE = Path(__file__).parent
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a")


class Host:
    """Kernels built by g++; the threads of a launch run one after another, in random order."""

    def __init__(self, seed=0):
        self._random = np.random.default_rng(seed)

    def array(self, values, dtype):
        """Return an array for kernels that starts at a cache line."""
        values = np.ascontiguousarray(values, dtype)
        memory = np.empty(values.nbytes + 128, np.uint8)
        begin = -memory.ctypes.data % 128
        made = memory[begin : begin + values.nbytes].view(dtype).reshape(values.shape)
        made[...] = values
        return made

    def pointers(self, reached, before):
        """Return the addresses of arrays that kernels reach through a table."""
        return np.array([array.ctypes.data for array in reached], np.uint64)

    def run(self, name, kernel, grid, block, arguments, reached=()):
        """Launch a kernel of NAME.cu, and return (threadIdx.x, address) of each read of a feature table, with shape (reads, 2)."""
        library = host_library(name)
        num_reads = ctypes.c_uint.in_dll(library, "num_reads")
        num_reads.value = 0
        function = getattr(library, kernel)
        values = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.c_longlong(a) for a in arguments]
        grid, block = ((*size, 1, 1)[:3] for size in (grid, block))
        for index, size in (("gridDim", grid), ("blockDim", block)):
            _Index.in_dll(library, index)[:] = size
        places = list(itertools.product(*map(range, (*grid, *block))))
        for at in self._random.permutation(len(places)):
            for index, place in (("blockIdx", places[at][:3]), ("threadIdx", places[at][3:])):
                _Index.in_dll(library, index)[:] = place
            function(*values)
        return np.array((ctypes.c_ulonglong * (2 * num_reads.value)).in_dll(library, "reads"), np.uint64).reshape(-1, 2)


_Index = ctypes.c_uint * 3


@functools.cache
def host_library(name):
    """Build NAME.cu with g++."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    with tempfile.TemporaryDirectory(prefix="hoptrain-test-") as folder:
        path = Path(folder) / f"{name}.so"
        options = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-include", HERE / "shim.h", "-x", "c++"]
        subprocess.run([compiler, *options, FOLDER / f"{name}.cu", "-o", path], check=True)
        return ctypes.CDLL(str(path))


class Interpreter:
    """Kernels compiled by NVRTC for an architecture and run by the PTX interpreter, which fails on faults and unexpected races.

    If ``source`` is given, it is compiled instead of NAME.cu, for all names.
    """

    def __init__(self, arch, source=None):
        self.arch, self.source = arch, source

    def array(self, values, dtype):
        values = np.ascontiguousarray(values, dtype)
        made = MEMORY.allocate(values.shape, values.dtype, written=True)
        made[...] = values
        return made

    def pointers(self, reached, before):
        """Return the addresses of arrays that kernels reach through a table; the launch passes ``before`` other arrays as arguments."""
        return np.array([address(before + 1 + number) for number in range(len(reached))], np.uint64)

    def run(self, name, kernel, grid, block, arguments, reached=()):
        known = set(SESSION.notes)
        run_program(kernel, program_of(name, kernel, self.arch, self.source), arguments, grid, block, reached=reached)
        refused = [str(note) for key, note in SESSION.notes.items() if key not in known and not allowed.is_allowed(note)]
        assert not refused, "\n".join(refused)


@functools.cache
def program_of(name, kernel, arch, source):
    return decode(text_of(compile_source(name, arch, source)[0], kernel))


_NEWER = [Interpreter(arch) for arch in ARCHITECTURES[1:]]
on_each_machine = pytest.mark.parametrize("machine", [Host(), Interpreter(ARCHITECTURES[0]), *_NEWER], ids=["g++", *ARCHITECTURES])
