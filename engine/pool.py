"""Worker processes and the delivery of their batches, in batch order.

Batch k of a run is made by worker k mod W, which writes it into a slot of its own ring and says so on its own socket. So there is one producer
and one consumer for everything, no lock is shared, and a slow worker delays its own batches only. Workers start once and serve every epoch.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError, WorkerError
from hoptrain.engine.ring import Lease, Slot, Spec, allocate_private, carve, total_bytes
from hoptrain.engine.shared_memory import anonymous_file, dumps
from hoptrain.engine.worker import Task

Batch = tuple[dict[str, Array], dict[str, Any]]
"""Arrays by name, and the facts that the task returned."""

_TICK_S = 0.2  # how often a wait looks for a dead process or a slot that another thread gave back
_CLOSE_S = 2.0  # how long an idle worker may take to end before it is killed


def run_inline(task: Task, epoch: int, steps: range) -> Iterator[Batch]:
    """The same batches without workers, in this process, each in memory of its own."""
    for step in steps:
        arrays: dict[str, Array] = {}

        def allocate(specs: Any, arrays: dict[str, Array] = arrays) -> dict[str, Array]:
            arrays.update(allocate_private(specs))
            return arrays

        facts = task.make_batch(epoch, step, allocate)
        yield arrays, facts


class WorkerPool:
    """``num_workers`` processes that run one task.

    A batch is delivered as views of its slot, and the slot returns to the worker when the last view is gone. A worker always keeps one slot:
    who holds on to many batches gets copies instead, so that nothing can block, not even ``list(loader)``.
    """

    def __init__(self, task: Task, num_workers: int, *, prefetch: int = 2, stall_timeout: float = 120.0) -> None:
        """Start the processes; they get ready while the caller goes on.

        Args:
            task: pickled once; its large arrays are shared, not copied.
            num_workers: how many processes, at least 1.
            prefetch: batches that a worker may have ready beyond the one in use.
            stall_timeout: seconds without a batch that is due, after which the run ends with an error.
        """
        self.stall_timeout = stall_timeout
        self._generation = -1
        job, descriptors = _pickle_task(task)
        try:
            self._workers = [_Worker(index, prefetch + 1, job, descriptors) for index in range(num_workers)]
        finally:
            for fd in descriptors:
                os.close(fd)
        self._finalizer = weakref.finalize(self, _close_workers, self._workers)

    def run(self, epoch: int, steps: range) -> Iterator[Batch]:
        """The batches of ``steps``, in order. A new run ends the one before, wherever it is.

        Raises:
            WorkerError: a worker failed, died, or made no progress for ``stall_timeout`` seconds.
            InputError: the task refused its input.
        """
        self._generation += 1
        for worker in self._workers:
            self._tell(worker, ("run", self._generation, epoch, list(steps[worker.index :: len(self._workers)])))
        return self._deliver(self._generation, steps)

    def close(self) -> None:
        """End the workers. May be called again, and at any time."""
        self._finalizer()

    def _deliver(self, generation: int, steps: range) -> Iterator[Batch]:
        for place, step in enumerate(steps):
            worker = self._workers[place % len(self._workers)]
            slot, specs, facts = self._receive(worker, generation, step)
            yield worker.lend(slot, specs), facts

    def _receive(self, worker: _Worker, generation: int, step: int) -> tuple[int, list[Spec], dict[str, Any]]:
        """The notice of a step; notices of runs that were broken off are dropped, and their slots go back."""
        deadline = time.monotonic() + self.stall_timeout
        while generation == self._generation and self._finalizer.alive:
            self._give_slots_back()
            message = worker.receive(_TICK_S, step)
            if message is None:
                if time.monotonic() > deadline:
                    raise WorkerError(
                        f"worker {worker.index} (pid {worker.process.pid}) is alive but has not made batch {step} for {self.stall_timeout:.0f} s: "
                        "look what it does with 'py-spy dump --pid', or raise stall_timeout"
                    )
            elif message[1] not in (generation, -1):
                if message[0] == "batch":
                    self._tell(worker, ("free", message[3]))
            elif message[0] == "error":
                raise _reported_error(worker, message)
            else:
                return message[3], message[4], message[5]
        raise WorkerError(
            f"batch {step} was asked of an iterator that is no longer valid: its loader was closed or iterated anew; take a new iterator"
        )

    def _give_slots_back(self) -> None:
        """To all workers, not only the one that is due: each goes on as soon as it can."""
        for worker in self._workers:
            for slot in worker.returned_slots():
                self._tell(worker, ("free", slot))

    def _tell(self, worker: _Worker, message: tuple[Any, ...]) -> None:
        # A worker that has died may have left the reason in its socket: the next receive finds it, or the death itself.
        with suppress(BrokenPipeError, ConnectionResetError):
            worker.connection.send(message)


class _Worker:
    """The trainer's side of one process: its socket, its slots, and which of them are lent out."""

    def __init__(self, index: int, num_slots: int, job: bytes, descriptors: list[int]) -> None:
        self.index = index
        self.slots = [Slot(anonymous_file(f"hoptrain-slot-{index}-{i}")) for i in range(num_slots)]
        self.num_lent = 0
        self._returned: deque[int] = deque()
        ours, theirs = socket.socketpair()
        slot_descriptors = [slot.fd for slot in self.slots]
        arguments = [str(number) for number in (index, theirs.fileno(), *slot_descriptors)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from hoptrain.engine.worker import main; main()", *arguments],
            pass_fds=[theirs.fileno(), *slot_descriptors, *descriptors],
            env=_worker_environment(),
            process_group=0,  # a Ctrl-C in the terminal goes to the trainer alone
        )
        theirs.close()
        self.connection: Connection[Any, Any] = Connection(ours.detach())
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(job)

    def lend(self, slot: int, specs: list[Spec]) -> dict[str, Array]:
        """The arrays of a slot: views that hold it, or copies where the worker would be left without any."""
        buffer = self.slots[slot].view(total_bytes(specs))
        if self.num_lent >= len(self.slots) - 1:
            self._returned.append(slot)
            self.num_lent += 1
            return {name: view.copy() for name, view in carve(buffer, specs).items()}
        self.num_lent += 1
        return carve(np.asarray(Lease(buffer, partial(self._returned.append, slot))), specs)

    def returned_slots(self) -> Iterator[int]:
        """Slots given back since the last call."""
        while self._returned:
            self.num_lent -= 1
            yield self._returned.popleft()

    def receive(self, timeout: float, step: int) -> Any:
        """The next message, or None after ``timeout`` seconds."""
        if wait([self.connection], timeout):
            with suppress(EOFError, ConnectionResetError):
                return self.connection.recv()
        elif self.process.poll() is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_CLOSE_S)
        code = self.process.poll()
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        raise WorkerError(
            f"worker {self.index} (pid {self.process.pid}) {how} before it had made batch {step}: its own messages stand above"
        )


