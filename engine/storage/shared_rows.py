"""The cache of rows that the processes of a machine share: one of them fills it, sampler processes read it, trainers say how far they are.

It is memory without a name, which others of this user find in /proc of the process that made it, and goes with the last process that maps it.
Nothing in it is locked, since every number has one writer:

* ``ready``, by the filler: the last step whose rows are all there, of all tables.
* ``taken`` and ``until``, by each rank's trainer: the last step whose batch it has, and the last one that it will ask for. A slot is written again only after
  every rank has taken the last step that may use its old row (``RowPlan.make_room``), so a reader's rows stay until its trainer has the batch, whatever
  becomes of the reader. Nothing is read beyond ``until``.
* ``slot_of``, ``row_of`` and the rows, by the filler: where a row will be, the row, then what is in the slot, and ``ready`` at last. A row gets another place
  only when no step in flight uses it.

A step is named by its tag: the number of the run (one for each iteration of the loader, the same on all ranks) above 32 bits, and the step plus
one. Tags grow, so waiting for one ends also where its run was left early. Who waits, waits for earlier steps: the filler until trainers have
taken what they were given, readers for the filler; so there is no circle.
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
_LINE = 8  # numbers to a cache line: trainers do not write to one another's
_RUN_BITS = 32
PLAN_BYTES_A_ROW, PLAN_BYTES_A_SLOT = 6, 4
"""What a ``RowPlan`` keeps for each row of the table, and for each slot beside its row's number."""
FORESEEN_SHARE = 16
"""A part of this many is for the accesses that are foreseen."""


def tag_of(run: int, step: int) -> int:
    """The tag of a step; of step -1 what is above all tags of the runs before."""
    return (run << _RUN_BITS) + step + 1


class CachedTable(NamedTuple):
    """The part of a cache that is for one table.

    Attributes:
        num_rows: V, of the table.
        row_bytes: bytes of a row.
        num_slots: N.
        num_bytes: what it was given, all that belongs to its slots included.
    """

    num_rows: int
    row_bytes: int
    num_slots: int
    num_bytes: int


class LocalFeatures(NamedTuple):
    """Rows of a table that take no slots, since this machine has them mapped.

    Attributes:
        rows: (n, ...) an array.
        place: (V,) of each row of the table its place.
        first: place of the first one of ``rows``; they follow one another.
        end: the place behind the last one.
    """

    rows: Array
    place: Array
    first: int
    end: int


