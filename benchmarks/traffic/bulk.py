"""The bytes of a bulk: of each of its launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hoptrain.benchmarks.traffic import kernels, transits
from hoptrain.benchmarks.traffic.count import Count, Moved
from hoptrain.benchmarks.traffic.facts import Facts
from hoptrain.benchmarks.traffic.record import Launched

TABLE = kernels.TABLE | transits.TABLE
"""What counts a launch, by its kernel's name: those of neighbour sampling, and of the gather."""


def count_bytes(launches: Sequence[Launched], facts: Facts, driver: Any) -> list[Moved]:
    """What each launch moves.

    Args:
        launches: of a bulk, in order.
        facts: its true sizes.
        driver: that queued it: a launch's sizes are known by which of its ``sizes`` it was given.

    Raises:
        KeyError: a kernel that is not in ``TABLE``.
    """
    names = {id(array): name for name, array in driver.sizes.items()}
    found, hop = [], 0
    for launched in launches:
        if "high" in launched.arguments:
            hop = int(names[id(launched.arguments["high"])].removeprefix("nodes"))
        count = Count(launched, facts, names, driver.thresholds, hop)
        TABLE[launched.kernel](count)
        found.append(Moved(launched.kernel, launched.grid, launched.block, tuple(count.accesses)))
    return found
