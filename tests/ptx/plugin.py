"""A pytest plugin that runs CUDA tests on the compiled PTX: ``PYTHONPATH=tests pytest -p ptx.plugin tests/kernels/cuda``.

A test fails on any note that ``allowed`` does not list. ``--ptx-seed`` chooses another order, ``--ptx-capability`` the architecture.
"""

import os

os.environ["NUMBA_ENABLE_CUDASIM"] = "0"
os.environ["HOPTRAIN_TEST_GPU"] = "1"

from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda, types
from numba.cuda import dispatcher, typing
from numba.cuda.cudadrv import devices

from ptx import allowed, launch, memory
from ptx.launch import SESSION
from ptx.memory import STREAM, DeviceArray


class Event:
    """An event of the only stream. Its times are meaningless."""

    def record(self, stream):
        pass

    def wait(self, stream):
        pass

    def synchronize(self):
        STREAM.synchronize()

    def elapsed_time(self, later):
        return 1.0


class Device(SimpleNamespace):
    """The only device, which is always current."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def install():
    """Make numba-cuda's host side use this device."""
    attributes = {
        "MULTIPROCESSOR_COUNT": 1,
        "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
        "L2_CACHE_SIZE": 40 << 20,
        "MEMORY_CLOCK_RATE": 1,
        "GLOBAL_MEMORY_BUS_WIDTH": 8,
    }
    device = Device(compute_capability=SESSION.capability, name="PTX on the CPU", id=0, **attributes)
    free_memory = SimpleNamespace(free=8 << 30, total=16 << 30)
    context = SimpleNamespace(device=device, get_memory_info=lambda: free_memory, synchronize=STREAM.synchronize)
    replaced = {
        "device_array": memory.device_array, "to_device": memory.to_device, "pinned_array": memory.pinned_array,
        "mapped_array": memory.mapped_array, "stream": lambda: STREAM, "synchronize": STREAM.synchronize, "select_device": lambda _: context,
        "event": Event,
        "gpus": [device], "is_available": lambda: True, "current_context": lambda *_: context, "get_current_device": lambda: device,
        "is_cuda_array": lambda value: isinstance(value, DeviceArray),
        "as_cuda_array": lambda value, sync=True: value if isinstance(value, DeviceArray) else DeviceArray(np.asarray(value)),
    }  # fmt: skip
    for name, value in replaced.items():
        setattr(cuda, name, value)
    devices._runtime.get_or_create_context = lambda *_: context
    dispatcher.driver._to_core_stream = lambda stream: STREAM
    dispatcher.get_current_device = lambda: device
    dispatcher._Kernel.launch = launch.launch
    dispatcher._Kernel.bind = lambda self: None
    dispatcher.CUDADispatcher.enable_caching = lambda self: None  # these tests do not cache machine code for devices
    compile_kernel = dispatcher._Kernel.__init__

    def init(self, py_func, argtypes, *args, **options):
        """Skip compiling if the PTX is cached; otherwise compile with line numbers."""
        path = launch.text_path(py_func, argtypes)
        if path and path.exists():
            self.objectmode, self.entry_point, self.py_func, self.argtypes = False, None, py_func, argtypes
            self.launch_config_sensitive, self.extensions = False, []
            self.signature = typing.signature(types.void, *argtypes)
        else:
            compile_kernel(self, py_func, argtypes, *args, **{**options, "lineinfo": True})

    dispatcher._Kernel.__init__ = init
    from hoptrain.engine.gpu_memory.device_stream import DeviceStream
    from hoptrain.kernels.cuda import native
    from hoptrain.kernels.cuda.programs import kept

    DeviceStream.capture = lambda self, work: None  # the interpreter has no graph capture

    path_of = kept.ProgramFiles._path
    # The machine code of programs is not cached either.
    kept.ProgramFiles._path = lambda files, *kernel: None if files.cache_path == str(kept.FOLDER) else path_of(files, *kernel)
    native.reason_against = lambda: "the interpreter runs Numba's kernels"  # CuPy cannot launch on the interpreter


def pytest_addoption(parser):
    parser.addoption("--ptx-seed", type=int, default=0, help="chooses the order of blocks and threads")
    parser.addoption("--ptx-fresh", action="store_true", help="neither reads nor keeps compiled PTX")
    parser.addoption("--ptx-capability", default="8.0", help="compute capability of the device that is played")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    SESSION.seed = config.getoption("--ptx-seed")
    SESSION.keeps_texts = not config.getoption("--ptx-fresh")
    SESSION.capability = tuple(map(int, config.getoption("--ptx-capability").split(".")))
    install()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Run the test and the rest of its stream, and fail on new notes; a failed test reports its notes too."""
    known = set(SESSION.notes)

    def refused():
        return [str(note) for key, note in SESSION.notes.items() if key not in known and not allowed.is_allowed(note)]

    try:
        result = yield
        STREAM.synchronize()
    except Exception as error:
        for line in refused():
            error.add_note(line)
        raise
    assert not refused(), "\n".join(refused())
    return result


def pytest_runtest_teardown(item):
    STREAM.queue.clear()


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"PTX: {SESSION.launches:,} launches, {SESSION.instructions:,} instructions")
