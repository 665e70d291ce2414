"""Memory access checks of the interpreter: the target of an access, and the notes about it.

Accesses out of bounds and misaligned ones end a launch; reads of unwritten memory and races are noted. Two accesses to an address race if
one writes, not both are atomic, they are of different threads, and no barrier separates them (always between blocks). For each address the
last write and the last two reads are kept.
"""

from collections import namedtuple

import numpy as np

from ptx.compiled import compiled
from ptx.ops import ARGUMENT_BITS, GENERIC, SHARED, SHARED_START, SHARED_WINDOW

KINDS = (
    "out of bounds", "misaligned", "read of what nobody wrote", "race: read after write", "race: write after read", "race: write after write",
    "divergent barrier", "barrier after exit", "division by zero", "endless",
)  # fmt: skip
(OUT_OF_BOUNDS, MISALIGNED, UNWRITTEN, READ_AFTER_WRITE, WRITE_AFTER_READ, WRITE_AFTER_WRITE, DIVERGENT_BARRIER, BARRIER_AFTER_EXIT,
 DIVISION_BY_ZERO, ENDLESS) = range(len(KINDS))  # fmt: skip

OLD_ATOMIC, NEW_ATOMIC, CHANGES = 1, 2, 4
"""Flags of a race: whether each access is atomic, and whether the write changes the value."""

# Columns of the shadow of an address: the last write, the last read and the last read of another thread.
W_THREAD, W_EPOCH, W_PC, W_FLAGS, R_THREAD, R_EPOCH, R_PC, Q_THREAD, Q_EPOCH, Q_PC, LAUNCH, SHADOW_COLUMNS = range(12)
# Columns of a note: kind, instructions of the earlier and of this access, flags, threads, address.
N_KIND, N_OLD, N_NEW, N_FLAGS, N_THREAD_OLD, N_THREAD_NEW, N_ADDRESS, NOTE_COLUMNS = range(8)
# Columns of the state of a thread and of a resident block.
PC, STATUS, THREAD_COLUMNS = range(3)
BLOCK, EPOCH, BLOCK_COLUMNS = range(3)
# Counters of a launch.
NUM_NOTES, STEPS, COUNTERS = range(3)
# Counts of an argument: sectors requested by warps, and distinct sectors, read and written.
READ, WRITTEN, DISTINCT_READ, DISTINCT_WRITTEN, TRAFFIC_COLUMNS = range(5)

SHARED_BYTES = 1 << 20
"""Bytes at the start of the memory for the shared memory of resident blocks."""
SECTOR = 32
"""Bytes that device memory transfers at once."""
RECENT = 512
"""Number of an array's sectors that a warp can access again without a transfer, as if a cache held them."""

Machine = namedtuple(
    "Machine",
    (
        "code",  # rows of the decoded program
        "start",  # (registers,) with which a thread starts
        "registers",  # (slots * threads, registers); a slot holds one resident block
        "thread_state",  # (slots * threads, THREAD_COLUMNS)
        "block_state",  # (slots, BLOCK_COLUMNS)
        "bytes", "halves", "words", "longs",  # views of the memory
        "written",  # (bytes,) whether a byte was written
        "shadow",  # (bytes, SHADOW_COLUMNS)
        "arguments",  # (1 + arguments, 2) first byte of an argument and the one after its last
        "shared",  # (6,) start of the first slot's shared memory, bytes per slot; begin and end of the static and of the dynamic part
        "notes", "counters",
        "random",  # (1,) uint64
        "grid", "block",  # (3,) blocks and threads
        "launch",  # number of the launch: shadows of earlier ones are void
        "traffic",  # (1 + arguments, TRAFFIC_COLUMNS), or no rows if traffic is not counted
        "recent",  # (slots * warps, 1 + arguments, 2, RECENT) sectors that warps read and wrote
        "touched",  # (sectors, 2) the last launches that read and wrote a sector
    ),
)  # fmt: skip


@compiled
def note(m, kind, old, new, flags, thread_old, thread_new, address):
    """Record a note once for each pair of instructions."""
    notes, number = m.notes, m.counters[NUM_NOTES]
    for i in range(number):
        if notes[i, N_KIND] == kind and notes[i, N_OLD] == old and notes[i, N_NEW] == new and notes[i, N_FLAGS] == flags:
            return
    if number < len(notes):
        m.counters[NUM_NOTES] += 1
        notes[number, N_KIND], notes[number, N_OLD], notes[number, N_NEW], notes[number, N_FLAGS] = kind, old, new, flags
        notes[number, N_THREAD_OLD], notes[number, N_THREAD_NEW], notes[number, N_ADDRESS] = thread_old, thread_new, address


