"""Entry point of a worker process, which makes the batches of its steps in order and writes each into a free slot of its ring.

``hoptrain.engine.queue.worker_process`` starts it as a new interpreter. It imports NumPy and Numba, never torch. When the trainer ends in any way, the
kernel ends the worker.
"""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import os
import pickle
import select
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
from hoptrain.engine.queue.ring import Allocate, Slot, Spec, carve, total_bytes

_MAX_TEXT = 8000  # a message below 16 KiB enters the socket whole, even if the process is killed


class Task(Protocol):
    """The work of worker processes; pickled once and sent to each of them."""

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> Any:
        """Make the batch of a step in arrays from ``allocate``, which must be called once, and return its header: small values other than arrays."""
        ...


def main() -> None:
    """Run the worker; ``argv`` has the bytes to reserve for a batch, and the descriptors of socket, lifeline, task, stack and slots."""
    batch_bytes, sock, lifeline, job, stack, *slots = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trainer handles Ctrl-C, and ends this process by closing the socket
    _die_with(lifeline)
    faulthandler.register(signal.SIGUSR1, file=stack)  # the trainer requests the stack by this signal
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the trainer is gone or has closed the pool
        _serve(Connection(sock), job, [Slot(fd) for fd in slots], batch_bytes)
    # Mapped arrays may still be referenced, and the interpreter's orderly shutdown has nothing to do here.
    os._exit(0)


def _die_with(lifeline: int) -> None:
    """Have the kernel kill this process when the trainer's end of a pipe is closed, even in compiled code or while it is stopped.

    The signal goes to the whole process group, which this process leads, so it also ends processes that a sampler started.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    ended = select.poll()
    ended.register(lifeline, 0)
    if ended.poll(0):  # the pipe was closed before this process was set as the receiver of the signal
        os._exit(0)


def _serve(connection: Connection[Any, Any], job: int, slots: Sequence[Slot], batch_bytes: int) -> None:
    """Make batches until the socket is closed.

    Received: ``("run", generation, epoch, steps)`` starts a run and drops the previous run; ``("extend", generation, stop)`` adds steps to it;
    ``("free", slot)`` returns a slot.
    Sent: ``("ready", -1, -1)``, ``("batch", generation, step, slot, specs, facts)`` and ``("error", generation, step, kind, text)``.
    """
    try:
        for slot in slots:
            slot.writable(batch_bytes)
        # safe to unpickle: the parent process wrote it, in anonymous memory
        task: Task = pickle.loads(os.pread(job, os.fstat(job).st_size, 0))
        gc.freeze()  # imported objects are never garbage, so the collector need not visit them
        gc.enable()
        connection.send(("ready", -1, -1))
    except Exception as error:
        connection.send(_failure(-1, -1, error))
        return
    free = deque[int]()
    generation, epoch, steps = -1, 0, range(0)
    arrivals = select.poll()  # Connection.poll makes a selector at each call
    arrivals.register(connection, select.POLLIN)
    while True:
        while not steps or not free or arrivals.poll(0):
            message = connection.recv()
            if message[0] == "free":
                free.append(message[1])
            elif message[0] == "extend":
                steps = range(steps.start, message[2], steps.step) if message[1] == generation else steps
            else:
                _, generation, epoch, steps = message
        step, steps = steps[0], steps[1:]
        place = free.popleft()
        try:
            notice: tuple[Any, ...] = ("batch", generation, step, place, *_make(task, epoch, step, slots[place]))
        except Exception as error:
            notice = _failure(generation, step, error)
            free.append(place)
            generation, steps = -1, range(0)  # no further steps after an error, even if steps are appended
        connection.send(notice)


def _make(task: Task, epoch: int, step: int, slot: Slot) -> tuple[list[Spec], Any]:
    written: list[Spec] = []

    def allocate(specs: Sequence[Spec]) -> dict[str, Array]:
        written.extend(specs)
        return carve(slot.writable(total_bytes(specs)), specs)

    facts = task.make_batch(epoch, step, allocate)
    return written, facts


def _failure(generation: int, step: int, error: Exception) -> tuple[str, int, int, str, str]:
    if isinstance(error, InputError):
        return "error", generation, step, "input", str(error)
    return "error", generation, step, "failure", "".join(traceback.format_exception(error)).rstrip()[-_MAX_TEXT:]
