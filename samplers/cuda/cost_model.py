"""Choice of the schedule of a hop on a CUDA device, from sizes that the host learned from earlier bulks, without reading anything back."""

from __future__ import annotations

from math import ceil, expm1, log1p

from hoptrain.engine import InputError
from hoptrain.kernels.cuda.thresholds import Thresholds
from hoptrain.kernels.shared.draws import ALL, wanted

SCHEDULES = ("sample", "transit")
KERNELS = ("auto", *SCHEDULES)


def check_kernel(kernel: str) -> None:
    """Raise ``InputError`` for an unknown schedule."""
    if kernel not in KERNELS:
        raise InputError(f"kernel is {kernel!r}: the schedules are {', '.join(KERNELS)}; choose one")


def expected_transits(num_requests: float, num_nodes: int) -> float:
    """Return the expected number of distinct nodes among uniform requests, an upper bound of the mean: with hubs there are fewer."""
    return num_nodes * -expm1(-num_requests / num_nodes)


def schedule_bytes(
    num_requests: float, fanout: int, num_nodes: int, num_edges: int, id_bytes: int, adjacency_cost: float, thresholds: Thresholds
) -> dict[str, float]:
    """Return the bytes that the draws of a hop move, by schedule.

    Consecutive accesses count by their size, any other access as one sector, as if there were no caches. The result is the expectation of what
    ``hoptrain.benchmarks.traffic`` counts launch by launch, if every node has the mean degree and is requested equally often.

    Args:
        num_requests: number of requests of the bulk.
        fanout: fanout of the hop.
        num_nodes: number of nodes of the graph.
        num_edges: number of edges of the graph.
        id_bytes: bytes of a node id.
        adjacency_cost: cost of a byte of ``indices`` relative to a byte of device memory.
        thresholds: constants of the device.
    """
    sector, degree = thresholds.sector_bytes, num_edges / max(1, num_nodes)
    transits = expected_transits(num_requests, max(1, num_nodes))
    number = degree if fanout == ALL else wanted(ceil(degree), fanout)
    is_whole = degree <= number
    edges = degree if is_whole else number
    column = 1 + max(0.0, degree - 1) * id_bytes / sector  # expected number of memory sectors that a column spans
    offsets = sector + id_bytes  # bytes to read the two offsets of a column
    written = 2 * edges * id_bytes
    apart = 2 * (sector + max(0.0, edges - 1) * id_bytes)  # bytes written per request if requests are not consecutive

    def drawn(requests: float) -> float:
        """Return the bytes of a column that ``requests`` requests on it read."""
        sectors = column if is_whole or column <= 1 else column * -expm1(requests * edges * log1p(-1 / column))
        return sectors * sector * adjacency_cost

    again = num_requests - transits  # number of requests for nodes that an earlier request names
    return {
        "sample": num_requests * (offsets + 2 * id_bytes + drawn(1) + written),
        "transit": num_requests * (2 * offsets + 2 * id_bytes + 3 * sector + _RANKS)
        + transits * (2 * offsets + 3 * sector + 4 * id_bytes + _LISTS + written + drawn(num_requests / max(1.0, transits)))
        + again * (3 * sector + apart),
    }


_RANKS = 8
"""Bytes of memory traffic per request for writing and reading its rank among the requests for the same node."""
_LISTS = 64
"""Bytes of memory traffic per transit (a node with requests) for the size, start, class and first member of its group of requests."""


def choose_schedule(
    num_requests: float, fanout: int, num_nodes: int, num_edges: int, id_bytes: int, adjacency_cost: float, thresholds: Thresholds
) -> str:
    """Return the schedule that moves fewer bytes, "sample" if both are equal; see ``schedule_bytes`` for the arguments."""
    costs = schedule_bytes(num_requests, fanout, num_nodes, num_edges, id_bytes, adjacency_cost, thresholds)
    return min(SCHEDULES, key=costs.__getitem__)
