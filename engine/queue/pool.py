"""``WorkerPool``: worker processes, and the delivery of their batches in order.

Worker k mod W makes batch k of a run, writes it into a slot of its own ring, and sends a message on its own socket. So each slot and socket has one
producer and one consumer, processes share no lock, and a slow worker delays only its own batches. Workers start once and serve all epochs.
"""

from __future__ import annotations

import logging
import os
import pickle
import weakref
from collections.abc import Callable, Iterator
from itertools import count, islice, takewhile
from typing import Any

from hoptrain.engine.arrays import Array
from hoptrain.engine.deadline import Deadline
from hoptrain.engine.errors import InputError, WorkerError, explain_hint
from hoptrain.engine.queue.ahead import Batch
from hoptrain.engine.queue.options import DEFAULTS, START_S, WorkerOptions
from hoptrain.engine.queue.preflight import check_files, check_memory, check_workers
from hoptrain.engine.queue.shared_memory import anonymous_file, dumps
from hoptrain.engine.queue.worker import Task
from hoptrain.engine.queue.worker_process import WorkerProcess, close_all

_log = logging.getLogger(__name__)

_TICK_S = 0.2  # seconds between checks for dead processes, and for slots that other threads returned
_CLOSE_S = 0.5  # seconds that a worker has to end by itself; killing it within a batch loses nothing


