"""Lower bound on the time to sample an edge, computed from random accesses and copies that are timed on the same machine.

The bound per sampled edge, ``floor_per_edge``, is the sum of

* its share of the cache lines of ``indices`` that the mini-batch reads: lines per edge times one random read from an array of the size of ``indices``;
* its entry in a relabelling table with 4 bytes per node: one random read and write in 4 V bytes;
* its share of the destinations' offsets: destinations per edge times one random read from an array of the size of ``indptr``;
* 12 bytes of output (edge id, local id, and 4 bytes for nodes and offsets) at the speed of a copy.

The accesses are independent of each other, with 64 in flight by software prefetch. The arrays are in huge pages if the system grants them (NumPy
asks for them). Addresses come from a hash, as a sampler's come from random numbers. Cache lines are counted exactly in sampled mini-batches: once per
mini-batch, however many of a line's edges were sampled.

The bound holds for 64 accesses in flight, and a faster sampler is possible. With 1024 in flight a read from 512 MB takes 3.8 instead of 6.3 ns on 2 cores
of an AMD EPYC, and if the table exceeds the caches, a hash table may be faster than the second term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.prefetch import prefetch_many
from hoptrain.kernels.shared.draws import bounded
from hoptrain.samplers import MiniBatch, Workspace

CACHE_LINE = 64
"""Bytes of a cache line."""
OUTPUT_BYTES = 12
READS = 1 << 21
"""Number of random reads per measurement."""
_PIECES = 8
"""Number of equal groups into which the reads are divided; a thread that has finished a group takes the next one."""
COPY_BYTES = 256 << 20
"""Bytes of the source, and of the destination, of a timed copy. They exceed the CPU caches."""
_IN_FLIGHT = 64
"""Number of reads that are prefetched before the first of them is used."""

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_B27 = np.uint64(27)
_B32 = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Work:
    """Work that some mini-batches need in total: distinct ``lines`` of ``indices``, expanded ``destinations``, sampled ``edges``."""

    lines: int
    destinations: int
    edges: int


def count_work(graph: Graph, batches: Sequence[MiniBatch], line_bytes: int = CACHE_LINE) -> Work:
    """Count the work of some mini-batches exactly. A cache line counts once in each mini-batch."""
    lines = destinations = edges = 0
    for batch in batches:
        blocks = batch.blocks[:1] if batch.nested else batch.blocks
        edge_ids = np.concatenate([block.edge_ids for block in blocks])
        lines += count_lines(graph.indices, edge_ids, line_bytes)
        destinations += sum(block.num_dst for block in blocks)
        edges += batch.num_edges
    return Work(lines, destinations, edges)


def count_lines(array: Array, places: Array, line_bytes: int = CACHE_LINE) -> int:
    """Return the number of distinct cache lines in which the elements ``array[places]`` are stored."""
    offset = array.ctypes.data % line_bytes
    touched = np.zeros((offset + array.nbytes) // line_bytes + 1, np.bool_)
    touched[(places.astype(np.int64) * array.itemsize + offset) // line_bytes] = True
    return int(np.count_nonzero(touched))


def floor_parts(graph: Graph, threads: Iterable[int] = ()) -> dict[str, Callable[[int], int]]:
    """Return the functions to time (``hoptrain.benchmarks.common.rounds``) for a graph, by name. Each returns its number of accesses or of copied bytes.

    "line, 2" divides the accesses of "line" among two threads, which shows how well the machine scales. Together the functions take the memory of the
    graph plus half a gigabyte.
    """
    source, target = np.ones(COPY_BYTES, np.uint8), np.zeros(COPY_BYTES, np.uint8)
    lines = _memory(graph.indices.nbytes)
    return {
        "line": _random_reads(lines),
        "table": _random_updates(_memory(4 * graph.num_nodes)),
        "offsets": _random_reads(_memory(graph.indptr.nbytes)),
        "copy": lambda _: _copy(source, target),
        **{f"line, {count}": _random_reads(lines, count) for count in threads if count > 1},
    }


def floor_per_edge(cost: Mapping[str, Array], work: Work) -> Array:
    """Return the lower bound per sampled edge, given the time of one access of each of ``floor_parts``. Times may have any unit."""
    floor: Array = (
        cost["line"] * (work.lines / work.edges)
        + cost["table"]
        + cost["offsets"] * (work.destinations / work.edges)
        + cost["copy"] * OUTPUT_BYTES
    )
    return floor


def _memory(num_bytes: int) -> Array:
    """Return an array of the given size. It is written to, since the pages of an untouched array are all the same physical page."""
    return np.ones(max(1, num_bytes // 4), np.int32)


def _random_reads(memory: Array, threads: int = 1) -> Callable[[int], int]:
    workspace = Workspace(threads)
    places = np.empty((threads, _IN_FLIGHT), np.int64)

    def read_some(pieces: Iterable[int], own: Array) -> None:
        for first in pieces:
            random_reads(memory, first, READS // _PIECES, own)

    def read(_: int) -> int:
        pieces = iter(range(0, READS, READS // _PIECES))
        workspace.run([partial(read_some, pieces, own) for own in places])
        return READS

    return read


def _random_updates(memory: Array) -> Callable[[int], int]:
    places = np.empty(_IN_FLIGHT, np.int64)

    def update(_: int) -> int:
        random_updates(memory, READS, places)
        return READS

    return update


def _copy(source: Array, target: Array) -> int:
    """Copy ``source`` to ``target``. Return the bytes read plus the bytes written, as is usual for memory bandwidth."""
    np.copyto(target, source)
    return 2 * source.nbytes


@cpu_kernel
def random_reads(memory: Any, begin: Any, num_reads: Any, places: Any) -> Any:
    """Read ``num_reads`` random elements of ``memory``, ``len(places)`` at a time. ``begin`` is the index of the first random number.

    Return the sum of the elements, so that the compiler cannot remove the reads.
    """
    total = np.int64(0)
    for first in range(begin, begin + num_reads, len(places)):
        for j in range(len(places)):
            places[j] = bounded(_hash(first + j), len(memory))
            prefetch_many(memory, places[j])
        for j in range(len(places)):
            total += memory[places[j]]
    return total


@cpu_kernel
def random_updates(memory: Any, num_updates: Any, places: Any) -> None:
    """Add one to random elements of ``memory``, ``len(places)`` at a time."""
    for first in range(0, num_updates, len(places)):
        for j in range(len(places)):
            places[j] = bounded(_hash(first + j), len(memory))
            prefetch_many(memory, places[j])
        for j in range(len(places)):
            memory[places[j]] += 1


@cpu_kernel
def _hash(number: Any) -> Any:
    """Return 32 pseudo-random bits."""
    mixed = np.uint64(number + 1) * _GAMMA
    mixed = (mixed ^ (mixed >> _B27)) * _MIX
    return mixed >> _B32
