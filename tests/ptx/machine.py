"""An interpreter of decoded PTX, compiled by Numba, with monitored memory; a seed chooses the order of blocks, warps and threads.

Threads are switched at memory accesses: no other thread can see what happens between two of them.
"""

import numpy as np

from ptx.arithmetic import extended, floating, from_integer, fused, integer, is_less, narrowed
from ptx.compiled import compiled
from ptx.ops import (
    ARGUMENT_BITS,
    ATOM_ADD,
    ATOM_AND,
    ATOM_CAS,
    ATOM_EXCH,
    ATOM_MAX,
    ATOM_MIN,
    ATOM_OR,
    BAR,
    BRA,
    DIV,
    DST,
    DST_WIDTH,
    F_ADD,
    F_FMA,
    F_OF_INT,
    FENCE,
    GUARD,
    LD,
    OP,
    REM,
    RET,
    SIGNED,
    SPACE,
    ST,
    WHOLE,
    WIDTH,
    A,
    B,
    C,
    D,
)  # fmt: skip
from ptx.watch import (
    BARRIER_AFTER_EXIT,
    BLOCK,
    DIVERGENT_BARRIER,
    DIVISION_BY_ZERO,
    ENDLESS,
    EPOCH,
    LAUNCH,
    PC,
    READ,
    SHARED_BYTES,
    STATUS,
    STEPS,
    WRITTEN,
    count,
    get,
    note,
    place_of,
    put,
    watch,
)  # fmt: skip

RUN, WAIT, DONE = range(3)
WARPS, THREADS, GREEDY, ASCENDING, DESCENDING = range(5)
MODES = ("warps", "threads", "greedy", "ascending", "descending")
"""Schedules of threads: warps in step; single threads for some accesses; single threads up to the next barrier, in random order or in order."""

_NEVER = 1 << 60
_TURN = 1 << 16  # instructions after which a thread without memory accesses is switched


@compiled
def below(m, n):
    """Return a random number in [0, n) (Marsaglia, Xorshift RNGs, 2003)."""
    x = m.random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    m.random[0] = x
    return np.int64((x >> np.uint64(11)) % np.uint64(n))


@compiled
def combined(op, old, b, c, width, signed):
    """Return the value that an atomic instruction stores."""
    x, y = (extended(old, width), extended(b, width)) if signed else (old, b)
    if op == ATOM_ADD:
        new = x + y
    elif op == ATOM_MIN:
        new = x if is_less(x, y, signed) else y
    elif op == ATOM_MAX:
        new = y if is_less(x, y, signed) else x
    elif op == ATOM_AND:
        new = x & y
    elif op == ATOM_OR:
        new = x | y
    elif op == ATOM_EXCH:
        new = y
    elif op == ATOM_CAS:
        new = c if old == b else old
    else:
        new = x ^ y
    return narrowed(new, width)


@compiled
def access(m, slot, row, r, pc, thread):
    """Execute a load, a store, an atomic instruction, or the alignment check of a vector; return False if the access is invalid."""
    op, width, size = row[OP], row[WIDTH], row[WIDTH] >> 3
    index = place_of(m, slot, r[row[A]] + row[D], row[SPACE], size, pc, thread)
    if index < 0:
        return False
    if op == WHOLE:
        return True
    if len(m.traffic) and index >= SHARED_BYTES:
        argument = (r[row[A]] + row[D]) >> ARGUMENT_BITS
        if op != ST:
            count(m, slot, argument, index, READ, thread)
        if op != LD:
            count(m, slot, argument, index, WRITTEN, thread)
    old = get(m, index, size)
    if op == LD:
        watch(m, slot, index, size, False, False, False, pc, thread)
        r[row[DST]] = narrowed(extended(old, width) if row[SIGNED] else old, row[DST_WIDTH])
        return True
    b = narrowed(r[row[B]], width)
    new = b if op == ST else combined(op, old, b, narrowed(r[row[C]], width), width, row[SIGNED] != 0)
    watch(m, slot, index, size, True, op != ST, new != old, pc, thread)
    put(m, index, size, new)
    if op != ST:
        r[row[DST]] = old
    return True


@compiled
def compute(row, r):
    """Return the result of an arithmetic instruction."""
    op, a, b, width, signed = row[OP], r[row[A]], r[row[B]], row[WIDTH], row[SIGNED] != 0
    if op < F_ADD:
        value = integer(op, a, b, r[row[C]], r[row[D]], width, signed)
    elif op == F_OF_INT:
        value = from_integer(a, width, signed, row[DST_WIDTH])
    elif op == F_FMA:
        value = fused(a, b, r[row[C]], width)
    else:
        value = floating(op, a, b, row[D], width, signed, row[DST_WIDTH])
    return narrowed(value, row[DST_WIDTH])


@compiled
def step(m, slot, t, accesses):
    """Run a thread up to a number of accesses; return False after an error that ends the launch."""
    threads = m.block[0] * m.block[1] * m.block[2]
    at = slot * threads + t
    code, r, pc, thread = m.code, m.registers[at], m.thread_state[at, PC], m.block_state[slot, BLOCK] * threads + t + 1
    steps, goes_on = 0, True
    while accesses > 0 and steps < _TURN:
        row = code[pc]
        op, guard = row[OP], row[GUARD]
        steps += 1
        pc += 1
        if guard != 0 and (r[abs(guard) - 1] != 0) != (guard > 0):
            continue
        if op == BRA:
            pc = row[A]
        elif op in (RET, BAR):
            m.thread_state[at, STATUS] = DONE if op == RET else WAIT
            break
        elif LD <= op < FENCE:
            accesses -= 1
            if not access(m, slot, row, r, pc - 1, thread):
                goes_on = False
                break
        elif op == FENCE:
            pass
        elif (op in (DIV, REM)) and narrowed(r[row[B]], row[WIDTH]) == 0:
            note(m, DIVISION_BY_ZERO, pc - 1, pc - 1, 0, thread, thread, 0)
            r[row[DST]] = narrowed(np.int64(-1), row[DST_WIDTH])
        else:
            r[row[DST]] = compute(row, r)
    m.thread_state[at, PC] = pc
    m.counters[STEPS] += steps
    return goes_on


