"""Runs kernels: numba-cuda infers types, compiles and links as for a launch, and ``machine`` interprets the result on ``memory``."""

import functools
import hashlib
import inspect
import itertools
import linecache
import weakref
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import types

from ptx import machine, watch
from ptx.compiled import TEXTS
from ptx.decode import decode
from ptx.memory import MEMORY, STREAM
from ptx.ops import ARGUMENT_BITS, SHARED_START, SPECIAL

LIMIT = 2_000_000_000
"""Number of instructions after which a launch counts as endless."""
MOST_SHARED = 48 * 1024
_MOST_SLOTS = 8
_GARBAGE = 0x5A5A5A5A
_RACES = (watch.READ_AFTER_WRITE, watch.WRITE_AFTER_READ, watch.WRITE_AFTER_WRITE)
BESIDE_ATOMIC, SAME_VALUE = "race: a plain read beside an atomic", "race: two plain writes of the same value"
"""Kinds of races that may be intended; other kinds have the names of ``watch.KINDS``."""


class Fault(AssertionError):
    """An error of a launch that did something that no kernel may do, described by its ``Note``."""


@dataclass(frozen=True)
class Note:
    """An event of a launch, such as a race."""

    kernel: str
    kind: str  # one of ``watch.KINDS``, or one of the kinds that may be intended
    line: str  # source line, that of the plain access if the other one is atomic
    words: str

    def __str__(self):
        return f"{self.kernel}: {self.kind}: {self.words}"


class Session:
    """The state that all launches of a process share.

    Attributes:
        seed: chooses the order of blocks and threads in all launches.
        mode: the schedule of threads (``machine.MODES``), or None to draw one for each launch.
        launches: number of launches so far.
        instructions: number of executed instructions.
        notes: the distinct races and reads of unwritten memory.
        capability: compute capability of the emulated device.
        keeps_texts: whether compiled PTX is cached for later processes.
        traffic: None, or a list of (kernel, access counts (``watch.TRAFFIC_COLUMNS``,) of its arrays by parameter name), one entry for each
            launch. Counts are meaningful if threads are scheduled by warps.
    """

    def __init__(self):
        self.seed, self.mode, self.launches, self.instructions, self.notes = 0, None, 0, 0, {}
        self.capability, self.keeps_texts, self.traffic = (8, 0), True, None


SESSION = Session()
_programs = weakref.WeakKeyDictionary()


def text_path(function, argument_types):
    """Return the cache file of a kernel's PTX, or None for kernels created at run time."""
    if not SESSION.keeps_texts or "<locals>" in function.__qualname__ or not function.__module__.startswith("hoptrain."):
        return None
    name = f"{function.__module__}.{function.__qualname__}{argument_types} {SESSION.capability}"
    return TEXTS / hashlib.sha256(name.encode()).hexdigest()


def program_of(kernel):
    """Return the decoded program of a numba-cuda kernel, linked as for a launch."""
    if kernel not in _programs:
        path = text_path(kernel.py_func, kernel.argument_types)
        if path and path.exists():
            text = path.read_text()
        else:
            library = kernel._codelibrary
            text = library.get_lto_ptx(library._ensure_cc(None))
            if path:
                scratch = path.with_name(f"{path.name}.{id(kernel)}")
                scratch.write_text(text)
                scratch.replace(path)
        _programs[kernel] = decode(text)
    return _programs[kernel]


def flatten(kind, value):
    """Return an argument as numba-cuda's ABI passes it: an array for a pointer, otherwise integers."""
    if isinstance(kind, types.Array):
        array = value._ary  # host arrays have no such field: a launch would copy them
        return [0, 0, array.size, array.itemsize, array, *array.shape, *array.strides]
    if isinstance(kind, types.Boolean | types.Integer):
        return [int(value)]
    if kind in (types.float32, types.float64):
        return [int(np.array(value, kind.name).view(np.uint32 if kind == types.float32 else np.int64))]
    if isinstance(kind, types.BaseTuple):
        return list(itertools.chain.from_iterable(map(flatten, kind, value)))
    raise NotImplementedError(f"an argument of type {kind}")


