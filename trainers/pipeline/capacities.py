"""Capacities: the numbers of rows of the buffers between stages.

A stage receives activations into buffers of a fixed shape, but chunks have different numbers of rows. All stages of a model copy know its chunks, so they
derive the same capacities without communication. The first batch sets capacities to its largest chunk. A larger chunk increases them, with a margin, and
``tighten`` decreases them.
"""

from __future__ import annotations

from collections.abc import Sequence

from hoptrain.trainers.models.layered import Chunk

_SPARE = 8
"""Reciprocal of the margin: a capacity that must grow becomes 1/8 larger than needed, so that new buffers are rarely allocated."""


class Capacities:
    """A table of the number of rows of the buffer at each cut between runs of layers. Buffers fit the largest chunk so far; ``tighten`` shrinks them.

    Attributes:
        rows: capacity at each cut; all 0 before the first ``fit``.
        sent: number of rows sent so far, including padding.
        used: number of rows sent so far, without padding.
    """

    def __init__(self, cuts: Sequence[int], bound: int | None = None) -> None:
        """Start with capacity 0 at each cut.

        Args:
            cuts: first layers of all runs of layers except for the first run.
            bound: maximum number of rows of a chunk at any cut (for instance the number of nodes of the graph); None if unknown.
        """
        self.cuts = tuple(cuts)
        self.bound = bound
        self.rows = (0,) * len(self.cuts)
        self.sent = self.used = 0
        self._largest = [0] * len(self.cuts)

    def fit(self, chunks: Sequence[Chunk], num_slots: int) -> bool:
        """Increase capacities to fit the chunks of a step, and return whether one changed. The step sends ``num_slots`` chunks, including empty ones."""
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
        """Decrease capacities to the largest chunk since the last call plus the margin, for instance after an epoch; return whether one changed."""
        before = self.rows
        self.rows = tuple(min(rows, self._spared(largest)) for rows, largest in zip(before, self._largest, strict=True))
        self._largest = [0] * len(self.cuts)
        return self.rows != before

    @property
    def waste(self) -> float:
        """Fraction of padding among all rows sent so far."""
        return 1 - self.used / self.sent if self.sent else 0.0

    def _spared(self, need: int) -> int:
        rows = need + -(-need // _SPARE)
        return rows if self.bound is None else max(need, min(rows, self.bound))
