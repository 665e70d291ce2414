"""Which schedule a hop gets on a CUDA device, from what the host knows before the hop: no size is read back for it."""

from __future__ import annotations

from math import expm1

from hoptrain.engine import InputError
from hoptrain.kernels.cuda.thresholds import Thresholds

SCHEDULES = ("sample", "transit")
KERNELS = ("auto", *SCHEDULES)


def check_kernel(kernel: str) -> None:
    """Refuse a schedule that there is not."""
    if kernel not in KERNELS:
        raise InputError(f"kernel is {kernel!r}: the schedules are {', '.join(KERNELS)}; choose one")


def expected_transits(num_requests: float, num_nodes: int) -> float:
    """Different vertices among the requests if each hit any vertex alike: the most there can be on average, hubs only make it fewer."""
    return num_nodes * -expm1(-num_requests / num_nodes)


def schedule_bytes(
    num_requests: int, fanout: int, num_nodes: int, num_edges: int, id_bytes: int, adjacency_cost: float, thresholds: Thresholds
) -> dict[str, float]:
    """Bytes that a hop's drawing moves by schedule, outputs excepted, which are the same.

    Args:
        num_requests: of the bulk, its capacity.
        fanout: of the hop.
        num_nodes: V.
        num_edges: E.
        id_bytes: of a vertex id.
        adjacency_cost: what a byte of ``indices`` costs against one of device memory.
        thresholds: the constants.
    """
    degree = num_edges / max(1, num_nodes)
    transits = expected_transits(num_requests, max(1, num_nodes))
    sector = thresholds.sector_bytes
    whole = degree * id_bytes * adjacency_cost
    drawn = whole if fanout < 0 or degree <= fanout else fanout * sector * adjacency_cost
    offsets = sector
    return {
        "sample": num_requests * (offsets + drawn),
        "transit": num_requests * (thresholds.request_bytes + sector)
        + transits * (thresholds.transit_bytes + offsets)
        + min(num_requests * drawn, transits * max(whole, sector * adjacency_cost)),
    }


def choose_schedule(
    num_requests: int, fanout: int, num_nodes: int, num_edges: int, id_bytes: int, adjacency_cost: float, thresholds: Thresholds
) -> str:
    """The schedule that moves fewer bytes; "sample" where they are equal. Arguments as for ``schedule_bytes``."""
    costs = schedule_bytes(num_requests, fanout, num_nodes, num_edges, id_bytes, adjacency_cost, thresholds)
    return min(SCHEDULES, key=costs.__getitem__)
