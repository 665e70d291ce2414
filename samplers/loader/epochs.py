"""Going through epochs batch by batch, and on from the middle of one: what all loaders do."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from hoptrain.engine.machine import usable_cores
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.engine.schedule import StepSchedule
from hoptrain.samplers.batch.transfer import release_copied


class _Sampled(Protocol):
    @property
    def num_edges(self) -> int:
        """Sampled edges."""


@runtime_checkable
class Timed(Protocol):
    """A batch that tells where and when it was made; see ``SampledBatch``."""

    epoch: int
    batch: int
    pid: int
    made_at: float
    sample_s: float
    gather_s: float


SomeBatch = TypeVar("SomeBatch", bound=_Sampled)


class EpochLoader(ABC, Generic[SomeBatch]):
    """Iterates over the mini-batches of an epoch; each iteration takes the next epoch.

    The batches are the same bit for bit with any number of workers. Workers start with the first epoch, once, and end with ``close()``, with
    the ``with`` statement that the loader was entered by, or with this process, however it ends.

    Attributes:
        num_workers: sampler processes; 0 samples in this process.
        wait_s: seconds spent so far waiting for batches (with 0 workers: making them).
        num_sampled_edges: edges of all batches delivered so far.
        last_wait: begin and end of the wait for the last batch, by ``time.perf_counter``.
        on_batch: called just before each batch is delivered.
        schedule: what is in which batch.
        repeats: whether every epoch has the batches of epoch 0, to see whether a model can overfit them.
    """

    def __init__(self, schedule: StepSchedule, num_workers: int) -> None:
        """Begin before the first epoch."""
        self.num_workers = num_workers
        self.wait_s: float = 0.0
        self.num_sampled_edges: int = 0
        self.last_wait: tuple[float, float] = (0.0, 0.0)
        self.on_batch: Callable[[], None] | None = None
        self.schedule = schedule
        self._pool: WorkerPool | None = None
        self._start = (0, 0)  # epoch and step at which the next iteration begins
        self._position = (0, 0)  # epoch and step of the next batch: what state_dict() tells
        self.repeats = False
        self._iteration = 0

    @abstractmethod
    def _run(self, epoch: int, steps: range) -> Iterator[SomeBatch]:
        """The batches of some steps."""

    def __len__(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return self.schedule.num_steps

    def __iter__(self) -> Iterator[SomeBatch]:
        """The rest of the current epoch, if it was loaded by ``load_state_dict`` in its middle; else the next epoch.

        The epoch is taken when the first batch is asked for: Lightning calls ``iter()`` also to see whether that works.
        """
        epoch, first = self._start
        # An epoch that is left early counts as done: the next iterator moves on.
        self._start = (epoch + 1, 0)
        self._iteration += 1
        iteration = self._iteration
        batches = self._run(0 if self.repeats else epoch, range(first, len(self)))
        for step in range(first, len(self)):
            release_copied()
            begin = time.perf_counter()
            batch = next(batches)
            self.last_wait = (begin, time.perf_counter())
            self.wait_s += self.last_wait[1] - begin
            self.num_sampled_edges += batch.num_edges
            if iteration == self._iteration:
                self._position = (epoch, step + 1) if step + 1 < len(self) else (epoch + 1, 0)
            if self.on_batch is not None:
                self.on_batch()
            yield batch
            del batch  # so that the slot is free before the wait for the next one

    @property
    def num_ready(self) -> int:
        """Batches that lay ready behind the last one when it was taken; 0 without workers."""
        return 0 if self._pool is None else self._pool.num_ready()

    def pids(self) -> list[int]:
        """Process ids of the sampler processes as they are now: one for each worker, from the first batch until ``close()``; else none."""
        return [] if self._pool is None else self._pool.pids()

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of ``epoch``: from its beginning, or from the step in it that was loaded."""
        if self._start[0] != epoch:
            self._start = self._position = (epoch, 0)

    @property
    def batch_sampler(self) -> _EpochSetter:
        """Where Lightning looks for something that it can tell the epoch: this loader."""
        return _EpochSetter(self)

    def state_dict(self) -> dict[str, int]:
        """Where the next batch is: epoch and step. With it any number of workers continues the same sequence."""
        return {"epoch": self._position[0], "step": self._position[1]}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from ``state_dict``."""
        self._start = self._position = (state["epoch"], state["step"])

    def __enter__(self) -> Self:
        """The loader; its workers end with the ``with`` statement."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; the next iteration starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class _EpochSetter(NamedTuple):
    sampler: EpochLoader[Any]


def rank_and_world_size() -> tuple[int, int]:
    """torch.distributed's, if it runs in this process; else the variables that its launchers set; else one rank."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def threads_for(threads: int | None, num_workers: int, device: str) -> int:
    """The user's choice; else 1 for a worker or a device, and for this process, which waits meanwhile, its share of the cores."""
    if threads is not None:
        return threads
    if num_workers or device != "cpu":
        return 1
    ranks = os.environ.get("LOCAL_WORLD_SIZE") or rank_and_world_size()[1]
    return max(1, usable_cores() // int(ranks))