def launch(kernel, args, griddim, blockdim, stream=0, sharedmem=0):
    """Queue a launch; replaces numba-cuda's function."""
    STREAM.push(lambda: run_launch(kernel, args, griddim, blockdim, sharedmem))


def check_limits(program, grid, block, sharedmem):
    """Raise ValueError if a device would reject the launch."""
    if block.prod() > 1024 or grid[1:].max() > 65535 or min(grid.min(), block.min()) < 1:
        raise ValueError(f"a grid of {grid} blocks of {block} threads cannot be launched")
    if sharedmem + program.static_shared > MOST_SHARED:
        raise ValueError(f"{sharedmem} + {program.static_shared} bytes of shared memory: a block has {MOST_SHARED}")


def address(number):
    """Return the address of an array: arguments are numbered from 1, and arrays reached through tables follow."""
    return number << ARGUMENT_BITS


def registers(program, values, sharedmem, reached=()):
    """Return the initial registers of threads, (registers,), and the bounds of arguments and reached arrays, (1 + arrays, 2)."""
    start = np.full(program.num_registers, _GARBAGE, np.int64)
    start[SPECIAL.index("%dynamic_smem_size")] = sharedmem
    bounds = [(0, 0)]
    for at, (value, width) in enumerate(zip(values, program.params, strict=True), len(SPECIAL)):
        if isinstance(value, np.ndarray):
            bounds.append(bounds_of(value))
            value = address(len(bounds) - 1)
        value &= (1 << width) - 1
        start[at] = value - ((1 << 64) if value >> 63 else 0)
    for value, register in program.literals.items():
        start[register] = value
    return start, np.array(bounds + [bounds_of(array) for array in reached], np.int64)


def bounds_of(array):
    """Return the bounds of an array in device memory, or raise ValueError."""
    found = MEMORY.bounds(array)
    if found is None:
        raise ValueError(f"an array of shape {array.shape} is not in the device's memory")
    return found


def run_launch(kernel, args, griddim, blockdim, sharedmem):
    """Run a kernel's compiled code on the arrays."""
    values = list(itertools.chain.from_iterable(map(flatten, kernel.argument_types, args)))
    traffic = run_program(kernel.py_func.__name__, program_of(kernel), values, griddim, blockdim, sharedmem)
    if SESSION.traffic is not None:
        SESSION.traffic.append((kernel.py_func.__name__, traffic_by_name(kernel, traffic)))


