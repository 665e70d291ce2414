"""Batches that are made in this process: each when it is asked for, some at once, or by a thread, while the one before is used."""

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

Made = TypeVar("Made")
Batch = tuple[dict[str, Array], Any]
"""Arrays by name, and what the task returned beside them."""


def make_in(memory: Recycled, task: Task, epoch: int, step: int) -> Batch:
    """Make the batch of a step in this process, in arrays of ``feature_cache``."""
    arrays: dict[str, Array] = {}

    def allocate(specs: Sequence[Spec]) -> dict[str, Array]:
        arrays.update(memory(specs))
        return arrays

    facts = task.make_batch(epoch, step, allocate)
    return arrays, facts


def run_inline(task: Task, epoch: int, steps: Iterable[int], memory: Recycled | None = None) -> Iterator[Batch]:
    """The batches of ``steps``, each when it is asked for; ``memory`` serves one run after another."""
    memory = memory or Recycled()
    for step in steps:
        yield make_in(memory, task, epoch, step)  # nothing here holds the batch when the next one is made


def run_together(
    task: Task,
    tasks: Sequence[Task],
    run: Callable[[Iterable[Callable[[], None]]], None],
    epoch: int,
    steps: range,
    memory: Recycled,
    room: int,
) -> Iterator[Batch]:
    """As ``run_inline``, but who asks for a batch waits for some: each is made by a thread of its own, which spares them handing work to and fro.

    Nothing is made while the consumer has a batch. What goes wrong is raised where its batch is asked for.

    Args:
        task: makes a batch alone: the very first one, which tells how large they are, one that is left over, and all where there is no room.
        tasks: make the same batches, with threads and memory of their own.
        run: runs functions at the same time, one in this thread, until all have ended.
        epoch: as of ``run_inline``.
        steps: likewise.
        memory: likewise; asked by several threads.
        room: bytes that as many batches as there are ``tasks`` may have.
    """
    while steps:
        number = min(len(tasks), len(steps)) if 0 < memory.largest * len(tasks) <= room else 1
        if number == 1:
            yield make_in(memory, task, epoch, steps[0])
        else:
            made = deque[Future[Batch]](Future() for _ in range(number))
            run([partial(_fill, *one, memory, epoch) for one in zip(made, tasks, steps, strict=False)])
            while made:
                yield made.popleft().result()
        steps = steps[number:]


def run_ahead(make: Callable[[int], Made], steps: Iterable[int], state: Callable[[], object] = tuple) -> Generator[Made]:
    """What ``make`` makes of each of ``steps``: a thread makes the next one while the consumer has this one.

    When the iterator ends, is closed or dropped, nothing is under way any more; that waits for a batch that is being made. What goes wrong in the
    thread is raised where its batch is asked for.

    Args:
        make: makes the batch of a step; nobody else uses what it works with meanwhile. It begins with the next batch but one when the next one is asked for.
        steps: asked here, and not in the thread, for one step more than there are batches delivered.
        state: of what ``make`` reads. A batch during which that changed, or after, is made again.

    Raises:
        WorkerError: a fork of the process asks for a batch: threads are not forked.
    """
    owner = os.getpid()
    under_way = deque[tuple[Future[Made], Callable[[], Made], object]]()
    with ThreadPoolExecutor(1, thread_name_prefix="hoptrain-ahead") as thread:
        for step in steps:
            make_one = partial(make, step)
            under_way.append((thread.submit(make_one), make_one, state()))
            if len(under_way) > 1:
                yield _taken(thread, state, owner, *under_way.popleft())
        while under_way:
            yield _taken(thread, state, owner, *under_way.popleft())


def _taken(
    thread: ThreadPoolExecutor, state: Callable[[], object], owner: int, made: Future[Made], make: Callable[[], Made], seen: object
) -> Made:
    if os.getpid() != owner:
        raise WorkerError("a batch was asked of an iterator that another process began, of which this one is a fork: take a new iterator")
    batch = made.result()
    return batch if state() == seen else thread.submit(make).result()


def _fill(made: Future[Batch], task: Task, step: int, memory: Recycled, epoch: int) -> None:
    try:
        made.set_result(make_in(memory, task, epoch, step))
    except Exception as error:
        made.set_exception(error)
