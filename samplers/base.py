"""What a sampler is, and the scratch memory it works in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array, is_integer
from hoptrain.kernels.shared.philox import MAX_BATCH, MAX_EPOCH
from hoptrain.samplers.minibatch import MiniBatch


class Workspace:
    """Arrays that a sampler uses again for every batch, by name; they grow to the largest size asked for and then stay."""

    def __init__(self) -> None:
        """Start empty."""
        self._arrays: dict[str, Array] = {}

    def array(self, name: str, size: int, dtype: DTypeLike, *, keep: int = 0) -> Array:
        """An array (size,) of undefined contents; the first ``keep`` entries are those it had before."""
        old = self._arrays.get(name)
        if old is None or len(old) < size or old.dtype != dtype:
            new = np.empty(size if old is None else max(size, len(old) * 5 // 4), dtype)
            if old is not None and keep:
                new[:keep] = old[:keep]
            self._arrays[name] = old = new
        return old[:size]


class Sampler(ABC):
    """A sampling algorithm: from seeds to a mini-batch, as a pure function of (graph, seeds, seed, epoch, batch).

    A sampler keeps no state between batches, so any process may sample any batch.
    """

    @property
    @abstractmethod
    def num_hops(self) -> int:
        """Number of blocks in a mini-batch: the number of layers of the model."""

    @abstractmethod
    def sample(
        self, graph: Graph, seeds: Array, *, seed: int = 0, epoch: int = 0, batch: int = 0, workspace: Workspace | None = None
    ) -> MiniBatch:
        """Sample one mini-batch (structure only: no features, no labels).

        Args:
            graph: the graph.
            seeds: (B,) distinct vertex ids.
            seed: the user's seed, in [0, 2**64).
            epoch: in [0, 2**20).
            batch: the batch's number within the epoch, in [0, 2**32).
            workspace: scratch memory; the mini-batch's arrays are then views of it, good until the next call with the same one.

        Raises:
            InputError: a seed outside the graph, or twice; an address out of range.
        """

    def sample_bulk(self, graph: Graph, seeds: Sequence[Array], *, seed: int = 0, epoch: int = 0, first_batch: int = 0) -> list[MiniBatch]:
        """Sample several batches, numbered from ``first_batch``; each is the one that ``sample`` gives."""
        return [self.sample(graph, s, seed=seed, epoch=epoch, batch=first_batch + i) for i, s in enumerate(seeds)]


def check_address(seed: int, epoch: int, batch: int) -> None:
    """Refuse what does not fit into a random number's address (``hoptrain.kernels.shared.philox``)."""
    for name, value, limit in (("seed", seed, 1 << 64), ("epoch", epoch, MAX_EPOCH), ("batch", batch, MAX_BATCH)):
        if not 0 <= value < limit:
            raise InputError(f"{name} is {value}: it is part of a random number's address and lies in [0, {limit})")


def check_seeds(graph: Graph, seeds: Array, *, distinct: bool = False) -> Array:
    """The seeds as an array, checked for kind and range and, if asked, for duplicates."""
    seeds = np.asarray(seeds)
    if seeds.ndim != 1 or len(seeds) == 0 or not is_integer(seeds.dtype):
        raise InputError(f"seeds are {seeds.dtype} of shape {seeds.shape}: give a one-dimensional integer array of at least one vertex id")
    bad = seeds[(seeds < 0) | (seeds >= graph.num_nodes)]
    if len(bad):
        raise InputError(f"seed {bad[0]} is not in the graph: its vertices are 0 to {graph.num_nodes - 1}; drop it")
    if distinct:
        values, counts = np.unique(seeds, return_counts=True)
        if counts.max() > 1:
            raise seed_given_twice(values[counts.argmax()])
    return seeds


def seed_given_twice(vertex: int) -> InputError:
    """The error for a seed that stands in a batch or split more than once."""
    return InputError(f"seed {vertex} is given twice: the seeds of a batch are distinct; use numpy.unique(seeds)")
