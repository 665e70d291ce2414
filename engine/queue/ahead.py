"""Batches that are made in this process: each when it is asked for, or by a thread, while the one before is used."""

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


def run_inline(task: Task, epoch: int, steps: Iterable[int], memory: Recycled | None = None) -> Iterator[Batch]:
    """The batches of ``steps``, each when it is asked for; ``memory`` serves one run after another."""
    memory = memory or Recycled()
    for step in steps:
        yield _make_in(memory, task, epoch, step)  # nothing here holds the batch when the next one is made


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


def _make_in(memory: Recycled, task: Task, epoch: int, step: int) -> Batch:
    arrays: dict[str, Array] = {}

    def allocate(specs: Sequence[Spec]) -> dict[str, Array]:
        arrays.update(memory(specs))
        return arrays

    facts = task.make_batch(epoch, step, allocate)
    return arrays, facts