@compiled
def begin(m, slot, block):
    """Start a block in a slot. Registers and shared memory hold garbage, except for given values."""
    m.block_state[slot, BLOCK], m.block_state[slot, EPOCH] = block, 1
    x, y, z = m.block[0], m.block[1], m.block[2]
    for t in range(x * y * z):
        r = m.registers[slot * x * y * z + t]
        r[:] = m.start
        r[0], r[1], r[2], r[3], r[4], r[5] = t % x, t // x % y, t // (x * y), x, y, z
        r[6], r[7], r[8] = block % m.grid[0], block // m.grid[0] % m.grid[1], block // (m.grid[0] * m.grid[1])
        r[9], r[10], r[11], r[13] = m.grid[0], m.grid[1], m.grid[2], t % 32
        m.thread_state[slot * x * y * z + t, PC], m.thread_state[slot * x * y * z + t, STATUS] = 0, RUN
    if len(m.traffic):
        warps = (x * y * z + 31) // 32
        m.recent[slot * warps : (slot + 1) * warps] = -1
    first = m.shared[0] + slot * m.shared[1]
    for i in range(first, first + m.shared[1]):
        m.written[i], m.bytes[i], m.shadow[i, LAUNCH] = False, 0xA5, 0


@compiled
def open_barrier(m, slot, threads):
    """Release the barrier of a block in which no thread can run, or report that the block has ended."""
    first, waiting, at = slot * threads, 0, np.int64(-1)
    for t in range(first, first + threads):
        if m.thread_state[t, STATUS] == WAIT:
            waiting += 1
            if at >= 0 and m.thread_state[t, PC] != at:
                note(m, DIVERGENT_BARRIER, at - 1, m.thread_state[t, PC] - 1, 0, 0, 0, 0)
            at = m.thread_state[t, PC]
            m.thread_state[t, STATUS] = RUN
    if 0 < waiting < threads:
        note(m, BARRIER_AFTER_EXIT, at - 1, at - 1, 0, 0, 0, 0)
    m.block_state[slot, EPOCH] += 1
    return waiting == 0


@compiled
def turn_of_warp(m, slot, threads, warp):
    """Run the threads of a warp that are farthest behind, in step; return (whether any could run, whether there was no error)."""
    low, high = warp * 32, min(threads, warp * 32 + 32)
    first, ascending = slot * threads, below(m, 2) == 0
    for turn in range(1 + below(m, 24)):
        at = np.int64(_NEVER)
        for t in range(low, high):
            if m.thread_state[first + t, STATUS] == RUN:
                at = min(at, m.thread_state[first + t, PC])
        if at == _NEVER:
            return turn > 0, True
        for i in range(high - low):
            t = low + i if ascending else high - 1 - i
            if m.thread_state[first + t, STATUS] == RUN and m.thread_state[first + t, PC] == at and not step(m, slot, t, 1):
                return True, False
    return True, True


@compiled
def turn_of_thread(m, slot, threads, mode):
    """Run a thread; return (whether it could run, whether there was no error)."""
    first = below(m, threads) if mode < ASCENDING else 0
    for k in range(threads):
        t = (first + k) % threads if mode != DESCENDING else threads - 1 - k
        if m.thread_state[slot * threads + t, STATUS] == RUN:
            return True, step(m, slot, t, 1 + below(m, 8) if mode == THREADS else _NEVER)
    return False, True


@compiled
def run(m, order, mode, limit):
    """Run all blocks, several at a time; return False after an error that ends the launch.

    ``order`` has the block numbers (blocks,) int64, ``mode`` says how threads are scheduled, and a launch with more than ``limit``
    instructions counts as endless.
    """
    slots, threads = len(m.block_state), m.block[0] * m.block[1] * m.block[2]
    begun, active, warps = 0, 0, (threads + 31) // 32
    m.block_state[:, BLOCK] = -1
    while True:
        for slot in range(slots):
            if m.block_state[slot, BLOCK] < 0 and begun < len(order):
                begin(m, slot, order[begun])
                begun, active = begun + 1, active + 1
        if active == 0:
            return True
        if m.counters[STEPS] > limit:
            note(m, ENDLESS, 0, 0, 0, 0, 0, 0)
            return False
        slot = below(m, slots)
        while m.block_state[slot, BLOCK] < 0:
            slot = (slot + 1) % slots
        moved, is_well = False, True
        if mode == WARPS:
            first = below(m, warps)
            for k in range(warps):
                if not moved and is_well:
                    moved, is_well = turn_of_warp(m, slot, threads, (first + k) % warps)
        else:
            moved, is_well = turn_of_thread(m, slot, threads, mode)
        if not is_well:
            return False
        if not moved and open_barrier(m, slot, threads):
            m.block_state[slot, BLOCK] = -1
            active -= 1
