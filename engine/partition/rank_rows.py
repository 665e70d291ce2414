"""Feature rows for evaluation: all ranks request rows together, each from the ranks of the machine that owns the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.partition.exchange import NOTHING, Exchange


class RowParts(Protocol):
    """The interface of a feature table that is partitioned over machines.

    Attributes:
        row_bytes: bytes of a row.
        machine: index of this machine, and of its partition.
        ranks: for each machine, the ranks of its processes.
        num_parts: number of partitions P.
    """

    row_bytes: int
    machine: int
    ranks: list[list[int]]

    @property
    def num_parts(self) -> int: ...  # noqa: D102

    def __len__(self) -> int: ...

    def owner(self, ids: Array) -> Array:
        """Return the partition (N,) of each row in ``ids`` (N,)."""
        ...

    def numbers(self, ids: Array, part: int) -> Array:
        """Return the positions of rows ``ids`` (N,) within their partition, (N,)."""
        ...

    def of_own(self, numbers: Array) -> Array:
        """Return rows of this machine's partition by their positions (N,) in it, (N, row_bytes) uint8."""
        ...


class RankRows:
    """A reader of rows that all ranks use together, in two exchange rounds per call.

    Attributes:
        exchange: exchange among all ranks.
    """

    def __init__(self, rows: RowParts, exchange: Exchange) -> None:
        """Store the table and an exchange among all ranks."""
        self._rows, self.exchange = rows, exchange
        self._dtype = id_dtype(len(rows))
        self._ranks = [
            own[exchange.rank % len(own)] for own in rows.ranks
        ]  # the rank that this rank requests rows from, for each partition

    def take(self, ids: Array) -> Array:
        """Return the rows of nodes ``ids`` (N,), (N, row_bytes) uint8."""
        rows, owners = self._rows, self._rows.owner(ids)
        places = [np.flatnonzero(owners == part) for part in range(rows.num_parts)]
        out = np.empty((len(ids), rows.row_bytes), np.uint8)
        out[places[rows.machine]] = rows.of_own(rows.numbers(ids[places[rows.machine]], rows.machine))
        places[rows.machine] = places[rows.machine][:0]
        came, _ = self._ask([rows.numbers(ids[at], part) for part, at in enumerate(places)], is_done=False)
        for part, at in enumerate(places):
            out[at] = came[self._ranks[part]].reshape(-1, rows.row_bytes)[: len(at)]
        return out

    def finish(self) -> None:
        """Serve the requests of other ranks until no rank requests rows any more."""
        is_over = False
        while not is_over:
            _, is_over = self._ask([np.empty(0, self._dtype)] * self._rows.num_parts, is_done=True)

    def _ask(self, numbers: Sequence[Array], *, is_done: bool) -> tuple[list[Array], bool]:
        """Request the rows ``numbers`` of each partition. Return the answer of each rank, and whether all ranks are done."""
        ranks = self.exchange
        to = [np.array([is_done], np.uint8)] * ranks.size
        for part, asked in enumerate(numbers):
            to[self._ranks[part]] = np.concatenate([to[self._ranks[part]], as_bytes(asked, self._dtype)])
        to[ranks.rank] = NOTHING
        got = ranks.exchange(to)
        asked_here = [message[1:].copy().view(self._dtype) for message in got]
        answers = [self._rows.of_own(wanted).reshape(-1) for wanted in asked_here]
        return ranks.exchange(answers), is_done and all(message[0] for rank, message in enumerate(got) if rank != ranks.rank)


def as_bytes(ids: Array, dtype: np.dtype[np.generic]) -> Array:
    """Convert ids (N,) to ``dtype``, and return their bytes."""
    return ids.astype(dtype).view(np.uint8)
