"""The cache of rows that the processes of a machine share: one of them fills it, sampler processes read it, trainers say how far they are.

It is memory without a name, which others of this user find in /proc of the process that made it, and goes with the last process that maps it.
Nothing in it is locked, since every number has one writer:

* ``ready``, by the filler: the last step whose rows are all there.
* ``taken``, by each rank's trainer: the last step whose batch it has. A slot is written again only after every rank has taken the last
  step that may use its old row (``StepReads.after``), so a reader's rows stay until its trainer has the batch, whatever becomes of the reader.
* ``slot_of``, ``row_of`` and the rows, by the filler: the row first, then what is in the slot, then where the row is, and ``ready`` at last.

A step is named by its tag: the number of the run (one for each iteration of the loader, the same on all ranks) above 32 bits, and the step plus
one. Tags grow, so waiting for one ends also where its run was left early. Who waits, waits for earlier steps: the filler until trainers have
taken what they were given, readers for the filler; so there is no circle.
"""

from __future__ import annotations

import mmap
import os
import time
import weakref
from functools import cached_property
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.errors import InputError, WorkerError
from hoptrain.engine.machine import available_memory
from hoptrain.engine.patience import Patience
from hoptrain.engine.queue.ring import Spec, carve, total_bytes
from hoptrain.engine.queue.shared_memory import anonymous_file, reserve
from hoptrain.kernels.cpu.storage import reads as kernels

_LOOK_S = 0.0005
_LINE = 8  # numbers to a cache line: trainers do not write to one another's
_RUN_BITS = 32
PLAN_BYTES_A_ROW, PLAN_BYTES_A_SLOT = 6, 17
"""What a ``RowPlan`` keeps for each row of the table, and for each slot beside its row's number."""
FORESEEN_SHARE = 16
"""A part of this many is for the accesses that are foreseen."""


def tag_of(run: int, step: int) -> int:
    """The tag of a step; of step -1 what is above all tags of the runs before."""
    return (run << _RUN_BITS) + step + 1


class SharedRows:
    """N slots for rows of a table of V; pickled it is where to find it.

    Attributes:
        path: of the memory, for processes of this user on this machine.
        num_rows: V.
        num_slots: N.
        row_bytes: bytes of a row.
        num_ranks: trainers.
    """

    def __init__(self, path: str, num_rows: int, num_slots: int, row_bytes: int, num_ranks: int) -> None:
        """State the layout; nothing is mapped yet."""
        self.path, self.num_rows, self.num_slots, self.row_bytes, self.num_ranks = path, num_rows, num_slots, row_bytes, num_ranks

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedRows, (self.path, self.num_rows, self.num_slots, self.row_bytes, self.num_ranks)

    @classmethod
    def make(cls, num_rows: int, num_slots: int, row_bytes: int, num_ranks: int) -> SharedRows:
        """New memory, which lives as long as the object and those who map it.

        Raises:
            InputError: there is too little.
        """
        made = cls("", num_rows, num_slots, row_bytes, num_ranks)
        size, fd = total_bytes(made._layout()), anonymous_file("hoptrain-rows")
        weakref.finalize(made, os.close, fd)
        try:
            if size > (free := available_memory()):
                raise MemoryError(f"{free / 2**30:.2f} GiB are free")
            os.fchmod(fd, 0o600)
            reserve(fd, size).close()
        except (OSError, MemoryError) as error:
            raise InputError(
                f"the cache of rows needs {size / 2**30:.2f} GiB of memory ({error.__cause__ or error!s}): give a smaller memory"
            ) from error
        made.path = f"/proc/{os.getpid()}/fd/{fd}"
        return made

    def _layout(self) -> list[Spec]:
        return [
            ("ready", np.dtype(np.int64), (_LINE,)),
            ("taken", np.dtype(np.int64), (self.num_ranks, _LINE)),
            ("slot_of", np.dtype(np.int32), (self.num_rows,)),
            ("row_of", id_dtype(self.num_rows), (self.num_slots,)),
            ("rows", np.dtype(np.uint8), (self.num_slots, self.row_bytes)),
        ]

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """The parts, mapped when they are first used."""
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return carve(np.frombuffer(mmap.mmap(file, total_bytes(self._layout())), np.uint8), self._layout())
        finally:
            os.close(file)

    @property
    def ready(self) -> int:
        """The tag of the last step whose rows are there; 0 before the first."""
        return int(self.arrays["ready"][0])

    def clear(self, slots: Array) -> None:
        """The filler's: other rows are about to be read into slots (M,)."""
        self.arrays["row_of"][slots] = -1

    def publish(self, tag: int, rows: Array, slots: Array) -> None:
        """The filler's: the rows of a step are there, those (M,) that were read for it in their slots."""
        self.arrays["row_of"][slots] = rows
        self.arrays["slot_of"][rows] = slots
        self.arrays["ready"][0] = tag

    def take(self, rank: int, tag: int) -> None:
        """A trainer's: it has the batch of a step; by ``tag_of(run, -1)`` it has begun a run and needs nothing of those before."""
        self.arrays["taken"][rank, 0] = tag

    def wait_until_taken(self, tag: int) -> None:
        """The filler's: until all trainers have taken a step, however long they rest meanwhile. It ends with its trainer."""
        while self.arrays["taken"][:, 0].min() < tag:
            time.sleep(_LOOK_S)

    def wait_until_ready(self, rank: int, run: int, step: int, patience_s: float) -> None:
        """A reader's: until the rows of a step are there.

        Raises:
            WorkerError: its trainer has begun another run, or the filler has done nothing for too long.
        """
        tag, patience = tag_of(run, step), Patience(patience_s)
        while self.ready < tag:
            if self.arrays["taken"][rank, 0] >= tag_of(run + 1, -1):
                raise WorkerError(f"the rows of step {step} are no longer asked for: its loader was iterated anew; take a new iterator")
            if patience.is_over():
                raise WorkerError(
                    f"the rows of step {step} have not come for {patience_s:g} s: the process that reads them has stopped; its messages "
                    "stand above, on the first rank of this machine"
                )
            time.sleep(_LOOK_S)

    def find(self, ids: Array, out: Array) -> None:
        """The slots (S,) int32 of rows ``ids`` (S,) of a step that is ready.

        Raises:
            InputError: one has none, since the step's sample is not the one that the plan was made for.
        """
        missing = kernels.find_slots(ids, self.arrays["slot_of"], self.arrays["row_of"], out)
        if missing >= 0:
            raise InputError(
                f"vertex {ids[missing]} is in a batch and not among the rows read for it: the sampler's batches are not the same "
                "whenever they are made; give lookahead 0, or mend the sampler"
            )


def slots_for(memory: int, num_rows: int, row_bytes: int) -> int:
    """How many slots fit ``memory`` bytes, all that belongs to them included; twice as many as rows at most.

    Raises:
        InputError: none.
    """
    per_slot = row_bytes + 2 * id_dtype(num_rows).itemsize + PLAN_BYTES_A_SLOT
    tables = num_rows * (np.dtype(np.int32).itemsize + PLAN_BYTES_A_ROW)
    slots = (memory - memory // FORESEEN_SHARE - tables) // per_slot
    if slots < 1:
        raise InputError(
            f"memory is {memory:,} bytes: what tells where each of {num_rows:,} rows lies takes {tables:,}, and a row {row_bytes:,}; give more"
        )
    return int(min(slots, 2 * num_rows))
