"""Capacities: numbers of rows of the buffers between stages.

A stage receives into buffers of a fixed shape, but chunks differ in rows. Every stage of a copy knows all its chunks, so all derive the same
capacities without communication. The first batch sets them exactly, so equal chunks need no padding. They grow, with a margin, for a larger chunk,
and ``tighten`` shrinks them.
"""

from __future__ import annotations

from collections.abc import Sequence

from hoptrain.trainers.models.layered import Chunk

_SPARE = 8
"""A capacity that must grow becomes an eighth larger than needed, so that new buffers are rare."""


class Capacities:
    """The number of rows of the buffer at each cut between runs. Buffers fit the largest chunk so far; ``tighten`` shrinks them.

    Attributes:
        rows: capacity at each cut; all 0 before the first ``fit``.
        sent: number of rows sent so far, including padding.
        used: number of rows sent so far, without padding.
    """

    def __init__(self, cuts: Sequence[int], bound: int | None = None) -> None:
        """Start without buffers.

        Args:
            cuts: layers at which runs begin, except for the first run.
            bound: maximum rows of a chunk at any cut (for instance the number of nodes of the graph); None if unknown.
        """
        self.cuts = tuple(cuts)
        self.bound = bound
        self.rows = (0,) * len(self.cuts)
        self.sent = self.used = 0
        self._largest = [0] * len(self.cuts)

    def fit(self, chunks: Sequence[Chunk], num_slots: int) -> bool:
        """Adapt to the chunks of a step, which sends ``num_slots`` including empty ones, and return whether a capacity changed."""
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
        """Shrink to the largest chunk since the last call plus the margin, for instance after an epoch; return whether a capacity changed."""
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
