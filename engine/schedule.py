"""Schedules that assign items to batches, as a pure function of (seed, epoch, world size).

``StepSchedule`` is the interface that loaders, worker tasks and GPU samplers use. For each step it returns the items of this rank's batch, and the
address of the batch's random numbers. A batch depends on nothing else, so any process can compute it at any time.

``Schedule`` shuffles the seeds of a split and shards them across ranks. Every rank has the same number of steps, and each seed of an epoch is in
exactly one batch of one rank. So no rank waits in an all-reduce for another that has run out of data, and no metric counts a node twice.
Other subclasses exist: the pipeline cuts each batch into chunks, and the loaders of ``hoptrain.pyg`` and ``hoptrain.dgl`` take items step by step.
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
    """The address of a batch, from which all its random numbers are derived.

    Attributes:
        seed: random seed, in [0, 2**64).
        epoch: index of the epoch, in [0, 2**20).
        batch: index of the batch within the epoch, counted over all ranks, in [0, 2**32).
    """

    seed: int
    epoch: int
    batch: int

    def at_hop(self, hop: int) -> HopAddress:
        """Return the address of a hop's random numbers, as the kernels take it."""
        return HopAddress(np.uint64(self.seed), np.uint64(self.epoch), np.uint64(self.batch), np.uint64(hop))


class StepSchedule(Protocol):
    """The schedule of one rank: the items and the random-number address of its batch at each step. Implementations inherit from it."""

    __slots__ = ()

    @property
    def seed(self) -> int:
        """Random seed, in [0, 2**64)."""

    @property
    def rank(self) -> int:
        """Index of this rank, in [0, world_size)."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    @property
    def num_steps(self) -> int:
        """Number of steps of an epoch, equal on all ranks."""

    def batch_items(self, epoch: int, step: int) -> Array:
        """Return the items (B,) of this rank's batch at ``step``."""

    def num_step_items(self, step: int) -> int:
        """Return the number of items that all ranks together have at ``step``."""

    def batch_number(self, step: int) -> int:
        """Return the index of this rank's batch within the epoch, counted over all ranks. The indices of a rank's batches are consecutive."""
        return self.rank * self.num_steps + step

    def address(self, epoch: int, step: int) -> Address:
        """Return the address of the random numbers of this rank's batch at ``step``."""
        return Address(self.seed, epoch, self.batch_number(step))

    def for_rank(self, rank: int) -> StepSchedule:
        """Return the schedule of rank ``rank``.

        Raises:
            InputError: this process does not know the batches of other ranks.
        """
        raise InputError(f"{type(self).__name__}: only rank {self.rank}'s batches are known, not those of rank {rank}; use a Schedule")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Schedule(StepSchedule):
    """A schedule that shuffles items and shards them across ``world_size`` ranks, in batches of ``batch_size``.

    A step takes ``world_size * batch_size`` items of the epoch's order and gives each rank an equal share. The items left for the last step are
    distributed evenly. If some rank would get no item, the step before takes these items, so that some of its batches have one item more than ``batch_size``.

    Attributes:
        items: (N,) ids of the items: the nodes of a split, or the return value of ``Sampler.items``.
        batch_size: number of items per rank and step.
        rank: index of this rank, in [0, world_size).
        world_size: total number of ranks.
        shuffle: True for a new random order in each epoch, False for the order of ``items``.
        seed: random seed, in [0, 2**64).
    """

    items: Array
    batch_size: int
    rank: int = 0
    world_size: int = 1
    shuffle: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not is_integer(type(self.batch_size)) or self.batch_size < 1:
            raise InputError(f"batch_size is {self.batch_size}: it must be an integer of 1 or more; give 1 or more")
        if not 0 <= self.rank < self.world_size:
            raise InputError(f"rank {self.rank} of {self.world_size}: the rank must be in 0 to world_size - 1; check RANK and WORLD_SIZE")
        if not is_integer(type(self.seed)) or not 0 <= self.seed < 1 << 64:
            raise InputError(f"seed is {self.seed!r}: it must be a 64-bit integer; give a number from 0 to 2**64 - 1")
        batches = -(-len(self.items) // self.batch_size)
        if batches < self.world_size:
            raise InputError(
                f"{self.world_size} ranks for {batches} batches ({len(self.items):,} seeds in batches of {self.batch_size}): every rank needs "
                f"one; use at most {batches} devices or a batch_size of at most {max(1, len(self.items) // self.world_size)}"
            )
        if batches >= MAX_BATCH:
            raise InputError(
                f"{batches:,} batches in an epoch: there must be fewer than {MAX_BATCH:,}; use a larger batch_size than {self.batch_size}"
            )

    @property
    def num_steps(self) -> int:
        """Number of steps of an epoch, equal on all ranks."""
        full, rest = divmod(len(self.items), self.world_size * self.batch_size)
        return full + (rest >= self.world_size or full == 0)

    def batch_items(self, epoch: int, step: int) -> Array:
        """Return the items (B,) of this rank's batch at ``step``. B is ``batch_size``, except at the last step."""
        begin, end = self._step_bounds(step)
        share, extra = divmod(end - begin, self.world_size)
        begin += self.rank * share + min(self.rank, extra)
        end = begin + share + (self.rank < extra)
        if not self.shuffle:
            return self.items[begin:end]
        return self.items[_epoch_order(len(self.items), self.seed, epoch)[begin:end]]

    def for_rank(self, rank: int) -> Schedule:
        """Return the schedule of rank ``rank`` for the same items."""
        return replace(self, rank=rank)

    def num_step_items(self, step: int) -> int:
        """Return the number of items that all ranks together have at ``step``."""
        begin, end = self._step_bounds(step)
        return end - begin

    def _step_bounds(self, step: int) -> tuple[int, int]:
        if not 0 <= step < self.num_steps:
            raise InputError(f"step {step} of an epoch of {self.num_steps} steps: give one from 0 to {self.num_steps - 1}")
        size = self.world_size * self.batch_size
        return step * size, len(self.items) if step == self.num_steps - 1 else (step + 1) * size


@lru_cache(maxsize=2)
def _epoch_order(num_items: int, seed: int, epoch: int) -> Array:
    """Return the item order of an epoch. The last two orders are cached, because every step needs the order of its epoch."""
    if not 0 <= epoch < MAX_EPOCH:
        raise InputError(
            f"epoch {epoch}: it must be in [0, {MAX_EPOCH}), since a random number's address has 20 bits for it; train fewer epochs"
        )
    order: Array = permutation(num_items, np.uint64(seed), epoch)
    order.flags.writeable = False
    return order


def rows_per_rank(num_rows: int, num_ranks: int) -> int:
    """Return the number of rows per rank when contiguous row blocks are assigned to ranks. The last ranks may have fewer, or none."""
    return -(-num_rows // num_ranks)
