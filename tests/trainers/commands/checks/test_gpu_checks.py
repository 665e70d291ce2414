"""Each check of ``hoptrain doctor --gpu`` detects its fault. Stubs replace the device and torch on it."""

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cases.mistakes import refused
from cuda_case import simulated
from numba import cuda

from hoptrain.trainers.commands.checks import gpu_engine, gpu_numba, gpu_torch
from hoptrain.trainers.commands.checks.finding import CheckFailed

pytestmark = simulated


@pytest.fixture
def on_device(monkeypatch):
    """Treat the simulator as a device."""
    monkeypatch.setattr(gpu_numba, "is_simulated", lambda: False)


def copy_nothing(source, target, stream=0):
    """Replace a kernel by one that does nothing."""


# Without torch.


def test_numba_s_own_target_is_found(on_device, monkeypatch):
    monkeypatch.setattr(cuda, "implementation", "Built-in", raising=False)
    with refused("Numba's own CUDA target", "NVIDIA's", error=CheckFailed):
        gpu_numba.versions()
    monkeypatch.setattr(cuda, "implementation", "NVIDIA", raising=False)
    assert gpu_numba.versions().startswith("numba-cuda 0.")


@pytest.mark.parametrize(("driver", "fails"), [((13, 0), False), ((12, 8), True)])
def test_a_driver_older_than_the_compiler_is_found(on_device, monkeypatch, driver, fails):
    said = SimpleNamespace(driver=SimpleNamespace(get_version=lambda: driver), runtime=SimpleNamespace(get_version=lambda: (13, 1)))
    for module in ("driver", "runtime"):
        monkeypatch.setitem(sys.modules, f"numba.cuda.cudadrv.{module}", said)
    monkeypatch.setattr(cuda, "gpus", [SimpleNamespace(name="a GPU", compute_capability=(9, 0))])
    with pytest.raises(CheckFailed) if fails else nullcontext() as wrong:
        found = gpu_numba.device()
    version = ".".join(map(str, driver))
    assert str(wrong.value if fails else found) == f"a GPU, compute capability 9.0, driver for CUDA {version}, compiler for CUDA 13.1"


@pytest.mark.parametrize(
    ("check", "what"), [(gpu_numba.kernel, "a copy by a kernel"), (gpu_numba.host_memory, "mapped memory read by a kernel")]
)
def test_a_kernel_that_does_nothing_is_found(monkeypatch, check, what):
    monkeypatch.setattr(gpu_numba, "copy", copy_nothing)
    with refused(what, "wrong values 1000", error=CheckFailed):
        check()


@pytest.mark.parametrize("hits", [0, 1])
def test_machine_code_that_is_not_read_is_found(on_device, monkeypatch, hits):
    class Kernel:
        stats = SimpleNamespace(cache_hits={"a signature": hits}, cache_path="/a/folder")
        launch = gpu_numba.copy_rows

        def __getitem__(self, configuration):
            return self.launch[configuration]

    monkeypatch.setattr(gpu_numba, "copy_rows", Kernel())
    if hits:
        assert "machine code of another process" in gpu_numba.kernel_again()
    else:
        with refused("/a/folder", "compiled again nothing read", error=CheckFailed):
            gpu_numba.kernel_again()


@pytest.mark.parametrize("shift", [0, 1])
def test_memory_that_is_not_the_other_process_s_is_found(on_device, monkeypatch, shift):
    """The check fails if the second process sees memory from another address, here shifted by ``shift`` rows."""
    lent = cuda.device_array((10, 100), np.int64)
    monkeypatch.setattr(gpu_numba, "ProcessPoolExecutor", lambda number, mp_context: ThreadPoolExecutor(number))
    monkeypatch.setattr(gpu_numba, "lend", lambda shape, dtype: (lent, "handle"))
    monkeypatch.setattr(gpu_numba, "borrow", lambda handle, shape, dtype: lent[shift:] if handle == "handle" else None)
    with refused("a row", "second process wrong values", error=CheckFailed) if shift else nullcontext():
        gpu_numba.ipc()


# With torch.


ARRAY = type(cuda.to_device(np.empty(0)))


class Lent:
    """A device array over a tensor's memory: it copies in the simulator, and has the address that torch and Numba exchange."""

    def __init__(self, tensor):
        self.inside = ARRAY(tensor.numpy())
        self.__cuda_array_interface__ = {"data": (tensor.data_ptr(), False)}

    def copy_to_host(self):
        return self.inside.copy_to_host()


