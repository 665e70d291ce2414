"""Which schedule a hop gets on a CUDA device, from what the host knows before the hop: sizes of the bulks before, and none is read back for it."""

from __future__ import annotations

from math import ceil, expm1, log1p

from hoptrain.engine import InputError
from hoptrain.kernels.cuda.thresholds import Thresholds
from hoptrain.kernels.shared.draws import ALL, wanted

SCHEDULES = ("sample", "transit")
KERNELS = ("auto", *SCHEDULES)


def check_kernel(kernel: str) -> None:
    """Refuse a schedule that there is not."""
    if kernel not in KERNELS:
        raise InputError(f"kernel is {kernel!r}: the schedules are {', '.join(KERNELS)}; choose one")


def expected_transits(num_requests: float, num_nodes: int) -> float:
    """Different nodes among the requests if each hit any node alike: the most there can be on average, hubs only make it fewer."""
    return num_nodes * -expm1(-num_requests / num_nodes)


def schedule_bytes(
    num_requests: float, fanout: int, num_nodes: int, num_edges: int, id_bytes: int, adjacency_cost: float, thresholds: Thresholds
) -> dict[str, float]:
    """Bytes that a hop's drawing moves by schedule: in order by their size, anywhere else a sector an access, as if there were no caches.

    It is what ``hoptrain.benchmarks.traffic`` counts launch by launch, in expectation: every node has the mean degree, and is asked for alike.

    Args:
        num_requests: of the bulk.
        fanout: of the hop.
        num_nodes: V.
        num_edges: E.
        id_bytes: of a node id.
        adjacency_cost: what a byte of ``indices`` costs against one of device memory.
        thresholds: the constants.
    """
    sector, degree = thresholds.sector_bytes, num_edges / max(1, num_nodes)
    transits = expected_transits(num_requests, max(1, num_nodes))
    number = degree if fanout == ALL else wanted(ceil(degree), fanout)
    is_whole = degree <= number
    edges = degree if is_whole else number
    column = 1 + max(0.0, degree - 1) * id_bytes / sector  # its sectors
    offsets = sector + id_bytes  # where it begins and ends
    written = 2 * edges * id_bytes
    apart = 2 * (sector + max(0.0, edges - 1) * id_bytes)  # written by requests that do not follow one another

    def drawn(requests: float) -> float:
        """Bytes of a column for so many requests on it."""
        sectors = column if is_whole or column <= 1 else column * -expm1(requests * edges * log1p(-1 / column))
        return sectors * sector * adjacency_cost

    again = num_requests - transits  # on nodes that another one was on before
    return {
        "sample": num_requests * (offsets + 2 * id_bytes + drawn(1) + written),
        "transit": num_requests * (2 * offsets + 2 * id_bytes + 3 * sector + _RANKS)
        + transits * (2 * offsets + 3 * sector + 4 * id_bytes + _LISTS + written + drawn(num_requests / max(1.0, transits)))
        + again * (3 * sector + apart),
    }


_RANKS = 8
"""Bytes of a request's rank in its group, out and in."""
_LISTS = 64
"""Bytes of a transit in the lists of sizes, beginnings, classes and first members, out and in."""


def choose_schedule(
    num_requests: float, fanout: int, num_nodes: int, num_edges: int, id_bytes: int, adjacency_cost: float, thresholds: Thresholds
) -> str:
    """The schedule that moves fewer bytes; "sample" where they are equal. Arguments as for ``schedule_bytes``."""
    costs = schedule_bytes(num_requests, fanout, num_nodes, num_edges, id_bytes, adjacency_cost, thresholds)
    return min(SCHEDULES, key=costs.__getitem__)
