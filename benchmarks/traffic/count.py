"""Counting what a launch reads and writes: arrays in order by their bytes, anywhere else by sectors.

What is counted are the bytes that warps ask for beyond their own share of a first-level cache:

* *in order* (``reads``, ``writes``): neighbouring threads take neighbouring entries. Bytes are items times their size.
* *anywhere* (``fetches``, ``scatters``): an access moves a sector of 32 bytes, whatever it asks for; an atomic one is both.

With a second-level cache (``Moved.bytes``) the arrays accessed anywhere are taken to stay there during a launch if those that are in use at once
fit together: then each of their sectors moves once a launch instead of once an access. In use at once are arrays that all batches share, and
those of as many batches as the grid has running at once, blocks being started in the order of their numbers. Nothing is taken to stay from
one launch to the next. Sectors that are written are moved once: that the rest of a sector may have to be read before is left out, and so are
sizes, addresses and other arrays of a few numbers.
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
        """Read and written, behind a cache of so many bytes, on a device that runs so many threads at once."""
        at_once = 1 + -(-int(threads) // (self.grid[0] * self.block))
        spans = {access.array: access.span * min(access.copies, at_once) for access in self.accesses if access.sectors}
        stays = sum(spans.values()) <= cache_bytes
        moved = [0.0, 0.0]
        for access in self.accesses:
            sectors = access.copies * distinct(access.sectors / access.copies, access.span / SECTOR) if stays else access.sectors
            moved[access.is_write] += access.ordered + SECTOR * sectors
        return moved[0], moved[1]


def distinct(draws: Any, places: Any) -> Any:
    """Different places among draws that hit any alike."""
    return places * -np.expm1(draws * np.log1p(-1 / np.maximum(places, 1 + 1e-9)))


class Count:
    """The accesses of one launch in the making."""

    def __init__(self, launched: Launched, facts: Facts, names: Mapping[int, str], thresholds: Thresholds, hop: int) -> None:
        """Start without any.

        Args:
            launched: the launch.
            facts: of the bulk.
            names: of sizes, by the identity of the arrays that hold them.
            thresholds: with which it was launched.
            hop: that it belongs to.
        """
        self.launched, self.facts, self._names, self.thresholds, self.hop = launched, facts, names, thresholds, hop
        self.accesses: list[Access] = []

    def __getitem__(self, name: str) -> Any:
        """An argument."""
        return self.launched.arguments[name]

    def size(self, name: str) -> Array:
        """(K,) the true value of an argument that is a row of sizes."""
        return self.facts.sizes[self._names[id(self[name])]]

    def total(self, begin: str, end: str) -> int:
        """Items of all batches from one size to the other."""
        return int((self.size(end) - self.size(begin)).sum())

    @property
    def requests(self) -> Requests:
        """Requests of the hop."""
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
        """Count ordered reads of ``items`` entries, of which a scattered share ``part`` is used."""
        self._ordered(name, False, items, part)

    def writes(self, name: str, items: float, part: float = 1.0) -> None:
        """Count ordered writes of ``items`` entries, of which a share ``part`` is used."""
        self._ordered(name, True, items, part)

    def _ordered(self, name: str, is_write: bool, items: float, part: float) -> None:
        size = self[name].dtype.itemsize
        self.accesses.append(Access(name, is_write, items * size * (1 - (1 - part) ** (SECTOR / size))))

    def fetches(self, name: str, times: float, run: float = 1.0) -> None:
        """Count ``times`` random reads of ``run`` consecutive entries."""
        self._anywhere(name, False, times, run)

    def scatters(self, name: str, times: float, run: float = 1.0) -> None:
        """Count ``times`` random writes of ``run`` consecutive entries."""
        self._anywhere(name, True, times, run)

    def _anywhere(self, name: str, is_write: bool, times: float, run: float) -> None:
        array = self[name]
        size, is_matrix = array.dtype.itemsize, len(array.shape) == 2 and array.shape[0] > 1
        copies = self.num_batches if is_matrix else 1
        span = float(np.prod(array.shape)) * size / (array.shape[0] if is_matrix else 1)
        self.accesses.append(Access(name, is_write, 0.0, times * sectors_of(run, size), span, copies))


def sectors_of(run: Any, size: int) -> Any:
    """Sectors of ``run`` entries side by side that begin at any of them."""
    return 1 + (run - 1) * size / SECTOR
