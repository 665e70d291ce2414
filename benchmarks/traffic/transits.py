"""Bytes that the kernels of the schedule "transit" read and write, as in ``hoptrain.benchmarks.traffic.kernels``.

These kernels group requests by node. A *transit* is a node with one or more requests, each from another mini-batch or seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoptrain.benchmarks.traffic.count import Count, distinct, sectors_of
from hoptrain.benchmarks.traffic.kernels import takes_all
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.draw import DISTINCT, REPLACE
from hoptrain.kernels.cuda.group import THREAD
from hoptrain.kernels.cuda.thresholds import COPY_UNIT


@dataclass(frozen=True, slots=True)
class _Transits:
    """The transits whose requests yield edges, as arrays with one value per transit.

    Attributes:
        members: number of requests of the transit.
        degrees: in-degree of the node.
        edges: number of edges that a request yields.
        units: units of work of a request (``hoptrain.kernels.cuda.draw``).
    """

    members: Array
    degrees: Array
    edges: Array
    units: Array

    @property
    def work(self) -> Array:
        """Units of work of each transit, summed over its requests."""
        return self.members * self.units

    def of_class(self, low: float, high: float) -> _Transits:
        """Return the transits with more work than ``low`` and at most ``high``."""
        own = (self.work > low) & (self.work <= high)
        return _Transits(*(array[own] for array in (self.members, self.degrees, self.edges, self.units)))


def _transits(count: Count, fanout: int, mode: int) -> _Transits:
    requests = count.requests
    _, places, members = np.unique(requests.vertices[requests.degrees > 0], return_index=True, return_counts=True)
    degrees = requests.degrees[requests.degrees > 0][places]
    whole = takes_all(degrees, fanout, mode)
    edges = np.where(whole, degrees, fanout)
    drawn = fanout if mode == DISTINCT else 4 if mode == REPLACE else 2
    size = np.where(whole, 1 if fanout < 0 else COPY_UNIT, drawn)
    return _Transits(members, degrees, edges, -(-edges // size))


def count_requests(count: Count) -> None:
    """Count the bytes of a launch that counts, for each node, the requests that yield edges."""
    found = _transits(count, count["fanout"], count["mode"])
    number, grouped, transits = len(count.requests.vertices), found.members.sum(), len(found.members)
    count.reads("nodes", number)
    count.fetches("indptr", number, 2)
    count.fetches("group_size", grouped)
    count.scatters("group_size", grouped)
    count.writes("ranks", number, grouped / max(1, number))
    count.writes("transits", transits)
    count.scatters("transit_of", transits)


def claim_groups(count: Count) -> None:
    """Count the bytes of a launch in which each transit claims its range of the grouped requests and clears its count."""
    transits = len(_transits(count, count["fanout"], count["mode"]).members)
    count.reads("transits", transits)
    count.fetches("group_size", transits)
    count.scatters("group_size", transits)
    count.fetches("indptr", transits, 2)
    for name in ("sizes", "starts", "classes"):
        count.writes(name, transits)


def enter_groups(count: Count) -> None:
    """Count the bytes of a launch that writes each request into its transit's range.

    The first request of each transit is written in order, since transits are listed in the order of these requests. Other requests have random positions.
    """
    found = _transits(count, count["fanout"], count["mode"])
    number, grouped, transits = len(count.requests.vertices), found.members.sum(), len(found.members)
    count.reads("nodes", number)
    count.fetches("indptr", number, 2)
    count.reads("ranks", number, grouped / max(1, number))
    count.fetches("transit_of", grouped)
    for name, read, fetch in (("starts", count.reads, count.fetches), ("members", count.writes, count.scatters)):
        read(name, transits)
        fetch(name, grouped - transits)


def transit_threads(count: Count) -> None:
    """Count the bytes of a launch that samples the transits with little work, one thread for each."""
    _draw(count, THREAD)


def transit_blocks(count: Count) -> None:
    """Count the bytes of a launch that samples the transits of one class, which have more work."""
    _draw(count, count["kind"])


def _draw(count: Count, kind: int) -> None:
    """Count the bytes of a launch that samples for the transits of one class.

    The transits of the class, and their first requests, are in about the order in which they were listed. Further requests are at random positions.
    """
    everything, table = _transits(count, count["fanout"], count["mode"]), count.thresholds
    borders = 0, table.thread_work, table.warp_work, table.block_work, np.inf
    found = everything.of_class(borders[kind], borders[kind + 1])
    transits, part = len(found.members), len(found.members) / max(1, len(everything.members))
    if not transits:
        return
    count.reads("classes", transits)
    for name in ("transits", "sizes", "starts"):
        count.reads(name, len(everything.members), part)
    count.fetches("indptr", transits, 2)
    count.reads("members", everything.members.sum(), found.members.sum() / everything.members.sum())
    count.reads("out_indptr", len(everything.members), part)
    count.fetches("out_indptr", found.members.sum() - transits)
    size = count["indices"].dtype.itemsize
    places = sectors_of(found.degrees, size)
    whole = found.edges == found.degrees
    count.fetches("indices", np.where(whole, places, distinct(found.members * found.edges, places)).sum())
    for name in ("out_edges", "out_neighbors"):
        runs: Any = sectors_of(found.edges, count[name].dtype.itemsize)
        count.writes(name, everything.edges.sum(), part)
        count.scatters(name, ((found.members - 1) * runs).sum())


TABLE: dict[str, Callable[[Count], None]] = {
    function.__name__: function for function in (count_requests, claim_groups, enter_groups, transit_threads, transit_blocks)
}
"""Name of a kernel -> function that counts the bytes of a launch."""
