"""The rows that the buffers between two stages have.

A stage receives into buffers of a fixed shape, but chunks differ in rows. Every stage of a copy knows all its chunks, so all come to the
same capacities without a word between them: at first what the first batch needs, where chunks are equal nothing is wasted; more, with
a margin, when a larger chunk comes; less again when ``tighten`` is called.
"""

from __future__ import annotations

from collections.abc import Sequence

from hoptrain.trainers.models.layered import Chunk

_SPARE = 8
"""A capacity that has to grow becomes an eighth larger than needed, so that few batches ask for new buffers."""


class Capacities:
    """Rows of the buffers at each cut. They fit the largest chunk so far; a larger one lets them grow, ``tighten`` lets them shrink.

    Attributes:
        rows: capacity at each cut; all 0 before the first ``fit``.
        sent: rows sent so far, padding included.
        used: rows of chunks among them.
    """

    def __init__(self, cuts: Sequence[int], bound: int | None = None) -> None:
        """Begin without buffers.

        Args:
            cuts: the layers at which runs begin, but for the first.
            bound: no chunk has more rows at any cut (for instance the nodes of the graph); None where that is not known.
        """
        self.cuts = tuple(cuts)
        self.bound = bound
        self.rows = (0,) * len(self.cuts)
        self.sent = self.used = 0
        self._largest = [0] * len(self.cuts)

    def fit(self, chunks: Sequence[Chunk], num_slots: int) -> bool:
        """Take the chunks of a step, which moves ``num_slots`` of them with empty ones; returns whether a capacity has changed."""
        needs = [max((chunk.rows[cut] for chunk in chunks), default=0) for cut in self.cuts]
        self._largest = [max(pair) for pair in zip(self._largest, needs, strict=True)]
        before = self.rows
        self.rows = tuple(
            need if rows == 0 else rows if need <= rows else self._spared(need) for need, rows in zip(needs, before, strict=True)
        )
        self.sent += num_slots * sum(self.rows)
        self.used += sum(chunk.rows[cut] for chunk in chunks for cut in self.cuts)
        return self.rows != before

    def tighten(self) -> bool:
        """Cut down to the largest chunk since the last call and its spare, for instance at an epoch's end; returns whether anything has changed."""
        before = self.rows
        self.rows = tuple(min(rows, self._spared(largest)) for rows, largest in zip(before, self._largest, strict=True))
        self._largest = [0] * len(self.cuts)
        return self.rows != before

    @property
    def waste(self) -> float:
        """Share of the rows sent so far that was padding."""
        return 1 - self.used / self.sent if self.sent else 0.0

    def _spared(self, need: int) -> int:
        rows = need + -(-need // _SPARE)
        return rows if self.bound is None else max(need, min(rows, self.bound))
