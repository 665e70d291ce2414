"""How long to wait for another process."""

from __future__ import annotations

import time

_LONGEST_LOOK_S = 2.0


class Deadline:
    """Seconds of waiting for another process, counted while this one could run.

    A job that was suspended (by a scheduler, by Ctrl-Z, by a machine asleep) goes on with the clock far ahead, and those it waits for were
    suspended with it. So the time between two looks counts for two seconds at most.
    """

    def __init__(self, seconds: float) -> None:
        """Begin to wait."""
        self._left = seconds
        self._looked = time.monotonic()

    def is_over(self) -> bool:
        """Look once; to be called at least every second."""
        now = time.monotonic()
        self._left -= min(now - self._looked, _LONGEST_LOOK_S)
        self._looked = now
        return self._left <= 0