@pytest.fixture
def stand_in(on_device, monkeypatch):
    """Replace torch on a GPU by a stub that treats the simulator as its device, and return the stub."""
    real = gpu_numba.copy

    def copy(source, target, stream=0):
        real(*(getattr(array, "inside", array) for array in (source, target)))

    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    card = SimpleNamespace(
        is_available=lambda: True, synchronize=lambda: None, Stream=lambda: stream, stream=lambda stream: nullcontext(),
        current_stream=lambda: stream,
    )  # fmt: skip
    on_card = SimpleNamespace(cuda=card, zeros_like=torch.zeros_like)
    monkeypatch.setattr(gpu_torch, "torch", on_card)
    monkeypatch.setattr(gpu_torch, "copy", copy)
    monkeypatch.setattr(gpu_torch, "busy", lambda: None)
    monkeypatch.setattr(gpu_torch, "numbers", lambda: torch.from_numpy(gpu_numba.NUMBERS.copy()))
    monkeypatch.setattr(cuda, "as_cuda_array", Lent, raising=False)
    monkeypatch.setattr(cuda, "external_stream", lambda pointer: cuda.stream(), raising=False)
    return on_card


SHARED = [gpu_torch.stream, gpu_torch.torch_to_numba]


@pytest.mark.parametrize("check", SHARED)
def test_what_works_is_fine(stand_in, check):
    assert check()


@pytest.mark.parametrize(("check", "what"), [(gpu_torch.stream, "torch, Numba and torch again"), (gpu_torch.torch_to_numba, "a tensor")])
def test_a_launch_that_is_lost_is_found(stand_in, monkeypatch, check, what):
    monkeypatch.setattr(gpu_torch, "copy", copy_nothing)
    with refused(what, "wrong values 999 1000", error=CheckFailed):
        check()


def test_a_copy_in_the_place_of_shared_memory_is_found(stand_in, monkeypatch):
    monkeypatch.setattr(cuda, "as_cuda_array", lambda tensor: Lent(tensor.clone()))
    with refused("0x", "array tensor copied", error=CheckFailed):
        gpu_torch.torch_to_numba()


@pytest.mark.parametrize("copied", [False, True])
def test_a_tensor_that_is_a_copy_is_found(stand_in, monkeypatch, copied):
    monkeypatch.setattr(cuda, "to_device", lambda array: Lent(torch.from_numpy(array.copy())))
    stand_in.as_tensor = lambda array, device: torch.tensor(array.inside._ary) if copied else torch.from_numpy(array.inside._ary)
    with refused("0x", "array tensor copied", error=CheckFailed) if copied else nullcontext():
        gpu_torch.numba_to_torch()