def _pickle_task(task: Task) -> tuple[bytes, list[int]]:
    try:
        job, descriptors = dumps(task)
    except (AttributeError, TypeError) as error:  # what pickle raises for lambdas, local classes, open files
        raise InputError(
            f"the sampler cannot be sent to worker processes ({error}): define it at the top level of a module, or use num_workers=0"
        ) from error
    if b"__main__" in job:
        for fd in descriptors:
            os.close(fd)
        raise InputError(
            "the sampler is defined in the script that is run (__main__), which worker processes cannot import: "
            "move it to a module of its own, or use num_workers=0"
        )
    return job, descriptors


def _worker_environment() -> dict[str, str]:
    """The trainer's environment and import path. One thread each: the cores are shared out by processes, and no OpenMP starts unasked."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


def _reported_error(worker: _Worker, message: tuple[Any, ...]) -> Exception:
    _, _, step, kind, text = message
    if kind == "input":
        return InputError(text)
    where = "while it started" if step < 0 else f"at batch {step}"
    return WorkerError(f"worker {worker.index} failed {where}:\n{text}")


def _close_workers(workers: list[_Worker]) -> None:
    """Close every socket first, so that all end at once; kill what has not ended in time."""
    for worker in workers:
        worker.connection.close()
    deadline = time.monotonic() + _CLOSE_S
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        for slot in worker.slots:
            os.close(slot.fd)
