"""The choice of the native kernels, and their launch arguments: g++ builds replace CuPy's modules, in the simulator."""

import sys

import numpy as np
import pytest
import torch
from cases.mistakes import refused, warned
from cpp.stand_in import ARRAY, STREAM, Stream, _cupy  # noqa: F401
from cuda_case import TESTED, needs_cuda, simulated, to_host
from numba import cuda

from hoptrain.engine.gpu_memory.device_store import DeviceRows
from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.kernels.cuda import native
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.native.gather import placed_gather

pytestmark = needs_cuda


@simulated
@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("hot", [None, np.array([3, 17, 0])], ids=["whole", "hot"])
@pytest.mark.parametrize("placement", ["device", "pinned"])
@pytest.mark.parametrize(
    ("dtype", "shape", "word"), [(np.float32, (7,), 4), (np.float16, (2, 40), 16), (np.uint8, (5,), 1), (np.int64, (), 8)]
)
def test_rows_of_a_table_are_gathered_by_it(cupy, dtype, shape, word, placement, hot, ids_dtype):
    store = np.random.default_rng(0).integers(0, 256, (20, *shape, np.dtype(dtype).itemsize), np.uint8).view(dtype)[..., 0]
    ids = [19, 3, 3, 0, 17, 5, 1]
    rows = DeviceRows(store, DeviceStream(), placement=placement, hot=hot, thresholds=TESTED)
    for _ in range(2):
        found = to_host(rows.gather_here(torch.tensor(ids, dtype=ids_dtype)))
        assert (found.dtype, found.shape) == (store.dtype, (7, *shape))
        assert found.tobytes() == store[ids].tobytes()
    assert cupy.launches == [f"gather_placed_{word}_{str(ids_dtype).removeprefix('torch.')}"] * 2
    assert cupy.modules == ["gather"]


@simulated
def test_rows_of_three_gpus_and_of_the_host(cupy):
    """Rows of three GPUs and of the host are gathered together.

    The rows of one GPU are 4-byte aligned only, so those of the whole table are read in words of 4 bytes.
    """
    table = np.random.default_rng(0).integers(0, 2**63, (40, 4), np.uint64)
    where = np.full(40, -1, np.int32)
    hot = np.random.default_rng(1).permutation(40)[:23]
    where[hot] = np.arange(23)
    memory = np.empty(8 * 32 + 16, np.uint8)
    begin = -memory.ctypes.data % 16 + 4
    shifted = memory[begin : begin + table[hot[1::3]].nbytes].view(np.uint64).reshape(-1, 4)
    shifted[...] = table[hot[1::3]]
    parts = [cuda.to_device(table[hot[::3]]), ARRAY(shifted), cuda.to_device(table[hot[2::3]])]
    gather = placed_gather(cuda.to_device(table), cuda.to_device, pinned=True, parts=parts, where=cuda.to_device(where))
    ids, out = torch.randint(0, 40, (300,), dtype=torch.int32), torch.zeros(300, 4, dtype=torch.int64)
    gather(Launch(stream=Stream(STREAM), thresholds=TESTED, num_batches=1), ids, out)
    assert out.numpy().tobytes() == table[ids.numpy()].tobytes()
    assert cupy.launches == ["gather_placed_4_int32"]


def _refused(*args, **options):
    raise RuntimeError("NVRTC_ERROR_COMPILATION (6):\n no such device")


@simulated
@pytest.mark.parametrize("fault", ["import", "source", "compile"])
def test_cupy_that_does_not_work_is_passed_over(cupy, monkeypatch, fault):
    """If CuPy does not work, Numba's kernels gather, and one warning gives the reason, for any number of tables."""
    if fault == "import":
        monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(cupy, {"import": "run", "source": "RawModule", "compile": "compile"}[fault], _refused)
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    with warned("gathering rows", "falls back Numba's kernels CuPy failed load", "install uninstall CuPy", RuntimeWarning):
        tables = [DeviceRows(table, DeviceStream(), placement=where, thresholds=TESTED) for where in ("device", "pinned")]
    for rows in tables:
        assert to_host(rows.gather_here(torch.tensor([3, 0]))).tolist() == table[[3, 0]].tolist()
    assert cupy.launches == []


@simulated
def test_no_rows_are_no_launch(cupy):
    rows = DeviceRows(np.zeros((3, 4), np.float32), DeviceStream(), placement="device")
    assert rows.gather_here(torch.empty(0, dtype=torch.int64)).shape == (0, 4)
    assert cupy.launches == []


@simulated
def test_ids_with_gaps_are_refused(cupy):
    rows = DeviceRows(np.zeros((3, 4), np.float32), DeviceStream(), placement="device")
    with refused("(2,)", "array shape not contiguous", "copy", ValueError):
        rows.gather_here(torch.zeros(4, dtype=torch.int64)[::2])


def test_reasons_against(monkeypatch):
    monkeypatch.setattr(native.config, "ENABLE_CUDASIM", 1)
    assert native.reason_against() == "the simulator runs only Numba's kernels"
    monkeypatch.setattr(native.config, "ENABLE_CUDASIM", 0)
    monkeypatch.setattr(native.importlib.util, "find_spec", lambda name: None)
    assert native.reason_against() == "CuPy is not installed (pip install 'hoptrain[cuda]')"
    monkeypatch.setattr(native.importlib.util, "find_spec", lambda name: name)
    assert native.reason_against() is None