def test_torch_without_a_gpu_is_found(on_device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    with refused(torch.__version__, "CPU only no GPU Numba", error=CheckFailed):
        gpu_torch.same_gpus()


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_gpus_in_another_order_are_found(on_device, monkeypatch, order):
    gpus = [SimpleNamespace(uuid=uuid) for uuid in "ab"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", gpus.__getitem__)
    monkeypatch.setattr(cuda, "gpus", [SimpleNamespace(uuid=f"GPU-{uuid}") for uuid in order])
    with refused("GPU-a, GPU-b, Numba GPU-b, GPU-a", "torch sees GPUs", error=CheckFailed) if order == "ba" else nullcontext():
        assert gpu_torch.same_gpus().endswith("sees the same GPUs as Numba: 2")


@pytest.mark.parametrize(
    ("number", "found"),
    [(1, "only one GPU"), (2, "2 GPUs, each can read the memory of all others"), (3, "3 GPUs, no peer-to-peer access: 0-2, 2-0")],
)
def test_peers(on_device, monkeypatch, number, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda a, b: {a, b} != {0, 2})
    assert gpu_torch.peers() == found


# hoptrain's own.


class Reused:
    """A stub of a sampler's stream that reuses its blocks of memory, so that with one block the next rows overwrite the previous ones."""

    numba = 0

    def __init__(self, blocks):
        self.blocks = [torch.zeros(1, gpu_engine.WIDTH, dtype=torch.int64) for _ in range(blocks)]
        self.sums = []

    def tensor(self, shape, dtype):
        self.blocks.append(self.blocks.pop(0))
        block = self.blocks[-1]
        return SimpleNamespace(block=block, sum=lambda: block)

    def lend(self, rows):
        return rows.block

    def hand_to_torch(self, rows):
        pass


@pytest.mark.parametrize(("blocks", "fails"), [(4, False), (1, True)])
def test_rows_that_are_overwritten_are_found(on_device, monkeypatch, blocks, fails):
    """The check fails if rows are overwritten before they are summed, which happens after all were written, as in a slow training."""
    monkeypatch.setattr(gpu_engine, "STEPS", 4)
    monkeypatch.setattr(gpu_engine, "WIDTH", 8)
    monkeypatch.setattr(gpu_engine, "needs_torch", lambda: None)
    monkeypatch.setattr(gpu_engine, "busy", lambda: None)
    monkeypatch.setattr(gpu_engine, "DeviceStream", lambda: Reused(blocks))
    monkeypatch.setattr(gpu_engine, "fill_rows", {((64, 1), 256, 0, 0): lambda block, value: block.fill_(value)})
    monkeypatch.setattr(gpu_engine, "torch", SimpleNamespace(stack=lambda parts: torch.stack([part.sum() for part in parts])))
    with refused("sums of rows", "dropped wrong values", error=CheckFailed) if fails else nullcontext():
        gpu_engine.memory_of_torch()


@pytest.mark.parametrize(
    ("capture", "fault", "rule"),
    [
        (lambda work: work, None, None),
        (lambda work: work() or work, "a launch that was captured", "not run wrong values"),
        (lambda work: lambda: None, "a replay of a CUDA graph", "wrong values"),
        (lambda work: None, "nothing", "captured"),
    ],
)
def test_a_graph_that_captures_or_replays_wrongly_is_found(monkeypatch, capture, fault, rule):
    stream = SimpleNamespace(numba=cuda.stream(), empty=cuda.device_array, capture=capture, synchronize=lambda: None)
    monkeypatch.setattr(gpu_engine, "needs_torch", lambda: None)
    monkeypatch.setattr(gpu_engine, "DeviceStream", lambda: stream)
    with refused(fault, rule, error=CheckFailed) if fault else nullcontext():
        gpu_engine.graph_capture()


@pytest.mark.parametrize(
    ("reason", "found"), [(None, "by CUDA C++, CuPy of unknown version"), ("CuPy is not installed", "by Numba's kernels: CuPy is not ")]
)
def test_the_kernels_that_gather_are_named(monkeypatch, reason, found):
    monkeypatch.setattr(gpu_engine, "native", SimpleNamespace(reason_against=lambda: reason))
    monkeypatch.setattr(gpu_engine, "version_of", lambda *names: None)
    assert gpu_engine.gather().startswith(found)


@pytest.mark.parametrize(("nth", "place"), [(0, "device"), (1, "pinned"), (2, "pinned with hot rows on the device")])
def test_rows_that_are_gathered_wrongly_are_found(monkeypatch, nth, place):
    wrong = [number == nth for number in range(3)]
    monkeypatch.setattr(gpu_engine, "to_host", lambda rows: np.asarray(rows) + wrong.pop(0))
    with refused(f", {place}: ", "rows table wrong values", error=CheckFailed):
        gpu_engine.gather()
    assert len(wrong) == 2 - nth


def test_pages_that_cannot_be_pinned_are_found(on_device, monkeypatch):
    monkeypatch.setattr(gpu_engine, "needs_torch", lambda: None)
    monkeypatch.setattr(gpu_engine, "pin_pages", lambda pages: warnings.warn("cannot be pinned", RuntimeWarning, stacklevel=2))
    with refused("pinned", "cannot", error=RuntimeWarning):
        gpu_engine.locked_pages()
    monkeypatch.setattr(gpu_engine, "pin_pages", lambda pages: None)
    with refused("the queue's pages", "CUDA registered torch pinned", error=CheckFailed):
        gpu_engine.locked_pages()


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (lambda pages: None, ("anonymous shared memory", "driver cannot register")),
        (lambda pages: cuda.to_device(pages(False) + 1), ("registered pages", "kernel wrong values")),
    ],
)
def test_shared_pages_that_a_kernel_cannot_read_are_found(monkeypatch, found, fault):
    assert gpu_engine.shared_pages() == "a kernel reads host memory that ranks share"
    monkeypatch.setattr(gpu_engine, "registered", found)
    with refused(*fault, error=CheckFailed):
        gpu_engine.shared_pages()


@pytest.mark.parametrize("place", [0, -1])
def test_a_batch_that_differs_is_found(graph, monkeypatch, place):
    names = list(gpu_engine.NeighborSampler([3, 2]).sample(graph, np.arange(3)).arrays())
    left = [name == names[place] for name in names]

    def to_host(array):
        host = np.array(array)
        host[-1] += left.pop(0)
        return host

    monkeypatch.setattr(gpu_engine, "to_host", to_host)
    with refused(f"{names[place]}: ", "sample bulk 0 values", error=CheckFailed):
        gpu_engine.sampling()
