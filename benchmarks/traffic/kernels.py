"""Bytes that each CUDA kernel of neighbour sampling reads and writes, from its arguments and the bulk's true sizes.

There is a function for each kernel of ``hoptrain.kernels.cuda``, with the kernel's name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hoptrain.benchmarks.traffic.count import WARP, Count, distinct, sectors_of
from hoptrain.kernels.cuda.draw import DISTINCT


def clear(count: Count) -> None:
    """Count the bytes of a launch that sets all counts to 0."""
    count.writes("counts", len(count["counts"]))


def gather_rows(count: Count) -> None:
    """Count the bytes of a launch that copies a row for each id, from random positions."""
    number, width = count["out"].shape
    count.reads("ids", number)
    count.fetches("rows", number, width)
    count.writes("out", number * width)


# --- counting and drawing ---------------------------------------------------------------------------------------------------------------


def _columns(count: Count, requests: float) -> None:
    """Count the reads of ``indptr``: begin and end of each request's column."""
    count.fetches("indptr", requests, 2)


def count_draws(count: Count) -> None:
    """Count the bytes of a launch that writes a number of draws for each request."""
    number = len(count.requests.vertices)
    count.reads("nodes", number)
    _columns(count, number)
    count.writes("counts", number)


def sample_requests(count: Count) -> None:
    """Count the bytes of a launch in which each request reads its column: all of it in order, or a sector a draw, but each sector at most once."""
    requests, fanout = count.requests, count["fanout"]
    number, degrees = len(requests.vertices), requests.degrees
    taken = takes_all(degrees, fanout, count["mode"])
    copied, drawn = degrees[taken & (degrees > 0)], degrees[~taken & (degrees > 0)]
    size = count["indices"].dtype.itemsize
    count.reads("nodes", number)
    _columns(count, number)
    count.reads("out_indptr", number)
    count.fetches("indices", sectors_of(copied, size).sum() + distinct(fanout, sectors_of(drawn, size)).sum())
    edges = copied.sum() + len(drawn) * fanout
    count.writes("out_edges", edges)
    count.writes("out_neighbors", edges)


def takes_all(degrees: Any, fanout: int, mode: int) -> Any:
    """Return, for nodes with these in-degrees, whether a hop takes all of their in-edges instead of drawing some."""
    if fanout < 0:
        return np.ones(len(degrees), np.bool_)
    return degrees <= fanout if mode == DISTINCT else degrees == 0


# --- scans ------------------------------------------------------------------------------------------------------------------------------


def _tiles(count: Count) -> int:
    items = count.size("end") - count.size("begin")
    return int((-(-items // count.launched.block)).sum())


def scan_tiles(count: Count) -> None:
    """Count the bytes of a launch that scans each tile; one thread writes the tile's sum."""
    items = count.total("begin", "end")
    count.reads("rows", items)
    count.writes("rows", items)
    count.scatters("sums", _tiles(count))


def scan_sums(count: Count) -> None:
    """Count the bytes of a launch that scans the sums of the tiles, with one thread block for each mini-batch."""
    tiles = _tiles(count)
    count.reads("sums", tiles)
    count.writes("sums", tiles)


def add_sums(count: Count) -> None:
    """Count the bytes of a launch that adds the sum of the previous tiles to each item; each warp reads this sum once."""
    items = count.total("begin", "end")
    count.reads("rows", items)
    count.writes("rows", items)
    count.fetches("sums", items / WARP)


# --- relabelling ------------------------------------------------------------------------------------------------------------------------


def enter_direct(count: Count) -> None:
    """Count the bytes of a launch in which each node claims its entry of the direct table."""
    number = int(count.size("count").sum())
    count.reads("source", number)
    count.writes("nodes", number)
    count.fetches("entries", number)
    count.scatters("entries", number)


def find_repeated_direct(count: Count) -> None:
    """Count the bytes of a launch in which each node reads its entry in the direct table, which has an entry for each node of the graph."""
    number = int(count.size("count").sum())
    count.reads("nodes", number)
    count.fetches("entries", number)


def _probes(count: Count, held: float) -> float:
    """Return the expected number of words read to find a node by linear probing (Knuth, TAOCP 3, 6.4) in tables that hold ``held`` nodes in total."""
    load: float = min(0.99, held / (count.num_batches * count["words"].shape[1]))
    return 0.5 * (1 + 1 / (1 - load))


def enter_packed(count: Count) -> None:
    """Count the bytes of a launch in which each node claims a word of the packed table."""
    number = int(count.size("count").sum())
    count.reads("source", number)
    count.writes("nodes", number)
    count.fetches("words", number, _probes(count, number / 2))
    count.scatters("words", number)


def find_repeated_packed(count: Count) -> None:
    """Count the bytes of a launch in which each node finds its word in the packed table and reads the number in it."""
    number = int(count.size("count").sum())
    count.reads("nodes", number)
    count.fetches("words", number, _probes(count, number))


def ask_packed(count: Count) -> None:
    """Count the bytes of a launch in which each edge finds its neighbour's word in the packed table, and stores the word's index. New nodes claim a word."""
    edges = count.total("begin", "end")
    count.reads("neighbors", edges)
    count.fetches("words", edges, _probes(count, count.facts.sizes[f"nodes{count.hop + 1}"].sum()))
    count.scatters("words", count.num_new)
    count.writes("neighbors", edges)


def ask_direct(count: Count) -> None:
    """Count the bytes of a launch in which each edge reads its neighbour's entry of the direct table, and lowers the entry if the node is new."""
    edges = count.total("begin", "end")
    count.reads("neighbors", edges)
    count.fetches("entries", edges)
    count.scatters("entries", count.num_new)


def mark_tiles(count: Count) -> None:
    """Count the bytes of a launch in which each edge reads its neighbour's table entry again, and the first edge of each new node is marked."""
    edges = count.total("begin", "end")
    count.reads("neighbors", edges)
    count.fetches("entries", edges)
    count.writes("neighbors", edges, count.num_new / max(1, edges))
    count.scatters("sums", _tiles(count))


def number_tiles(count: Count) -> None:
    """Count the bytes of a launch that gives the nodes of marked edges their local ids; each warp reads the sum of its tile."""
    edges, new = count.total("begin", "end"), count.num_new
    count.reads("neighbors", edges)
    count.fetches("sums", edges / WARP)
    if count["part_bits"] >= 0:
        count.fetches("entries", new)
    count.writes("nodes", new)
    count.scatters("entries", new)


def read_entries(count: Count) -> None:
    """Count the bytes of a launch that reads the neighbour's local id for each edge."""
    edges = count.total("begin", "end")
    count.reads("neighbors", edges)
    count.fetches("entries", edges)
    count.writes("neighbors", edges)


TABLE: dict[str, Callable[[Count], None]] = {
    function.__name__: function
    for function in (
        clear, gather_rows, count_draws, sample_requests, scan_tiles, scan_sums, add_sums, enter_direct, find_repeated_direct, enter_packed,
        find_repeated_packed, ask_direct, ask_packed, mark_tiles, number_tiles, read_entries,
    )
}  # fmt: skip
"""Name of a kernel -> function that counts the bytes of a launch."""
