"""Rounds in which rows travel: ahead of the batches, for a window of steps at once; and at once, where ranks evaluate.

Ahead there is one round to a window: a machine sends the rows that it was asked for a round ago, and asks for those of its next window. So each row
travels once a window at most, and not at all while a cache holds it. A run of W windows takes W + 1 rounds, in the same order on all machines.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.partition.exchange import NOTHING, Exchange, Written
from hoptrain.engine.partition.rows import PartedRows
from hoptrain.engine.placement.meeting import meeting_of


class WindowRows:
    """The rounds of the process that fills a machine's cache.

    Attributes:
        num_fetched: rows that came so far.
    """

    def __init__(self, rows: PartedRows, exchange: Exchange) -> None:
        """Begin before the first run."""
        self._rows, self._exchange = rows, exchange
        self._dtype = id_dtype(len(rows))
        self.num_fetched = 0
        self.begin()

    def begin(self) -> None:
        """A run begins: nothing is asked for."""
        none = np.empty(0, self._dtype)
        self._asked, self._owed = [none] * self._exchange.size, [none] * self._exchange.size

    def next(self, wanted: Array) -> None:
        """Make a round: what was asked for in the one before comes, for ``PartedRows.read``.

        Args:
            wanted: (M,) distinct vertices, ascending, whose rows are needed for the next window; those of this machine do not count.

        Raises:
            InputError: as ``Exchange``, and as rows are read.
        """
        rows, here, size = self._rows, self._exchange.rank, self._exchange.size
        owners = rows.owner(wanted)
        asks = [wanted[owners == part] if part != here else wanted[:0] for part in range(size)]
        rows.put({})  # those of the window before are used up
        to = [NOTHING if part == here else self._message(self._owed[part], rows.numbers(asks[part], part)) for part in range(size)]
        self._take(self._exchange.exchange(to))
        self._asked = asks

    def _message(self, owed: Array, asked: Array) -> Written:
        """Rows that another machine asked for, and the numbers of those that are asked of it."""
        end = len(owed) * self._rows.row_bytes

        def write(out: Array) -> None:
            self._rows.of_own(owed, out[:end].reshape(-1, self._rows.row_bytes))
            out[end:] = _as_bytes(asked, self._dtype)

        return Written(end + len(asked) * self._dtype.itemsize, write)

    def _take(self, got: Sequence[Array]) -> None:
        """What the others sent: rows that were asked for, which stay where they came, and what they ask for."""
        rows, came = self._rows, dict[int, tuple[Array, Array]]()
        for part, message in enumerate(got):
            if part == self._exchange.rank:
                continue
            ids = self._asked[part]
            end = len(ids) * rows.row_bytes
            came[part] = ids, message[:end].reshape(-1, rows.row_bytes)
            self._owed[part] = message[end:].copy().view(self._dtype)
            self.num_fetched += len(ids)
        rows.put(came)


class RankRows:
    """Rows for evaluation, which all ranks take together: two rounds for each piece of it.

    Attributes:
        exchange: among all ranks.
    """

    def __init__(self, rows: PartedRows, exchange: Exchange) -> None:
        """Take an exchange among all ranks."""
        self._rows, self.exchange = rows, exchange
        self._dtype = id_dtype(len(rows))
        self._ranks = [own[exchange.rank % len(own)] for own in rows.ranks]  # of each part the one that is asked

    def take(self, ids: Array) -> Array:
        """Rows (N, row_bytes) uint8 of vertices ``ids`` (N,)."""
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
        """Answer the others until none takes rows any more: they may have more to ask."""
        is_over = False
        while not is_over:
            _, is_over = self._ask([np.empty(0, self._dtype)] * self._rows.num_parts, is_done=True)

    def _ask(self, numbers: Sequence[Array], *, is_done: bool) -> tuple[list[Array], bool]:
        """What each rank answers to the numbers of rows of each part; and whether all are done."""
        ranks = self.exchange
        to = [np.array([is_done], np.uint8)] * ranks.size
        for part, asked in enumerate(numbers):
            to[self._ranks[part]] = np.concatenate([to[self._ranks[part]], _as_bytes(asked, self._dtype)])
        to[ranks.rank] = NOTHING
        got = ranks.exchange(to)
        asked_here = [message[1:].copy().view(self._dtype) for message in got]
        answers = [self._rows.of_own(wanted).reshape(-1) for wanted in asked_here]
        return ranks.exchange(answers), is_done and all(message[0] for rank, message in enumerate(got) if rank != ranks.rank)


def _as_bytes(ids: Array, dtype: np.dtype[np.generic]) -> Array:
    return ids.astype(dtype).view(np.uint8)


def take_parted(rows: PartedRows, ids: Array) -> Array:
    """Rows (N, F) of vertices ``ids`` (N,), now. Where they lie on several machines all ranks call this, and ``finish_parted`` at last.

    Raises:
        InputError: as ``PartedRows.meet``, as exchanges fail, and as files are read.
    """
    own = ranks_of(rows)
    out = np.empty((len(ids), *rows.shape[1:]), rows.dtype)
    as_bytes = out.view(np.uint8).reshape(len(ids), rows.row_bytes)
    if own is not None:
        as_bytes[...] = own.take(ids)
    else:
        distinct, place = np.unique(ids, return_inverse=True)
        found = np.empty((len(distinct), rows.row_bytes), np.uint8)
        rows.read(distinct, np.arange(len(distinct)), found)
        as_bytes[...] = found[place]
    return out


def finish_parted(rows: PartedRows) -> None:
    """This rank takes no more rows for now; it answers those that do."""
    if (own := ranks_of(rows)) is not None:
        own.finish()


def ranks_of(rows: PartedRows) -> RankRows | None:
    """Those that answer, once all ranks have met; None where one machine has all parts."""
    torch = sys.modules.get("torch")
    is_one_of = torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()
    if not rows.ranks:
        rows.meet(meeting_of(torch.distributed.get_world_size()) if torch is not None and is_one_of else None)
    if rows.of_ranks is None and len(rows.ranks) > 1:
        rows.of_ranks = RankRows(rows, rows.links.ranks())
    found: RankRows | None = rows.of_ranks
    return found