class SharedRows:
    """Slots for rows of some tables; pickled it is where to find them.

    Attributes:
        path: of the memory, for processes of this user on this machine.
        tables: what there is for each of them; methods name a table by its number here.
        num_ranks: trainers.
    """

    def __init__(self, path: str, tables: Sequence[Sequence[int]], num_ranks: int) -> None:
        """State the layout; nothing is mapped yet."""
        self.path: str = path
        self.num_ranks: int = num_ranks
        self.tables: list[CachedTable] = [CachedTable(*table) for table in tables]

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedRows, (self.path, self.tables, self.num_ranks)

    @classmethod
    def make(cls, tables: Sequence[CachedTable], num_ranks: int) -> SharedRows:
        """New memory, which lives as long as the object and those who map it.

        Raises:
            InputError: there is too little.
        """
        made = cls("", tables, num_ranks)
        size, fd = total_bytes(made._layout()), anonymous_file("hoptrain-rows")
        weakref.finalize(made, os.close, fd)
        try:
            if size > (free := available_memory()):
                raise MemoryError(f"{free / 2**30:.2f} GiB are free")
            os.fchmod(fd, 0o600)
            reserve(fd, size).close()
        except (OSError, MemoryError) as error:
            raise InputError(
                f"the cache of rows needs {size / 2**30:.2f} GiB of memory ({error.__cause__ or error!s}): give a smaller memory, or auto"
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
        """(N, row_bytes) uint8, what is in the slots of a table."""
        return self.arrays[f"rows.{table}"]

    def slot_of(self, table: int) -> Array:
        """(V,) int32, where each row of a table was last planned to be; -1 for nowhere."""
        return self.arrays[f"slot_of.{table}"]

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """The parts, mapped when they are first used."""
        return carve(map_shared(self.path), self._layout())

    @property
    def ready(self) -> int:
        """The tag of the last step whose rows are there; 0 before the first."""
        return int(self.arrays["ready"][0])

    def clear(self, table: int, slots: Array) -> None:
        """The filler's: other rows are about to be read into slots (M,)."""
        self.arrays[f"row_of.{table}"][slots] = -1

    def put(self, table: int, rows: Array, slots: Array) -> None:
        """The filler's: rows (M,) have been read into their slots."""
        self.arrays[f"row_of.{table}"][slots] = rows

    def publish(self, tag: int) -> None:
        """The filler's: the rows of a step are there, of all tables."""
        self.arrays["ready"][0] = tag

    def begin(self, rank: int, run: int, steps: range) -> None:
        """A trainer's: it begins a run of some steps, and needs nothing of those before."""
        self.arrays["until"][rank, 0] = tag_of(run, steps.stop - 1)
        self.arrays["taken"][rank, 0] = tag_of(run, -1)

    def take(self, rank: int, tag: int) -> None:
        """A trainer's: it has the batch of a step."""
        self.arrays["taken"][rank, 0] = tag

    def last_step(self, run: int) -> int:
        """The filler's: the last step that its trainer, and so all of them, will ask for in a run; -1 where that run is over."""
        its_run, step = divmod(int(self.arrays["until"][0, 0]), 1 << _RUN_BITS)
        return step - 1 if its_run == run else -1

    def wait_until_taken(self, tag: int) -> None:
        """The filler's: until all trainers have taken a step, however long they rest meanwhile. It ends with its trainer."""
        while self.arrays["taken"][:, 0].min() < tag:
            time.sleep(_LOOK_S)

    def wait_until_ready(self, rank: int, run: int, step: int, patience_s: float) -> None:
        """A reader's: until the rows of a step are there.

        Raises:
            WorkerError: its trainer has begun another run, or the filler has done nothing for too long.
        """
        tag, patience = tag_of(run, step), Deadline(patience_s)
        while self.ready < tag:
            if self.arrays["taken"][rank, 0] >= tag_of(run + 1, -1):
                raise WorkerError(
                    f"the rows of step {step} are no longer asked for: its loader was iterated anew; take a new iterator"
                    + explain_hint("iterator")
                )
            if patience.is_over():
                raise WorkerError(
                    f"the rows of step {step} have not come for {patience_s:g} s: the process that reads them has stopped; its messages "
                    "stand above, on the first rank of this machine" + explain_hint("reader")
                )
            time.sleep(_LOOK_S)

    def find(self, table: int, ids: Array, out: Array, own: LocalFeatures | None = None) -> None:
        """The slots (S,) int32 of rows ``ids`` (S,) of a step that is ready; of a machine's ``own``, which have none, -1 less their numbers there.

        Raises:
            InputError: one has none, since the step's sample is not the one that the plan was made for.
        """
        slots = self.slot_of(table), self.arrays[f"row_of.{table}"], out
        missing = (
            kernels.find_slots(ids, *slots) if own is None else kernels.find_slots_elsewhere(ids, own.place, own.first, own.end, *slots)
        )
        if missing >= 0:
            raise InputError(
                f"node {ids[missing]} is in a batch and not among the rows read for it: the sampler's batches are not the same "
                "whenever they are made; give prefetch_steps 0, or mend the sampler"
            )


def map_shared(path: str) -> Array:
    """What ``SharedRows`` and its like have at their path, (bytes,) uint8."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return np.frombuffer(mmap.mmap(file, 0), np.uint8)
    finally:
        os.close(file)


def shared_out(memory: int, tables: Mapping[str, tuple[int, int]], most: Mapping[str, int] | None = None) -> list[CachedTable]:
    """What each of some tables has of ``memory`` bytes: equal parts, but for those that need less for all of their rows, whose rest the others have.

    Where it is too little, tables have no slots (``hoptrain.engine.storage.budget``).

    Args:
        memory: bytes, all that belongs to slots included.
        tables: of each V and the bytes of a row, by its name.
        most: slots that a table needs at most; by default V.
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
    """How many slots fit ``memory`` bytes, all that belongs to them included; as many as rows at most, and none where not one does."""
    tables = bytes_for(0, num_rows, row_bytes)
    per_slot = bytes_for(1, num_rows, row_bytes) - tables
    return int(min(max((memory - memory // FORESEEN_SHARE - tables) // per_slot, 0), num_rows))


def bytes_for(num_slots: int, num_rows: int, row_bytes: int) -> int:
    """What ``num_slots`` slots take, for a table of ``num_rows`` rows, without the accesses that are foreseen."""
    tables = num_rows * (np.dtype(np.int32).itemsize + PLAN_BYTES_A_ROW)
    return tables + num_slots * (row_bytes + 2 * id_dtype(num_rows).itemsize + PLAN_BYTES_A_SLOT)
