"""``SharedRows``, the host feature cache in shared memory. One process per machine (the filler) fills it, workers read it, and trainers report progress.

The memory is anonymous: processes of the same user map it through /proc of the process that created it, and it is freed with its last mapping. No lock is
needed, since every number has a single writer:

* ``ready``, written by the filler: the last step whose rows are cached in all tables.
* ``taken`` and ``until``, written by each rank's trainer: the last step whose batch it has received, and the last one that it will request. A slot is
  overwritten only after every rank has taken the last step that may use its old row (``RowPlan.free_slots``). So the rows of a batch stay in the cache until
  its trainer has it, even if a worker dies. The filler reads nothing for steps after ``until``.
* ``slot_of``, ``row_of`` and the rows, written by the filler in this order: the planned slot of a row, the row itself, the slot's row index, and finally
  ``ready``. A row moves to another slot only when no step in flight uses it.

A step is identified by its tag. The lower 32 bits are the step plus one, the bits above the number of the run (one iteration over the loader, the same on
all ranks). Tags increase, so a wait also ends if its run is left early. The filler waits for trainers to take earlier steps, and readers wait for the
filler, so there is no deadlock.
"""

from __future__ import annotations

import mmap
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.deadline import Deadline
from hoptrain.engine.errors import InputError, WorkerError, explain_hint
from hoptrain.engine.machine import available_memory
from hoptrain.engine.queue.ring import Spec, carve, total_bytes
from hoptrain.engine.queue.shared_memory import anonymous_file, reserve
from hoptrain.kernels.cpu.storage import reads as kernels

_LOOK_S = 0.0005
_LINE = 8  # number of int64 values in a CPU cache line; each trainer writes to its own line
_RUN_BITS = 32
PLAN_BYTES_A_ROW, PLAN_BYTES_A_SLOT = 6, 4
"""Memory of a ``RowPlan`` in bytes, per row of the table and per slot (without the row index that each slot stores)."""
FORESEEN_SHARE = 12
"""The fraction 1 / ``FORESEEN_SHARE`` of the cache memory is for planned accesses of future steps."""


def tag_of(run: int, step: int) -> int:
    """Return the tag of a step: its number within the run (one iteration over a loader), plus an offset above all tags of earlier runs."""
    return (run << _RUN_BITS) + step + 1


class CachedTable(NamedTuple):
    """The sizes of a table and of its part of the cache.

    Attributes:
        num_rows: number of rows of the table, V.
        row_bytes: bytes of a row.
        num_slots: number of slots of the table, N.
        num_bytes: number of bytes of cache memory for the table, including the lookup tables and the plan.
    """

    num_rows: int
    row_bytes: int
    num_slots: int
    num_bytes: int


class LocalFeatures(NamedTuple):
    """Rows of a table that need no slots in the cache, since this machine maps them from its own partition.

    Attributes:
        rows: (n, ...) the rows, at consecutive positions.
        place: (V,) position of each row of the table in the order of partitions.
        first: position of the first of ``rows``.
        end: position after the last of ``rows``.
    """

    rows: Array
    place: Array
    first: int
    end: int