class WorkerPool:
    """A pool of processes that run one task.

    A batch is delivered as views of its slot, and the slot returns to the worker when the last view is gone. A worker always keeps one slot: a consumer
    that holds many batches gets copies instead, so that nothing can block, not even ``list(loader)``.

    A process that dies, or delivers no batch for ``WorkerOptions.timeout`` seconds, is replaced. Its successor makes the same missing batches, since a
    batch is a pure function of its number.

    Attributes:
        workers: the worker processes by index; ``workers[i].stack()`` returns the current Python stack of worker i.
    """

    def __init__(
        self,
        task: Task,
        num_workers: int,
        queue: WorkerOptions = DEFAULTS,
        *,
        batch_bytes: int = 0,
        on_map: Callable[[Array], None] | None = None,
    ) -> None:
        """Start the processes without waiting until they are ready.

        Args:
            task: task of all processes; pickled once, with its large arrays shared instead of copied.
            num_workers: number of processes, at least 1.
            queue: options of the processes and their queue.
            batch_bytes: approximate size of a batch, for which memory is reserved now. A larger batch enlarges its slot.
            on_map: called with each mapping of a slot in this process, (bytes,) uint8; for instance ``hoptrain.engine.device.pin_pages``.

        Raises:
            InputError: the task cannot be pickled; too many workers for the cores; too little memory or too few open files; ``buffer_dir`` cannot
                hold files.
            WorkerError: a process cannot be started.
        """
        self._queue = queue
        num_slots = queue.prefetch_factor + 1
        check_workers(num_workers)
        check_files(num_workers, num_slots)
        check_memory(num_workers, num_slots, batch_bytes, queue.buffer_dir)
        self._generation, self._stop = -1, 0
        job, descriptors = _pickle_task(task)
        files = [job, *descriptors]
        self.workers: list[WorkerProcess] = []
        self._finalizer = weakref.finalize(self, _close, os.getpid(), self.workers, files)
        try:
            for index in range(num_workers):
                self.workers.append(WorkerProcess(index, num_slots, batch_bytes, job, descriptors, on_map, queue.buffer_dir))
        except BaseException:
            self.close()
            raise

    def run(self, epoch: int, steps: range) -> Iterator[Batch]:
        """Return the batches of ``steps`` in order. Calling it again ends an unfinished iterator of an earlier call.

        Raises:
            WorkerError: the task failed, or a worker died or delivered nothing more often than ``max_restarts``.
            InputError: the task raised it.
        """
        self._generation, self._stop = self._generation + 1, steps.stop
        for worker in self.workers:
            worker.collect()
            worker.begin(self._generation, epoch, range(steps.start + worker.index, steps.stop, len(self.workers)))
        return self._deliver(self._generation, steps.start)

    def extend(self, stop: int) -> None:
        """Append steps up to ``stop``, exclusive, to the steps of the running iterator."""
        self._stop = stop
        for worker in self.workers:
            worker.extend(stop)

    def run_given(self, epoch: int, steps: Iterator[int], ahead: int) -> Iterator[Batch]:
        """Yield the batches of ``steps`` 0, 1, 2, ... The consumer's thread iterates ``steps``, at most ``ahead`` steps ahead of the delivered batches."""
        batches: Iterator[Batch] = iter(())
        stop = 0
        for step in count():
            begin, stop = stop, stop + sum(1 for _ in islice(steps, step + ahead - stop))
            if begin == 0:
                batches = self.run(epoch, range(stop))
            elif stop > begin:
                self.extend(stop)
            if step == stop:
                return
            yield next(batches)

    def close(self) -> None:
        """End the workers. May be called at any time, and repeatedly."""
        self._finalizer()

    def num_ready(self) -> int:
        """Return the number of batches that have arrived but were not delivered yet, at the time of the last wait."""
        return sum(worker.num_notices() for worker in self.workers)

    def pids(self) -> list[int]:
        """Return the process ids of the current workers."""
        return [worker.process.pid for worker in self.workers]

    def _deliver(self, generation: int, first: int) -> Iterator[Batch]:
        for step in takewhile(lambda step: step < self._stop or generation != self._generation, count(first)):
            worker = self.workers[(step - first) % len(self.workers)]
            slot, specs, facts = self._receive(worker, generation, step)
            yield worker.lend(slot, specs), facts

    def _receive(self, worker: WorkerProcess, generation: int, step: int) -> Any:
        """Wait for the batch of a step, and return its slot, specs and header."""
        patience = self._patience(worker)
        while generation == self._generation and self._finalizer.alive:
            state = worker.failures, worker.is_ready
            self._look_after_workers()
            if (worker.failures, worker.is_ready) != state:
                patience = self._patience(worker)
            notice = worker.notice()
            if notice is not None:
                return notice[1:]
            if worker.error() is not None:
                raise _reported_error(worker)
            if patience.is_over():
                self._replace_stuck(worker, step)
                patience = self._patience(worker)
            worker.wait(_TICK_S)
        raise WorkerError(
            f"batch {step} was requested of an iterator that is no longer valid: its loader was closed or iterated again; take a new iterator"
            + explain_hint("iterator")
        )

    def _look_after_workers(self) -> None:
        """Serve all workers, not only the worker whose batch is due, so that no worker has to wait for a slot or for its replacement."""
        for worker in self.workers:
            worker.free_returned_slots()
            is_alive = worker.is_alive()
            worker.collect()
            if not is_alive and worker.owes() and worker.error() is None:
                self._replace(worker, worker.how_it_ended())

    def _limit_s(self, worker: WorkerProcess) -> float:
        """Return the time limit of a worker in seconds, for a batch or for its start."""
        return self._queue.timeout if worker.is_ready else max(self._queue.timeout, START_S)

    def _patience(self, worker: WorkerProcess) -> Deadline:
        return Deadline(self._limit_s(worker))

    def _replace_stuck(self, worker: WorkerProcess, step: int) -> None:
        limit = f"{self._limit_s(worker):g} s"
        what = f"made batch {step} for {limit}" if worker.is_ready else f"started within {limit}"
        self._replace(worker, f"is alive but has not {what}; it was here:\n{worker.stack()}\n")

    def _replace(self, worker: WorkerProcess, what: str) -> None:
        worker.failures += 1
        name = f"worker {worker.index} (pid {worker.process.pid})"
        if worker.failures > self._queue.max_restarts:
            times = "1 time" if worker.failures == 1 else f"{worker.failures} times"
            raise WorkerError(
                f"{name} {what}, {times} in a row without a batch: its own messages are above; "
                "if the sampler fails, fix it; if it is slow, raise timeout" + explain_hint("workers")
            )
        _log.warning(
            "%s %s: replaced, and its batches are recomputed (restart %d of %d in a row)",
            name,
            what,
            worker.failures,
            self._queue.max_restarts,
        )
        worker.replace()


def _pickle_task(task: Task) -> tuple[int, list[int]]:
    """Return an anonymous file with the pickled task, and the descriptors of its shared arrays."""
    try:
        job, descriptors = dumps(task)
    except (AttributeError, TypeError, pickle.PicklingError) as error:  # locks, open files and sockets cannot be pickled
        raise InputError(
            f"the sampler cannot be sent to worker processes ({error}): it must have no open files, locks or threads; remove them, or use num_workers=0"
            + explain_hint("sending")
        ) from error
    file = anonymous_file("hoptrain-task")
    with open(file, "wb", closefd=False) as stream:
        stream.write(job)
    return file, descriptors


def _reported_error(worker: WorkerProcess) -> Exception:
    step, kind, text = worker.error() or (-1, "failure", "")
    if kind == "input":
        return InputError(text)
    where = "while it started" if step < 0 else f"at batch {step}"
    return WorkerError(f"worker {worker.index} failed {where}:\n{text}")


def _close(owner: int, workers: list[WorkerProcess], files: list[int]) -> None:
    if os.getpid() != owner:  # a fork of the trainer does not own the workers
        return
    close_all(workers, _CLOSE_S)
    for fd in files:
        os.close(fd)
