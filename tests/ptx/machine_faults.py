"""The interpreter finds faults: kernels with one known fault or none, under every schedule of threads. ``test_ptx.py`` runs it."""

import numpy as np
import pytest
from cases.mistakes import refused
from numba import cuda, int64

import hoptrain.kernels.cuda.compile  # noqa: F401 - with it numba-cuda does not warn of small grids
from ptx import watch
from ptx.decode import Unsupported, decode
from ptx.launch import BESIDE_ATOMIC, SAME_VALUE, SESSION, Fault, address, run_program
from ptx.machine import MODES
from ptx.memory import MEMORY, STREAM
from ptx.watch import KINDS


@cuda.jit
def writes_the_next(x):
    x[cuda.grid(1) + 1] = cuda.grid(1)


@cuda.jit
def writes_behind_its_row(x, y):
    x[3] = y[0]


@cuda.jit
def copies(x, y):
    y[cuda.grid(1)] = x[cuda.grid(1)] + 1


@cuda.jit
def turns_round_without_a_barrier(x):
    buffer = cuda.shared.array(0, int64)
    t = cuda.threadIdx.x
    buffer[t] = x[t]
    x[t] = buffer[cuda.blockDim.x - 1 - t]


@cuda.jit
def turns_round(x):
    buffer = cuda.shared.array(0, int64)
    t = cuda.threadIdx.x
    buffer[t] = x[t]
    cuda.syncthreads()
    x[t] = buffer[cuda.blockDim.x - 1 - t]


@cuda.jit
def adds(x):
    x[0] += 1


@cuda.jit
def adds_atomically(x):
    cuda.atomic.add(x, 0, 1)


@cuda.jit
def sets(x):
    x[0] = 1


@cuda.jit
def looks_before_it_adds(x, y):
    y[cuda.grid(1)] = x[0]
    cuda.atomic.add(x, 0, 1)


@cuda.jit
def leaves_word_for_other_blocks(x, y):
    if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
        x[0] = 7
    elif cuda.threadIdx.x == 1:
        y[cuda.blockIdx.x] = x[0]


@cuda.jit
def has_two_barriers(x):
    if cuda.threadIdx.x % 2:
        x[cuda.threadIdx.x] = 1
        cuda.syncthreads()
        x[cuda.threadIdx.x] = 3
    else:
        x[cuda.threadIdx.x] = 2
        cuda.syncthreads()
        x[cuda.threadIdx.x] += 5


@cuda.jit
def ends_before_the_barrier(x):
    if cuda.threadIdx.x < 40:
        cuda.syncthreads()
        x[cuda.threadIdx.x] = 3


def zeros(n=1):
    return lambda: cuda.to_device(np.zeros(n, np.int64))


def garbage(n):
    return lambda: cuda.device_array(n, np.int64)


def rows():
    return cuda.to_device(np.zeros((2, 3), np.int64))


@pytest.fixture(autouse=True)
def _own_session(monkeypatch):
    for name in ("seed", "mode", "notes"):
        monkeypatch.setattr(SESSION, name, getattr(SESSION, name))
    SESSION.notes = {}


def kinds(kernel, grid, *args, shared=0):
    """Run a kernel under all schedules with blocks of 64 threads, and return the kinds of the interpreter's notes."""
    found = set()
    for SESSION.mode in MODES:
        for SESSION.seed in range(3):
            try:
                kernel[grid, 64, STREAM, shared](*(arg() for arg in args))
                STREAM.synchronize()
            except Fault as fault:
                found.add(fault.args[0].kind)
    found |= {note.kind for note in SESSION.notes.values()}
    SESSION.notes.clear()  # these notes are expected
    return found


OUT, UNWRITTEN = {KINDS[watch.OUT_OF_BOUNDS]}, {KINDS[watch.UNWRITTEN]}
READ, OVERWRITTEN, WRITTEN = {KINDS[watch.READ_AFTER_WRITE]}, {KINDS[watch.WRITE_AFTER_READ]}, {KINDS[watch.WRITE_AFTER_WRITE]}


