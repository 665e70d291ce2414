"""What holds a run up whose features are read from a disk, or come from other machines: these, or what asks them, if it is one of them."""

from __future__ import annotations

from hoptrain.engine.storage.filler import Filled
from hoptrain.engine.timeline import FEED_SHARE, Totals


def slow_rows(totals: Totals, filled: Filled, wait_s: float, has_room: bool = False) -> str | None:
    """One sentence, where the trainer spent a tenth of its time or more waiting for rows of features; see ``hoptrain.engine.timeline.bottleneck``.

    Args:
        totals: of the run.
        filled: likewise.
        wait_s: seconds that its trainer waited for rows.
        has_room: whether the memory has room for all rows, so that more of it brings nothing.
    """
    if totals.elapsed <= 0 or wait_s < FEED_SHARE * totals.elapsed:
        return None
    waited = f"trainer waited {min(wait_s / totals.elapsed, 1.0):.0%} of the time for rows"
    more = "all rows fit data.feature_cache, so that each comes once: " if has_room else "more data.feature_cache, "
    if filled.fetch_s > max(filled.read_s, filled.work_s):
        rate = f"{filled.num_fetched / filled.fetch_s:,.0f} rows a second in {filled.num_rounds:,} rounds"
        return f"bottleneck: rows of other machines ({waited}; {rate}): {more}a larger data.prefetch_steps, or a faster network"
    if filled.read_s < filled.work_s:
        return f"bottleneck: sampling ahead, to know which rows to read ({waited}): smaller fanouts, or a larger batch_size"
    busy = filled.read_s + filled.work_s
    rate = f"{filled.num_reads / busy:,.0f} reads and {filled.num_bytes / busy / 1e6:,.0f} MB a second"
    missed = f"{filled.num_missed / max(1, filled.num_used):.0%} of the rows are read"
    return f"bottleneck: the disk ({waited}; {rate}, {missed}): {more}{'a' if has_room else 'or a'} faster disk"
