"""Which items make which batch: a pure function of (seed, epoch, world size).

``StepSchedule`` is all that loaders, worker tasks and bulks on a GPU ask of a schedule: for each step the items of this rank's batch, and the address
that its random numbers are made from. A batch depends on nothing else, so any process can make it, at any time.

``Schedule`` shuffles the seeds of a split and shards them across ranks. Every rank makes the same number of steps and every seed of an epoch is in
exactly one batch of one rank, so that no rank can wait in an all-reduce for another that has run out of data, and no metric counts a node twice.
Others subclass ``StepSchedule``: the pipeline cuts each batch into chunks, and loaders of other libraries give the items of one step after another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from hoptrain.engine.arrays import Array, is_integer
from hoptrain.engine.errors import InputError
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.shuffle import permutation
from hoptrain.kernels.shared.philox import MAX_BATCH, MAX_EPOCH


class Address(NamedTuple):
    """What all random numbers of a batch are made from.

    Attributes:
        seed: the user's seed, in [0, 2**64).
        epoch: in [0, 2**20).
        batch: the batch's number within the epoch, over all ranks, in [0, 2**32).
    """

    seed: int
    epoch: int
    batch: int

    def at_hop(self, hop: int) -> HopAddress:
        """As the kernels take it."""
        return HopAddress(np.uint64(self.seed), np.uint64(self.epoch), np.uint64(self.batch), np.uint64(hop))


class StepSchedule(Protocol):
    """Items and random numbers of this rank's batches, step by step; the classes that implement it inherit from it."""

    __slots__ = ()

    @property
    def seed(self) -> int:
        """The user's seed, in [0, 2**64)."""

    @property
    def rank(self) -> int:
        """This rank, in [0, world_size)."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    @property
    def num_steps(self) -> int:
        """Steps of an epoch, the same on every rank."""

    def batch_items(self, epoch: int, step: int) -> Array:
        """Return the items (B,) of this rank's batch at a step."""

    def num_step_items(self, step: int) -> int:
        """Return how many items all ranks together have at a step."""

    def batch_number(self, step: int) -> int:
        """Return the batch's number within the epoch, over all ranks. A rank's numbers follow one another."""
        return self.rank * self.num_steps + step

    def address(self, epoch: int, step: int) -> Address:
        """Return the address of the random numbers of this rank's batch at a step."""
        return Address(self.seed, epoch, self.batch_number(step))

    def for_rank(self, rank: int) -> StepSchedule:
        """Return the schedule of another rank.

        Raises:
            InputError: this process does not know the batches of others.
        """
        raise InputError(f"{type(self).__name__}: rank {self.rank} does not know the batches of rank {rank}; use a Schedule")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Schedule(StepSchedule):
    """Batches of items for one of ``world_size`` ranks.

    A step takes ``world_size * batch_size`` seeds of the epoch's order and gives each rank its share. What is left for the last step is
    shared out evenly; where that would leave a rank with nothing, the step before takes it (one seed more than ``batch_size`` for some).

    Attributes:
        items: (N,) ids of what is dealt out: the nodes of a split, or what ``Sampler.items`` says.
        batch_size: items per rank and step.
        rank: this rank, in [0, world_size).
        world_size: number of ranks.
        shuffle: a new order each epoch, else the order of ``items``.
        seed: the user's seed, in [0, 2**64).
    """

    items: Array
    batch_size: int
    rank: int = 0
    world_size: int = 1
    shuffle: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not is_integer(type(self.batch_size)) or self.batch_size < 1:
            raise InputError(f"batch_size is {self.batch_size}: a batch has a whole number of seeds, at least one; give 1 or more")
        if not 0 <= self.rank < self.world_size:
            raise InputError(f"rank {self.rank} of {self.world_size}: ranks are 0 to world_size - 1; check RANK and WORLD_SIZE")
        if not is_integer(type(self.seed)) or not 0 <= self.seed < 1 << 64:
            raise InputError(f"seed is {self.seed!r}: seeds are 64-bit; give a number from 0 to 2**64 - 1")
        batches = -(-len(self.items) // self.batch_size)
        if batches < self.world_size:
            raise InputError(
                f"{self.world_size} ranks for {batches} batches ({len(self.items):,} seeds in batches of {self.batch_size}): every rank needs "
                f"one; use at most {batches} devices or a batch size of at most {max(1, len(self.items) // self.world_size)}"
            )
        if batches >= MAX_BATCH:
            raise InputError(f"{batches:,} batches in an epoch: batch numbers have 32 bits; use a larger batch_size than {self.batch_size}")

    @property
    def num_steps(self) -> int:
        """Steps of an epoch, the same on every rank."""
        full, rest = divmod(len(self.items), self.world_size * self.batch_size)
        return full + (rest >= self.world_size or full == 0)

    def batch_items(self, epoch: int, step: int) -> Array:
        """The items (B,) of this rank's batch at a step; B is ``batch_size`` but for the last step."""
        begin, end = self._step_bounds(step)
        share, extra = divmod(end - begin, self.world_size)
        begin += self.rank * share + min(self.rank, extra)
        end = begin + share + (self.rank < extra)
        if not self.shuffle:
            return self.items[begin:end]
        return self.items[_epoch_order(len(self.items), self.seed, epoch)[begin:end]]

    def for_rank(self, rank: int) -> Schedule:
        """Return the schedule of another rank, of the same items."""
        return replace(self, rank=rank)

    def num_step_items(self, step: int) -> int:
        """How many items all ranks together have at a step."""
        begin, end = self._step_bounds(step)
        return end - begin

    def _step_bounds(self, step: int) -> tuple[int, int]:
        if not 0 <= step < self.num_steps:
            raise InputError(f"step {step} of an epoch of {self.num_steps} steps: steps are 0 to {self.num_steps - 1}")
        size = self.world_size * self.batch_size
        return step * size, len(self.items) if step == self.num_steps - 1 else (step + 1) * size


@lru_cache(maxsize=2)
def _epoch_order(num_items: int, seed: int, epoch: int) -> Array:
    """The order of an epoch; the last two are kept, since every step of an epoch asks for it."""
    if not 0 <= epoch < MAX_EPOCH:
        raise InputError(f"epoch {epoch}: epochs have 20 bits in a random number's address; keep below {MAX_EPOCH:,}")
    order: Array = permutation(num_items, np.uint64(seed), epoch)
    order.flags.writeable = False
    return order


def rows_per_rank(num_rows: int, num_ranks: int) -> int:
    """Return how many rows each rank has where each has a contiguous run of them; the last ranks have fewer, or none."""
    return -(-num_rows // num_ranks)