class SharedRows:
    """A cache in shared memory for rows of one or more tables. Pickling transfers only the path and the layout.

    Attributes:
        path: path of the memory, for processes of this user on this machine.
        tables: sizes of each table; methods identify a table by its index here.
        num_ranks: number of ranks (trainers) on this machine.
    """

    def __init__(self, path: str, tables: Sequence[Sequence[int]], num_ranks: int) -> None:
        """Store path and layout; the memory is mapped at first use."""
        self.path: str = path
        self.num_ranks: int = num_ranks
        self.tables: list[CachedTable] = [CachedTable(*table) for table in tables]

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedRows, (self.path, self.tables, self.num_ranks)

    @classmethod
    def make(cls, tables: Sequence[CachedTable], num_ranks: int) -> SharedRows:
        """Create a cache in new shared memory, which exists as long as this object or a mapping of the memory.

        Raises:
            InputError: the machine has too little memory.
        """
        made = cls("", tables, num_ranks)
        size, fd = total_bytes(made._layout()), anonymous_file("hoptrain-rows")
        weakref.finalize(made, os.close, fd)
        try:
            if size > (free := available_memory()):
                raise MemoryError(f"only {free / 2**30:.2f} GiB of memory are free")
            os.fchmod(fd, 0o600)
            reserve(fd, size).close()
        except (OSError, MemoryError) as error:
            raise InputError(
                f"the feature cache needs {size / 2**30:.2f} GiB of memory ({error.__cause__ or error!s}): give a smaller feature_cache, or auto"
            ) from error
        made.path = f"/proc/{os.getpid()}/fd/{fd}"
        return made

    def _layout(self) -> list[Spec]:
        specs: list[Spec] = [("ready", np.dtype(np.int64), (_LINE,))]
        specs += [(name, np.dtype(np.int64), (self.num_ranks, _LINE)) for name in ("taken", "until")]
        for i, table in enumerate(self.tables):
            specs.append((f"slot_of.{i}", np.dtype(np.int32), (table.num_rows,)))
            specs.append((f"row_of.{i}", id_dtype(table.num_rows), (table.num_slots,)))
            specs.append((f"rows.{i}", np.dtype(np.uint8), (table.num_slots, table.row_bytes)))
        return specs

    def rows(self, table: int) -> Array:
        """Return the slots of a table, (N, row_bytes) uint8."""
        return self.arrays[f"rows.{table}"]

    def slot_of(self, table: int) -> Array:
        """Return the planned slot of each row of a table, (V,) int32; -1 for none."""
        return self.arrays[f"slot_of.{table}"]

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """Arrays of the cache by name, mapped when they are first used."""
        return carve(map_shared(self.path), self._layout())

    @property
    def ready(self) -> int:
        """Tag of the last step whose rows are cached; 0 before the first."""
        return int(self.arrays["ready"][0])

    def clear(self, table: int, slots: Array) -> None:
        """Mark slots (M,) as empty before other rows are read into them; called by the filler."""
        self.arrays[f"row_of.{table}"][slots] = -1

    def put(self, table: int, rows: Array, slots: Array) -> None:
        """Record that rows (M,) were read into their slots; called by the filler."""
        self.arrays[f"row_of.{table}"][slots] = rows

    def publish(self, tag: int) -> None:
        """Publish that the rows of a step are cached in all tables; called by the filler."""
        self.arrays["ready"][0] = tag

    def begin(self, rank: int, run: int, steps: range) -> None:
        """Begin a run (one iteration over a loader) of some steps; earlier steps are no longer needed. Called by a trainer."""
        self.arrays["until"][rank, 0] = tag_of(run, steps.stop - 1)
        self.arrays["taken"][rank, 0] = tag_of(run, -1)

    def take(self, rank: int, tag: int) -> None:
        """Record that the trainer has the batch of a step; called by a trainer."""
        self.arrays["taken"][rank, 0] = tag

    def last_step(self, run: int) -> int:
        """Return the last step that the trainers will request in a run, or -1 if the run is over. Called by the process that fills the cache."""
        its_run, step = divmod(int(self.arrays["until"][0, 0]), 1 << _RUN_BITS)
        return step - 1 if its_run == run else -1

    def wait_until_taken(self, tag: int) -> None:
        """Wait until all trainers have taken a step. There is no timeout: only the filler calls this, and the filler ends with its trainer."""
        while self.arrays["taken"][:, 0].min() < tag:
            time.sleep(_LOOK_S)

    def wait_until_ready(self, rank: int, run: int, step: int, patience_s: float) -> None:
        """Wait until the rows of a step are cached; called by workers.

        Raises:
            WorkerError: the trainer has begun another run, or the rows were not cached within ``patience_s`` seconds.
        """
        tag, patience = tag_of(run, step), Deadline(patience_s)
        while self.ready < tag:
            if self.arrays["taken"][rank, 0] >= tag_of(run + 1, -1):
                raise WorkerError(
                    f"the rows of step {step} are no longer needed: its loader was iterated again; take a new iterator"
                    + explain_hint("iterator")
                )
            if patience.is_over():
                raise WorkerError(
                    f"the rows of step {step} were not read within {patience_s:g} s: the process that reads them has stopped; see its messages "
                    "above, on the first rank of this machine" + explain_hint("reader")
                )
            time.sleep(_LOOK_S)

    def find(self, table: int, ids: Array, out: Array, own: LocalFeatures | None = None) -> None:
        """Look up the slots (S,) int32 of rows ``ids`` (S,) of a step that is ready. Rows in ``own`` have no slots: row i of ``own`` becomes -1 - i.

        Raises:
            InputError: a row has no slot, since the batch differs from the batch that was planned.
        """
        slots = self.slot_of(table), self.arrays[f"row_of.{table}"], out
        missing = (
            kernels.find_slots(ids, *slots) if own is None else kernels.find_slots_elsewhere(ids, own.place, own.first, own.end, *slots)
        )
        if missing >= 0:
            raise InputError(
                f"node {ids[missing]} is in a batch and not among the rows read for it: the sampler must make the same batch "
                "whenever it is called; give prefetch_steps 0, or fix the sampler"
            )


