"""A timeout for waiting on other processes that does not count the time in which this process was suspended."""

from __future__ import annotations

import time

_LONGEST_LOOK_S = 2.0


class Deadline:
    """A suspend-safe timeout for waiting on another process, in seconds.

    After a suspension (by a scheduler, by Ctrl-Z, by a sleeping machine) the clock is far ahead, although the awaited processes were suspended,
    too. So the time between two checks counts for at most two seconds.
    """

    def __init__(self, seconds: float) -> None:
        """Start the timeout."""
        self._left = seconds
        self._looked = time.monotonic()

    def is_over(self) -> bool:
        """Return whether the time is over. Call it at least every second."""
        now = time.monotonic()
        self._left -= min(now - self._looked, _LONGEST_LOOK_S)
        self._looked = now
        return self._left <= 0
