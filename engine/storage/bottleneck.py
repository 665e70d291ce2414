"""Diagnosis of runs that wait for feature rows: from the disk, from other machines, or from the sampling that determines them."""

from __future__ import annotations

from hoptrain.engine.storage.filler import Filled
from hoptrain.engine.timeline import FEED_SHARE, Totals


def slow_rows(totals: Totals, filled: Filled, wait_s: float, holds_all: bool = False) -> str | None:
    """Return a sentence about the bottleneck if the trainer waited for feature rows for a tenth of the time or more, else None.

    It complements the sentence of ``hoptrain.engine.timeline.bottleneck``.

    Args:
        totals: times of the run.
        filled: counts and times of filling the cache in the run.
        wait_s: seconds that the trainer waited for rows.
        holds_all: True if all rows fit in the cache, so that more memory does not help.
    """
    if totals.elapsed <= 0 or wait_s < FEED_SHARE * totals.elapsed:
        return None
    waited = f"trainer waited {min(wait_s / totals.elapsed, 1.0):.0%} of the time for rows"
    more = "all rows fit in data.feature_cache, so each is read once: " if holds_all else "more data.feature_cache, "
    if filled.fetch_s > max(filled.read_s, filled.work_s):
        rate = f"{filled.num_fetched / filled.fetch_s:,.0f} rows a second in {filled.num_rounds:,} rounds"
        return f"bottleneck: rows of other machines ({waited}; {rate}): {more}a larger data.prefetch_steps, or a faster network"
    if filled.read_s < filled.work_s:
        return f"bottleneck: sampling ahead, to know which rows to read ({waited}): smaller fanouts, or a larger batch_size"
    busy = filled.read_s + filled.work_s
    rate = f"{filled.num_reads / busy:,.0f} reads and {filled.num_bytes / busy / 1e6:,.0f} MB a second"
    missed = f"{filled.num_missed / max(1, filled.num_used):.0%} of the rows are read"
    return f"bottleneck: the disk ({waited}; {rate}, {missed}): {more}{'a' if holds_all else 'or a'} faster disk"
