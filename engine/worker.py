"""A sampler process: takes the batch numbers it owns, in order, and writes each batch into a free slot of its ring.

Started by ``hoptrain.engine.pool`` as a fresh interpreter. It imports NumPy and Numba, never torch. Its only link is one socket: when the
trainer goes away, however that happens, the socket ends and so does the worker.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Protocol

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.ring import Allocate, Slot, Spec, carve, total_bytes


class Task(Protocol):
    """What workers do; pickled once and sent to each of them."""

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> dict[str, Any]:
        """Make the batch of a step in arrays from ``allocate`` (to be called once); returns small facts about it (no arrays)."""
        ...


def main() -> None:
    """Entry of the process: ``argv`` is the index, the socket's descriptor and the slots' descriptors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's; it ends us by closing the socket
    connection: Connection[Any, Any] = Connection(int(sys.argv[2]))
    slots = [Slot(int(fd)) for fd in sys.argv[3:]]
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the trainer is gone or has closed the pool
        _serve(connection, slots)
    # Mapped arrays may still be referenced; the interpreter's orderly shutdown has nothing left to do here.
    os._exit(0)


def _serve(connection: Connection[Any, Any], slots: Sequence[Slot]) -> None:
    """Work until the socket ends.

    Received: ``("run", generation, epoch, steps)`` starts a run and drops the one before; ``("free", slot)`` gives a slot back.
    Sent: ``("batch", generation, step, slot, specs, facts)`` and ``("error", generation, step, kind, text)``.
    """
    job = connection.recv_bytes()
    try:
        task: Task = pickle.loads(job)  # from our own parent, on a private socket
    except Exception as error:
        connection.send(_failure(-1, -1, error))
        return
    free = deque(range(len(slots)))
    generation, epoch, steps = -1, 0, deque[int]()
    while True:
        while not steps or not free or connection.poll(0):
            message = connection.recv()
            if message[0] == "free":
                free.append(message[1])
            else:
                _, generation, epoch, owned = message
                steps = deque(owned)
        step = steps.popleft()
        slot = free.popleft()
        try:
            notice: tuple[Any, ...] = ("batch", generation, step, slot, *_make(task, epoch, step, slots[slot]))
        except Exception as error:
            notice = _failure(generation, step, error)
            free.append(slot)
            steps.clear()
        connection.send(notice)


def _make(task: Task, epoch: int, step: int, slot: Slot) -> tuple[list[Spec], dict[str, Any]]:
    written: list[Spec] = []

    def allocate(specs: Sequence[Spec]) -> dict[str, Array]:
        written.extend(specs)
        return carve(slot.writable(total_bytes(specs)), specs)

    facts = task.make_batch(epoch, step, allocate)
    return written, facts


def _failure(generation: int, step: int, error: Exception) -> tuple[str, int, int, str, str]:
    if isinstance(error, InputError):
        return "error", generation, step, "input", str(error)
    return "error", generation, step, "failure", "".join(traceback.format_exception(error)).rstrip()
