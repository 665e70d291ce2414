"""Bytes of device memory that each kernel launch of a bulk moves. A bulk is a group of mini-batches that are sampled together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hoptrain.benchmarks.traffic import kernels, transits
from hoptrain.benchmarks.traffic.count import Count, Moved
from hoptrain.benchmarks.traffic.facts import Facts
from hoptrain.benchmarks.traffic.record import Launched

TABLE = kernels.TABLE | transits.TABLE
"""Name of a kernel -> function that counts the bytes of a launch, for the kernels of neighbour sampling and of the gather."""


def count_bytes(launches: Sequence[Launched], facts: Facts, driver: Any) -> list[Moved]:
    """Return the bytes that each launch moves.

    Args:
        launches: launches of a bulk, in order.
        facts: true sizes of the bulk.
        driver: driver that queued the bulk; its ``sizes`` identify the sizes that a launch was given.

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