def map_shared(path: str) -> Array:
    """Map the shared memory at a path as an array of bytes, uint8."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return np.frombuffer(mmap.mmap(file, 0), np.uint8)
    finally:
        os.close(file)


def shared_out(memory: int, tables: Mapping[str, tuple[int, int]], most: Mapping[str, int] | None = None) -> list[CachedTable]:
    """Divide ``feature_cache`` bytes equally among tables; if a table needs less for all of its rows, the rest is divided among the other tables.

    If there is too little memory, tables have no slots; ``hoptrain.engine.storage.budget`` reports that.

    Args:
        memory: size of the cache in bytes, with its lookup tables and plans.
        tables: number of rows V and bytes of a row, by table name.
        most: maximum number of slots that a table can use, by name; by default V.
    """
    found, left = {}, memory
    most = {name: num_rows for name, (num_rows, _) in tables.items()} | dict(most or {})
    for number, name in enumerate(sorted(tables, key=lambda name: bytes_for(most[name], *tables[name]))):
        num_rows, row_bytes = tables[name]
        part = left // (len(tables) - number)
        slots = min(slots_for(part, num_rows, row_bytes), most[name])
        used = min(part, bytes_for(max(slots, 1), num_rows, row_bytes) * FORESEEN_SHARE // (FORESEEN_SHARE - 1))
        found[name], left = CachedTable(num_rows, row_bytes, slots, used), left - used
    return [found[name] for name in tables]


def slots_for(memory: int, num_rows: int, row_bytes: int) -> int:
    """Return how many slots fit into ``feature_cache`` bytes with their lookup tables and plans; at most ``num_rows``, 0 if not even one fits."""
    tables = bytes_for(0, num_rows, row_bytes)
    per_slot = bytes_for(1, num_rows, row_bytes) - tables
    return int(min(max((memory - memory // FORESEEN_SHARE - tables) // per_slot, 0), num_rows))


def bytes_for(num_slots: int, num_rows: int, row_bytes: int) -> int:
    """Return the bytes of ``num_slots`` slots for a table of ``num_rows`` rows, without the accesses of future steps."""
    tables = num_rows * (np.dtype(np.int32).itemsize + PLAN_BYTES_A_ROW)
    return tables + num_slots * (row_bytes + 2 * id_dtype(num_rows).itemsize + PLAN_BYTES_A_SLOT)
