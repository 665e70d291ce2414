"""Counts of the bytes that a kernel launch reads and writes: by bytes for arrays accessed in order, and by sectors of 32 bytes for random access.

The counts are the bytes that warps request and that the first-level cache does not serve:

* *Ordered* (``reads``, ``writes``): neighbouring threads access neighbouring entries. The bytes are the number of entries times their size.
* *Random* (``fetches``, ``scatters``): each access moves whole sectors, however few bytes it needs. An atomic access counts as both.

``Moved.bytes`` takes a second-level cache into account. It assumes that the arrays accessed at random stay in the cache during a launch if those in use
at the same time fit; each of their sectors then moves once a launch instead of once an access. In use at the same time are the arrays that all batches
share, and those of the batches that run at the same time, assuming that thread blocks start in the order of their numbers.

Nothing is assumed to stay in the cache between launches. A written sector is moved once, although the rest of it may have to be read before. Sizes, addresses
and other small arrays are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hoptrain.benchmarks.traffic.facts import Facts, Requests
from hoptrain.benchmarks.traffic.record import Launched
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.thresholds import Thresholds

SECTOR = 32
WARP = 32


class Access(NamedTuple):
    """The accesses of a launch to an array.

    Attributes:
        array: name of the kernel's parameter.
        is_write: whether the launch writes the array.
        ordered: bytes accessed in order.
        sectors: sectors accessed in random order.
        span: bytes of the range that ``sectors`` lie in.
        copies: number of ranges: one for each batch, or one for all.
    """

    array: str
    is_write: bool
    ordered: float
    sectors: float = 0.0
    span: float = 0.0
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Moved:
    """The data that a launch moves.

    Attributes:
        kernel: name of the kernel.
        grid: blocks in x and y.
        block: threads of a block.
        accesses: accesses to each array.
    """

    kernel: str
    grid: tuple[int, int]
    block: int
    accesses: tuple[Access, ...]

    def bytes(self, cache_bytes: float = 0, threads: float = 1) -> tuple[float, float]:
        """Return the bytes read from and written to device memory.

        Args:
            cache_bytes: size of the second-level cache.
            threads: number of threads that the device runs at once.
        """
        at_once = 1 + -(-int(threads) // (self.grid[0] * self.block))
        spans = {access.array: access.span * min(access.copies, at_once) for access in self.accesses if access.sectors}
        stays = sum(spans.values()) <= cache_bytes
        moved = [0.0, 0.0]
        for access in self.accesses:
            sectors = access.copies * distinct(access.sectors / access.copies, access.span / SECTOR) if stays else access.sectors
            moved[access.is_write] += access.ordered + SECTOR * sectors
        return moved[0], moved[1]


def distinct(draws: Any, places: Any) -> Any:
    """Return the expected number of distinct values among ``draws`` uniform draws from ``places`` values."""
    return places * -np.expm1(draws * np.log1p(-1 / np.maximum(places, 1 + 1e-9)))


class Count:
    """A counter of the accesses of one launch."""

    def __init__(self, launched: Launched, facts: Facts, names: Mapping[int, str], thresholds: Thresholds, hop: int) -> None:
        """Create a counter without accesses.

        Args:
            launched: the launch.
            facts: true sizes of the bulk.
            names: names of sizes, by the ``id`` of the arrays that hold them.
            thresholds: thresholds of the launch.
            hop: hop to which the launch belongs.
        """
        self.launched, self.facts, self._names, self.thresholds, self.hop = launched, facts, names, thresholds, hop
        self.accesses: list[Access] = []

    def __getitem__(self, name: str) -> Any:
        """Return an argument of the launch by its name."""
        return self.launched.arguments[name]

    def size(self, name: str) -> Array:
        """Return the true values (K,) of an argument that holds a size for each mini-batch."""
        return self.facts.sizes[self._names[id(self[name])]]

    def total(self, begin: str, end: str) -> int:
        """Return the size ``end`` minus the size ``begin``, summed over all mini-batches."""
        return int((self.size(end) - self.size(begin)).sum())

    @property
    def requests(self) -> Requests:
        """Requests of the launch's hop: nodes whose neighbours are sampled."""
        return self.facts.hops[self.hop]

    @property
    def num_new(self) -> int:
        """Number of new nodes that the hop finds."""
        sizes = self.facts.sizes
        return int((sizes[f"nodes{self.hop + 1}"] - sizes[f"nodes{self.hop}"]).sum())

    @property
    def num_batches(self) -> int:
        """Number of mini-batches, K."""
        return len(self.facts.sizes["zeros"])

    def reads(self, name: str, items: float, part: float = 1.0) -> None:
        """Count ordered reads of ``items`` elements, of which a random fraction ``part`` is needed. Sectors without a needed element are not read."""
        self._ordered(name, False, items, part)

    def writes(self, name: str, items: float, part: float = 1.0) -> None:
        """Count ordered writes to an array of ``items`` elements, of which a random fraction ``part`` is written."""
        self._ordered(name, True, items, part)

    def _ordered(self, name: str, is_write: bool, items: float, part: float) -> None:
        size = self[name].dtype.itemsize
        self.accesses.append(Access(name, is_write, items * size * (1 - (1 - part) ** (SECTOR / size))))

    def fetches(self, name: str, times: float, run: float = 1.0) -> None:
        """Count ``times`` random accesses, each of which reads ``run`` consecutive elements."""
        self._anywhere(name, False, times, run)

    def scatters(self, name: str, times: float, run: float = 1.0) -> None:
        """Count ``times`` random accesses, each of which writes ``run`` consecutive elements."""
        self._anywhere(name, True, times, run)

    def _anywhere(self, name: str, is_write: bool, times: float, run: float) -> None:
        array = self[name]
        size, is_matrix = array.dtype.itemsize, len(array.shape) == 2 and array.shape[0] > 1
        copies = self.num_batches if is_matrix else 1
        span = float(np.prod(array.shape)) * size / (array.shape[0] if is_matrix else 1)
        self.accesses.append(Access(name, is_write, 0.0, times * sectors_of(run, size), span, copies))


def sectors_of(run: Any, size: int) -> Any:
    """Return the expected number of sectors that ``run`` consecutive elements of ``size`` bytes touch, if they start at a random address."""
    return 1 + (run - 1) * size / SECTOR
