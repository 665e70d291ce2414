"""``EpochLoader``, the base class of all loaders: iteration over epochs, and resuming in the middle of one."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from hoptrain.engine.schedule import StepSchedule
from hoptrain.samplers.batch.transfer import release_copied
from hoptrain.samplers.loader.maker import BatchMaker


class _Sampled(Protocol):
    @property
    def num_edges(self) -> int:
        """Number of sampled edges."""


@runtime_checkable
class Timed(Protocol):
    """A batch that records when and by which process it was made; see ``SampledBatch``."""

    epoch: int
    batch: int
    pid: int
    made_at: float
    sample_s: float
    gather_s: float


SomeBatch = TypeVar("SomeBatch", bound=_Sampled)


class EpochLoader(ABC, Generic[SomeBatch]):
    """A loader that iterates over the mini-batches of an epoch; each iteration takes the next epoch.

    The batches are bit-identical with any number of workers. Workers start once, with the first epoch. They end with ``close()``, at the end of a
    ``with`` statement, or with this process, however it ends.

    Attributes:
        num_workers: number of sampler processes; 0 samples in this process.
        wait_s: seconds spent so far waiting for batches, or with 0 workers making them.
        num_sampled_edges: number of edges of all batches delivered so far.
        last_wait: start and end of the wait for the last batch, by ``time.perf_counter``.
        on_batch: function that is called just before each batch is delivered.
        schedule: the schedule that determines the items and the address of each batch.
        repeats: True if every epoch has the batches of epoch 0, for example to check that a model can overfit them.
    """

    def __init__(self, schedule: StepSchedule, num_workers: int) -> None:
        """Set the position to the start of the first epoch."""
        self.num_workers = num_workers
        self.wait_s: float = 0.0
        self.num_sampled_edges: int = 0
        self.last_wait: tuple[float, float] = (0.0, 0.0)
        self.on_batch: Callable[[], None] | None = None
        self.schedule = schedule
        self._maker: BatchMaker | None = None
        self._start = (0, 0)  # epoch and step at which the next iteration begins
        self._position = (0, 0)  # epoch and step of the next batch, for state_dict()
        self.repeats = False
        self._iteration = 0

    @abstractmethod
    def _run(self, epoch: int, steps: range) -> Iterator[SomeBatch]:
        """Return the batches of some steps."""

    def __len__(self) -> int:
        """Return the number of steps of an epoch, the same on every rank."""
        return self.schedule.num_steps

    def __iter__(self) -> Iterator[SomeBatch]:
        """Yield the rest of the epoch that ``load_state_dict`` resumed, or else the next epoch.

        The epoch counts as begun when its first batch is requested, because Lightning also calls ``iter()`` only to test whether it works.
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
            del batch  # frees the batch's queue slot before the wait for the next batch

    @property
    def num_ready(self) -> int:
        """Number of finished batches that waited in the queue when the last batch was taken; 0 without workers."""
        return 0 if self._maker is None else self._maker.num_ready

    def pids(self) -> list[int]:
        """Return the process ids of the current workers, from the first batch until ``close()``; otherwise an empty list."""
        return [] if self._maker is None else self._maker.pids()

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch to iterate over, from its first step, or from the step at which ``load_state_dict`` resumed."""
        if self._start[0] != epoch:
            self._start = self._position = (epoch, 0)

    @property
    def batch_sampler(self) -> _EpochSetter:
        """An object whose ``sampler`` is this loader, because Lightning calls ``set_epoch`` there."""
        return _EpochSetter(self)

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and step of the next batch. A loader with any number of workers can resume from them."""
        return {"epoch": self._position[0], "step": self._position[1]}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume at the batch that a ``state_dict`` describes."""
        self._start = self._position = (state["epoch"], state["step"])

    def __enter__(self) -> Self:
        """Return the loader. Its workers end with the ``with`` statement."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; the next iteration starts new ones."""
        if self._maker is not None:
            self._maker.close()


class _EpochSetter(NamedTuple):
    sampler: EpochLoader[Any]