@pytest.mark.parametrize(
    ("expected", "kernel", "grid", "args", "shared"),
    [
        (OUT, writes_the_next, 2, [zeros(128)], 0),
        (set(), writes_the_next, 2, [zeros(129)], 0),
        (OUT, writes_behind_its_row, 1, [lambda: rows()[0], lambda: rows()[1]], 0),
        (UNWRITTEN, copies, 1, [garbage(64), zeros(64)], 0),
        (set(), copies, 1, [zeros(64), garbage(64)], 0),
        (READ | OVERWRITTEN, turns_round_without_a_barrier, 1, [zeros(64)], 512),
        (set(), turns_round, 1, [zeros(64)], 512),
        (OUT, turns_round, 1, [zeros(64)], 504),
        (READ | OVERWRITTEN | WRITTEN | {SAME_VALUE}, adds, 2, [zeros()], 0),
        (set(), adds_atomically, 2, [zeros()], 0),
        ({SAME_VALUE}, sets, 2, [lambda: cuda.to_device(np.ones(1, np.int64))], 0),
        ({BESIDE_ATOMIC}, looks_before_it_adds, 2, [zeros(), zeros(128)], 0),
        (READ | OVERWRITTEN, leaves_word_for_other_blocks, 3, [zeros(), zeros(3)], 0),
        ({KINDS[watch.DIVERGENT_BARRIER]}, has_two_barriers, 1, [zeros(64)], 0),
        ({KINDS[watch.BARRIER_AFTER_EXIT]}, ends_before_the_barrier, 1, [zeros(64)], 0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_noted(expected, kernel, grid, args, shared):
    found = kinds(kernel, grid, *args, shared=shared)
    unwritten = UNWRITTEN if kernel is turns_round_without_a_barrier else set()
    assert found - unwritten == expected


@cuda.jit
def never_ends(x):
    while x[0] == 0:
        x[1] = 1


def test_an_endless_launch(monkeypatch):
    monkeypatch.setattr("ptx.launch.LIMIT", 100_000)
    never_ends[1, 1, STREAM, 0](cuda.to_device(np.zeros(2, np.int64)))
    with refused("never_ends", "endless", error=Fault):
        STREAM.synchronize()


@cuda.jit
def computes(a, b, quotient, remainder, shifted, ratio):
    i = cuda.grid(1)
    if i < a.size:
        quotient[i], remainder[i] = a[i] // b[i], a[i] % b[i]
        shifted[i] = a[i] >> (b[i] & 31)
        ratio[i] = np.float32(a[i]) / np.float32(b[i])


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint64, np.uint32])
def test_arithmetic(dtype):
    rng, info, number = np.random.default_rng(0), np.iinfo(dtype), 4096
    a, b = rng.integers(info.min, info.max, (2, number), dtype, endpoint=True)
    b >>= 8 * rng.integers(0, info.bits // 8, number).astype(dtype)  # numbers of all magnitudes
    b[b == 0] = 3
    out = [cuda.device_array(number, t) for t in (dtype, dtype, dtype, np.float32)]
    computes[16, 256](cuda.to_device(a), cuda.to_device(b), *out)
    expected = a // b, a % b, a >> (b & dtype(31)), a.astype(np.float32) / b.astype(np.float32)
    for found, wanted in zip(out, expected, strict=True):
        np.testing.assert_array_equal(found.copy_to_host(), wanted)


def test_the_host_waits():
    """If the host does not wait, it reads garbage, and a value that it writes too early is copied instead of the right one."""
    device, pinned = cuda.to_device(np.arange(3)), cuda.pinned_array(3, np.int64)
    device.copy_to_host(pinned, stream=STREAM)
    assert pinned.tolist() != [0, 1, 2]
    STREAM.synchronize()
    assert pinned.tolist() == [0, 1, 2]
    device.copy_to_device(pinned, stream=STREAM)
    pinned[0] = 7
    assert device.copy_to_host().tolist() == [7, 1, 2]


VECTORS = """
.visible .entry swaps(.param .u64 x, .param .u64 at, .param .u32 goes)
{
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [at]; ld.param.u32 %r5, [goes];
    add.s64 %rd3, %rd1, %rd2;
    setp.ne.s32 %p1, %r5, 0;
    ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%rd3];
    @%p1 st.global.v2.u32 [%rd3+8], {%r2, %r1};
    @!%p1 st.global.v4.u32 [%rd3], {%r4,%r3,%r2,%r1};
    ret;
}
"""


def words(number):
    made = MEMORY.allocate(number, np.uint32, written=True)
    made[...] = np.arange(number)
    return made


@pytest.mark.parametrize(("goes", "expected"), [(1, [0, 1, 2, 3, 4, 5, 5, 4]), (0, [0, 1, 2, 3, 7, 6, 5, 4])])
def test_vectors(goes, expected):
    x = words(8)
    run_program("swaps", decode(VECTORS), [x, 16, goes], (1,), (1,))
    assert x.tolist() == expected


@pytest.mark.parametrize(("at", "kind"), [(8, watch.MISALIGNED), (20, watch.OUT_OF_BOUNDS), (32, watch.OUT_OF_BOUNDS)])
def test_a_vector_that_is_not_aligned_or_reaches_beyond_its_array(at, kind):
    with refused("swaps", f"{KINDS[kind]} ld.global.nc.v4", error=Fault):
        run_program("swaps", decode(VECTORS), [words(8), at, 0], (1,), (1,))


def test_a_vector_that_is_loaded_over_its_address():
    with refused("%rd1", "ld.global.v2.u64 address loaded over", error=Unsupported):
        decode(".entry f(.param .u64 x) { ld.param.u64 %rd1, [x];\nld.global.v2.u64 {%rd1, %rd2}, [%rd1]; }")


FOLLOWS = """
.entry follows(.param .u64 table, .param .u64 at)
{
    ld.param.u64 %rd1, [table]; ld.param.u64 %rd2, [at];
    ld.global.u64 %rd3, [%rd1];
    add.s64 %rd4, %rd3, %rd2;
    st.global.u32 [%rd4], 9;
    ret;
}
"""


def test_an_array_that_a_table_points_to():
    table, x, y = MEMORY.allocate(1, np.uint64, written=True), words(4), words(4)
    table[0] = address(3)
    run_program("follows", decode(FOLLOWS), [table, 8], (1,), (1,), reached=[x, y])
    assert (x.tolist(), y.tolist()) == ([0, 1, 2, 3], [0, 1, 9, 3])
    with refused("byte 16", "follows out bounds array 3 16 bytes", error=Fault):
        run_program("follows", decode(FOLLOWS), [table, 16], (1,), (1,), reached=[x, y])
