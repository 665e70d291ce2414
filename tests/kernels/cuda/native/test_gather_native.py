"""Rows gathered in CUDA C++ equal NumPy's and the Numba kernel's, from whole tables, from several parts, and from pinned memory."""

import re

import numpy as np
import pytest
from cases.mistakes import refused
from cpp.machines import ARCHITECTURES, Host, Interpreter, on_each_machine
from cpp.nvrtc import compile_source, text_of
from cuda_case import TESTED, needs_cuda, to_device, to_host
from ptx.launch import Fault

from hoptrain.engine.gpu_memory.device_store import DeviceRows
from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.kernels.cuda.native.gather import LINE_BYTES, WORDS, shape
from hoptrain.kernels.cuda.thresholds import THRESHOLDS

pytestmark = needs_cuda
NUM_NODES = 40


def table_of(row_bytes, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (NUM_NODES, row_bytes), np.uint8)


def split(rows, hot, num_parts):
    """Return the hot rows in several arrays, and each node's position among the hot rows."""
    where = np.full(len(rows), -1, np.int32)
    where[hot] = np.arange(len(hot))
    return [rows[hot[part::num_parts]] for part in range(num_parts)], where


def gather(machine, rows, ids, **options):
    """Return the rows gathered by the native kernel."""
    return launch(machine, rows, ids, **options)[0]


def launch(machine, rows, ids, *, hot=None, num_parts=0, word=None, pinned=False, shift=0):
    """Return the rows and the addresses that were read. The table starts ``shift`` bytes after the start of a cache line."""
    width = rows.shape[1]
    word = word or next(word for word in WORDS if (width | shift) % word == 0)
    parts, where = split(rows, hot, num_parts) if hot is not None else ([], None)
    whole = machine.array(np.concatenate([np.zeros(shift, np.uint8), rows.ravel()]), np.uint8)
    reached = [*(machine.array(part, np.uint8) for part in parts), whole]
    out, ids = machine.array(np.zeros((len(ids), width)), np.uint8), machine.array(ids, ids.dtype)
    at = machine.array(where, np.int32) if hot is not None else 0
    pointers = machine.pointers(reached, 4 if hot is not None else 3)
    pointers[-1] += shift
    line = LINE_BYTES // word if pinned else 1
    grid, block = shape(THRESHOLDS, len(ids), width // word + line - 1)
    arguments = [out, ids, at, machine.array(pointers, np.uint64), len(ids), len(parts), width // word, line]
    return out, machine.run("gather", f"gather_placed_{word}_{ids.dtype}", grid, block, arguments, reached)


IDS = np.random.default_rng(1).integers(0, NUM_NODES, 70)
HOT = np.random.default_rng(2).permutation(NUM_NODES)[:23]


@on_each_machine
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("row_bytes", [400, 16, 1040, 24, 28, 6, 5, 1])
def test_the_whole_table(machine, row_bytes, dtype):
    rows = table_of(row_bytes)
    assert gather(machine, rows, IDS.astype(dtype)).tobytes() == rows[IDS].tobytes()


@on_each_machine
@pytest.mark.parametrize("row_bytes", [400, 12, 1])
@pytest.mark.parametrize("num_parts", [1, 3])
def test_parts_and_the_rest_of_the_table(machine, row_bytes, num_parts):
    rows = table_of(row_bytes)
    assert gather(machine, rows, IDS, hot=HOT, num_parts=num_parts).tobytes() == rows[IDS].tobytes()


@on_each_machine
@pytest.mark.parametrize(("row_bytes", "shift"), [(400, 0), (400, 16), (200, 8), (28, 4), (6, 2), (5, 1), (1200, 112), (2, 126)])
@pytest.mark.parametrize("hot", [None, HOT], ids=["whole", "parts"])
def test_lines_of_host_memory(machine, row_bytes, shift, hot):
    """Rows in pinned host memory are gathered correctly, wherever in a cache line they start."""
    rows = table_of(row_bytes)
    found = gather(machine, rows, IDS, hot=hot, num_parts=2 if hot is not None else 0, pinned=True, shift=shift)
    assert found.tobytes() == rows[IDS].tobytes()


@pytest.mark.parametrize("pinned", [True, False])
def test_threads_side_by_side_read_whole_lines(pinned):
    """From pinned memory, the first thread of a warp reads from the start of a cache line, wherever the row starts."""
    _, reads = launch(Host(), table_of(400), IDS, pinned=pinned)
    threads, addresses = reads.T
    assert len(threads) == len(IDS) * 25
    assert np.all((addresses // 16 - threads) % (LINE_BYTES // 16) == 0) == pinned


@on_each_machine
@pytest.mark.parametrize(("row_bytes", "dtype"), [(56, np.uint64), (5, np.uint8)])
def test_numba_s_kernels_give_the_same(machine, row_bytes, dtype):
    rows = table_of(row_bytes)
    for hot in (None, HOT[:3]):
        numba_s = DeviceRows(rows.view(dtype), DeviceStream(), placement="pinned", hot=hot, thresholds=TESTED)
        found = gather(machine, rows, IDS[:20], hot=hot, num_parts=0 if hot is None else 1)
        assert found.tobytes() == to_host(numba_s.gather(to_device(IDS[:20]))).tobytes()


@pytest.mark.parametrize(("word", "shift", "message"), [(16, 8, "misaligned"), (8, 4, "misaligned")])
def test_a_word_that_is_too_wide_is_found(word, shift, message):
    with refused("gather", message, error=Fault):
        gather(Interpreter("sm_80"), table_of(32), IDS, word=word, shift=shift)


@pytest.mark.parametrize(("ids", "hot"), [([NUM_NODES], None), ([-1], None), ([NUM_NODES], HOT)])
def test_a_node_beyond_the_table_is_found(ids, hot):
    with refused("gather", "out of bounds", error=Fault):
        gather(Interpreter("sm_80"), table_of(32), np.array(ids), hot=hot, num_parts=2 if hot is not None else 0)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_two_loads_of_16_bytes_are_under_way_before_the_first_store(arch):
    text = text_of(compile_source("gather", arch)[0], "gather_placed_16_int32")
    order = "".join(access[:2] for access in re.findall(r"ld\.global\.nc\.v4\.u32|st\.global\.v4\.u32", text))
    assert re.fullmatch("(ldldstst)+", order)


@pytest.mark.parametrize(
    ("width", "num_rows", "expected"),
    [(1, 10**7, ((4224,), (1, 256))), (25, 64, ((4,), (16, 16))), (32, 1, ((1,), (16, 16))), (600, 9, ((2,), (32, 8))), (2, 0, ((1,), (1, 256)))],
)  # fmt: skip
def test_a_thread_has_two_words_of_a_row(width, num_rows, expected):
    assert shape(THRESHOLDS, num_rows, width) == expected