@compiled
def place_of(m, slot, address, space, size, pc, thread):
    """Return the memory index of an address, or -1 after noting its error."""
    index = np.int64(-1)
    if space == SHARED or (space == GENERIC and address >= SHARED_WINDOW):
        offset = address if space == SHARED else address - SHARED_WINDOW
        if m.shared[2] <= offset <= m.shared[3] - size or m.shared[4] <= offset <= m.shared[5] - size:
            index = m.shared[0] + slot * m.shared[1] + offset - SHARED_START
    else:
        argument, offset = address >> ARGUMENT_BITS, address & ((1 << ARGUMENT_BITS) - 1)
        if 0 < argument < len(m.arguments) and offset <= m.arguments[argument, 1] - m.arguments[argument, 0] - size:
            index = m.arguments[argument, 0] + offset
    if index < 0:
        note(m, OUT_OF_BOUNDS, pc, pc, 0, thread, thread, address)
    elif index & (size - 1):
        note(m, MISALIGNED, pc, pc, 0, thread, thread, address)
        index = np.int64(-1)
    return index


@compiled
def is_unordered(m, slot, thread, other, epoch):
    """Return whether no barrier separates another thread's earlier access from this thread's current access."""
    if other == 0 or other == thread:
        return False
    threads = m.block[0] * m.block[1] * m.block[2]
    return (other - 1) // threads != (thread - 1) // threads or epoch == m.block_state[slot, EPOCH]


@compiled
def watch(m, slot, index, size, is_write, is_atomic, changes, pc, thread):
    """Note the races of an access; ``thread`` counts from 1 over the grid."""
    epoch, is_new = m.block_state[slot, EPOCH], NEW_ATOMIC if is_atomic else 0
    if not is_write or is_atomic:
        for i in range(index, index + size):
            if not m.written[i]:
                note(m, UNWRITTEN, pc, pc, 0, thread, thread, index)
                break
    for i in range(index, index + size, 4):
        cell = m.shadow[i]
        if cell[LAUNCH] != m.launch:
            cell[:] = 0
            cell[LAUNCH] = m.launch
        was = cell[W_FLAGS]
        if is_unordered(m, slot, thread, cell[W_THREAD], cell[W_EPOCH]) and not (is_atomic and was & OLD_ATOMIC):
            flags = (was & OLD_ATOMIC) | is_new | ((CHANGES if changes else 0) if is_write else was & CHANGES)
            note(m, WRITE_AFTER_WRITE if is_write else READ_AFTER_WRITE, cell[W_PC], pc, flags, cell[W_THREAD], thread, i)
        if is_write:
            for k in (R_THREAD, Q_THREAD):
                if is_unordered(m, slot, thread, cell[k], cell[k + 1]):
                    note(m, WRITE_AFTER_READ, cell[k + 2], pc, is_new | (CHANGES if changes else 0), cell[k], thread, i)
            cell[W_THREAD], cell[W_EPOCH], cell[W_PC] = thread, epoch, pc
            cell[W_FLAGS] = (OLD_ATOMIC if is_atomic else 0) | (CHANGES if changes else 0)
        else:
            if cell[R_THREAD] != thread:
                cell[Q_THREAD], cell[Q_EPOCH], cell[Q_PC] = cell[R_THREAD], cell[R_EPOCH], cell[R_PC]
            cell[R_THREAD], cell[R_EPOCH], cell[R_PC] = thread, epoch, pc


@compiled
def count(m, slot, argument, index, kind, thread):
    """Count an access of an argument, READ or WRITTEN: once per warp and sector, unless ``recent`` has dropped the sector."""
    threads = m.block[0] * m.block[1] * m.block[2]
    warp = slot * ((threads + 31) // 32) + (thread - 1) % threads // 32
    sector = index // SECTOR
    if m.recent[warp, argument, kind, sector % RECENT] != sector:
        m.recent[warp, argument, kind, sector % RECENT] = sector
        m.traffic[argument, kind] += 1
    if m.touched[sector, kind] != m.launch:
        m.touched[sector, kind] = m.launch
        m.traffic[argument, DISTINCT_READ + kind] += 1


@compiled
def get(m, index, size):
    """Return the unsigned value at an index."""
    if size == 8:
        return np.int64(m.longs[index >> 3])
    if size == 4:
        return np.int64(m.words[index >> 2])
    if size == 2:
        return np.int64(m.halves[index >> 1])
    return np.int64(m.bytes[index])


@compiled
def put(m, index, size, value):
    if size == 8:
        m.longs[index >> 3] = np.uint64(value)
    elif size == 4:
        m.words[index >> 2] = np.uint32(value)
    elif size == 2:
        m.halves[index >> 1] = np.uint16(value)
    else:
        m.bytes[index] = np.uint8(value)
    m.written[index : index + size] = True
