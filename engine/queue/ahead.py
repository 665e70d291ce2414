"""Ways to make batches in this process: on demand, several at once by threads, or by a thread while the consumer uses the batch before."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import WorkerError
from hoptrain.engine.queue.ring import Recycled, Spec
from hoptrain.engine.queue.worker import Task

Result = TypeVar("Result")
Batch = tuple[dict[str, Array], Any]
"""Type of a batch: its arrays by name, and the value that the task returned with them."""


def make_in(memory: Recycled, task: Task, epoch: int, step: int) -> Batch:
    """Make the batch of a step in this process, in arrays that ``memory`` allocates."""
    arrays: dict[str, Array] = {}

    def allocate(specs: Sequence[Spec]) -> dict[str, Array]:
        arrays.update(memory(specs))
        return arrays

    facts = task.make_batch(epoch, step, allocate)
    return arrays, facts


def run_inline(task: Task, epoch: int, steps: Iterable[int], memory: Recycled | None = None) -> Iterator[Batch]:
    """Yield the batches of ``steps``, each made when the consumer requests it. Several calls may use the same ``memory``."""
    memory = memory or Recycled()
    for step in steps:
        yield make_in(memory, task, epoch, step)  # no reference to the batch is left here when the next one is made


def run_together(
    task: Task,
    tasks: Sequence[Task],
    run: Callable[[Iterable[Callable[[], None]]], None],
    epoch: int,
    steps: range,
    memory: Recycled,
    capacity: int,
) -> Iterator[Batch]:
    """Yield the batches of ``steps``. When the consumer requests a batch, several threads make one batch each.

    Each thread makes whole batches, so threads need not share the work of a batch. No batch is made while the consumer uses a batch. An exception is raised
    when its batch is requested.

    Args:
        task: task that makes batches in this thread: the first batch, whose size is then known; the last batch of an odd number; all batches if they exceed
            ``capacity``.
        tasks: one task for each thread; they make the same batches with scratch memory of their own.
        run: function that runs functions at the same time, one of them in this thread, until all have ended.
        epoch: epoch of the batches.
        steps: steps whose batches are made.
        memory: memory for the batches; called by several threads.
        capacity: bytes that the batches made at once may have together.
    """
    while steps:
        number = min(len(tasks), len(steps)) if 0 < memory.largest * len(tasks) <= capacity else 1
        if number == 1:
            yield make_in(memory, task, epoch, steps[0])
        else:
            made = deque[Future[Batch]](Future() for _ in range(number))
            run([partial(_fill, *one, memory, epoch) for one in zip(made, tasks, steps, strict=False)])
            while made:
                yield made.popleft().result()
        steps = steps[number:]


def run_ahead(make: Callable[[int], Result], steps: Iterable[int], state: Callable[[], object] = tuple) -> Generator[Result]:
    """Yield the batches of ``steps``. A thread makes the next batch while the consumer uses the current one.

    When the iterator ends, is closed or is dropped, it waits for the batch that is being made. An exception of the thread is raised when its batch is
    requested.

    Args:
        make: function that makes the batch of a step, called when the consumer requests the previous batch. No other code may use its data meanwhile.
        steps: steps of the batches. They are iterated in this thread, one step ahead of the delivered batches.
        state: function that returns the version of the data that ``make`` reads. If it changed since a batch was started, the batch is made again.

    Raises:
        WorkerError: a fork of the process asks for a batch; threads are not forked.
    """
    owner = os.getpid()
    under_way = deque[tuple[Future[Result], Callable[[], Result], object]]()
    with ThreadPoolExecutor(1, thread_name_prefix="hoptrain-ahead") as thread:
        for step in steps:
            make_one = partial(make, step)
            under_way.append((thread.submit(make_one), make_one, state()))
            if len(under_way) > 1:
                yield _taken(thread, state, owner, *under_way.popleft())
        while under_way:
            yield _taken(thread, state, owner, *under_way.popleft())


def _taken(
    thread: ThreadPoolExecutor, state: Callable[[], object], owner: int, made: Future[Result], make: Callable[[], Result], seen: object
) -> Result:
    if os.getpid() != owner:
        raise WorkerError(
            "a batch was requested in a fork of the process that made the iterator: a fork lacks its parent's threads; take a new iterator in the fork"
        )
    batch = made.result()
    return batch if state() == seen else thread.submit(make).result()


def _fill(made: Future[Batch], task: Task, step: int, memory: Recycled, epoch: int) -> None:
    try:
        made.set_result(make_in(memory, task, epoch, step))
    except Exception as error:
        made.set_exception(error)