def run_program(name, program, values, griddim, blockdim, sharedmem=0, reached=()):
    """Run a program.

    Args:
        name: name of the kernel.
        program: the decoded kernel.
        values: arguments: arrays in device memory, and integers.
        griddim: number of blocks.
        blockdim: threads per block.
        sharedmem: dynamic shared memory per block, in bytes.
        reached: arrays that the kernel reaches through pointers in memory (``address``).

    Returns:
        The access counts of arrays; empty unless ``SESSION.traffic`` is a list.

    Raises:
        Fault: the kernel accesses memory out of bounds, does not end, or has a barrier that not all threads reach.
    """
    grid, block = (np.array([*size, 1, 1][:3], np.int64) for size in (griddim, blockdim))
    check_limits(program, grid, block, sharedmem)
    SESSION.launches += 1
    rng = np.random.default_rng((SESSION.seed, SESSION.launches))
    mode = machine.MODES.index(SESSION.mode) if SESSION.mode else int(rng.integers(len(machine.MODES)))
    threads, blocks = int(block.prod()), int(grid.prod())
    slots = min(blocks, int(rng.integers(1, _MOST_SLOTS + 1)))
    start, bounds = registers(program, values, sharedmem, reached)
    dynamic = program.dynamic_start
    stride = -(-(dynamic + sharedmem - SHARED_START) // 16) * 16
    memory, is_counted = MEMORY.bytes, SESSION.traffic is not None
    state = watch.Machine(
        code=program.code, start=start, registers=np.empty((slots * threads, program.num_registers), np.int64),
        thread_state=np.empty((slots * threads, watch.THREAD_COLUMNS), np.int64), block_state=np.empty((slots, watch.BLOCK_COLUMNS), np.int64),
        bytes=memory, halves=memory.view(np.uint16), words=memory.view(np.uint32), longs=memory.view(np.uint64),
        written=MEMORY.written, shadow=MEMORY.shadow, arguments=bounds,
        shared=np.array([0, stride, SHARED_START, SHARED_START + program.static_shared, dynamic, dynamic + sharedmem], np.int64),
        notes=np.zeros((256, watch.NOTE_COLUMNS), np.int64), counters=np.zeros(watch.COUNTERS, np.int64),
        random=rng.integers(1, 2**63, 1, np.uint64), grid=grid, block=block, launch=SESSION.launches,
        traffic=np.zeros((len(bounds) * is_counted, watch.TRAFFIC_COLUMNS), np.int64), touched=MEMORY.touched,
        recent=np.empty((slots * -(-threads // 32) * is_counted, len(bounds), 2, watch.RECENT), np.int64),
    )  # fmt: skip
    machine.run(state, rng.permutation(blocks), mode, LIMIT)
    SESSION.instructions += int(state.counters[watch.STEPS])
    for row in state.notes[: state.counters[watch.NUM_NOTES]]:
        found = described(name, program, row, bounds)
        if row[watch.N_KIND] not in (*_RACES, watch.UNWRITTEN):
            raise Fault(found)
        SESSION.notes.setdefault((found.kernel, found.kind, found.line), found)
    return state.traffic


def traffic_by_name(kernel, traffic):
    """Return the access counts of each array by parameter name, without arrays within tuples."""
    arrays = [kind for kind in kernel.argument_types if isinstance(kind, types.Array)]
    names = [name for name, kind in zip(inspect.signature(kernel.py_func).parameters, kernel.argument_types, strict=True) if kind in arrays]
    return dict(zip(names, traffic[1:], strict=len(arrays) == len(names)))


def kind_of(kind, flags):
    """Return the name of a race's kind, from the flags of its accesses."""
    if kind == watch.WRITE_AFTER_WRITE and flags == 0:
        return SAME_VALUE
    atomic = {watch.READ_AFTER_WRITE: watch.OLD_ATOMIC, watch.WRITE_AFTER_READ: watch.NEW_ATOMIC}.get(kind, 0)
    return BESIDE_ATOMIC if flags & atomic else watch.KINDS[kind]


def described(name, program, row, bounds):
    """Return a row of ``Machine.notes`` as a ``Note``."""
    kind, old, new, flags, thread_old, thread_new, address = (int(number) for number in row)
    places = [program.places[pc] for pc in (old, new)]
    words = [
        f"{program.lines[pc]!r} at {Path(path).name}:{line}" for pc, (path, line) in dict.fromkeys(zip((old, new), places, strict=True))
    ]
    if kind in _RACES:
        words.append(f"threads {thread_old - 1} and {thread_new - 1}")
        words += [word for bit, word in ((watch.OLD_ATOMIC, "the first atomic"), (watch.NEW_ATOMIC, "the second atomic"),
                                         (watch.CHANGES, "the value changes")) if flags & bit]  # fmt: skip
    elif kind == watch.OUT_OF_BOUNDS:
        argument, offset = address >> ARGUMENT_BITS, address & ((1 << ARGUMENT_BITS) - 1)
        where = f"byte {address - SHARED_START} of shared memory"
        if 0 < argument < len(bounds):
            offset -= (1 << ARGUMENT_BITS) if offset >> (ARGUMENT_BITS - 1) else 0
            where = f"byte {offset} of array {argument} of {bounds[argument, 1] - bounds[argument, 0]} bytes"
        words.append(f"thread {thread_new - 1}: {where}")
    plain = places[0] if flags & watch.NEW_ATOMIC else places[1]
    return Note(name, kind_of(kind, flags), line_at(*plain), ", ".join(words))


@functools.cache
def line_at(path, number):
    """Return a source line without indentation and comment, or "" if the code has no line information."""
    return linecache.getline(path, number).partition("  #")[0].strip()
