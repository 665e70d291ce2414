"""The least time that sampling an edge can take on a machine, from random accesses and copies timed on that machine.

A sampled edge cannot do with less than

* its share of the cache lines of ``indices`` that the mini-batch has to fetch: lines per edge x one random access to as much memory;
* its entry in a relabelling table of 4 bytes a node: one random read and write in 4 V bytes;
* its share of the destinations' offsets: destinations per edge x one random access to as much memory as ``indptr``;
* 12 bytes of output (edge id, local id, and as much again for nodes and offsets) at the speed of a copy,

with nothing of it overlapped: ``floor_per_edge``. Accesses are independent of one another, asked for 64 at a time by software prefetch, and
lie in huge pages where the system grants them (NumPy asks for them); their addresses come from a hash, as a sampler's come from its random
numbers. Lines are counted exactly, in mini-batches that were sampled: a line counts once a mini-batch however many of its edges were drawn.

It is a yardstick of 64 reads under way, not the last limit of the memory: asked for 1024 at a time, reads from 512 MB cost 3.8 instead of
6.3 ns on 2 cores of an AMD EPYC. And where the table outgrows the caches, a hash table may beat the second term.
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
"""Bytes that a processor moves at once."""
OUTPUT_BYTES = 12
READS = 1 << 21
"""Random reads of a measurement."""
_PIECES = 8
"""In which threads take the reads."""
COPY_BYTES = 256 << 20
"""Bytes of the source, and of the destination, of a timed copy. They exceed the CPU caches."""
_IN_FLIGHT = 64
"""Reads asked for before the first of them is used."""

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
    """Count exactly; lines anew for every mini-batch."""
    lines = destinations = edges = 0
    for batch in batches:
        blocks = batch.blocks[:1] if batch.nested else batch.blocks
        edge_ids = np.concatenate([block.edge_ids for block in blocks])
        lines += count_lines(graph.indices, edge_ids, line_bytes)
        destinations += sum(block.num_dst for block in blocks)
        edges += batch.num_edges
    return Work(lines, destinations, edges)


def count_lines(array: Array, places: Array, line_bytes: int = CACHE_LINE) -> int:
    """Distinct lines of memory in which the entries ``array[places]`` lie."""
    offset = array.ctypes.data % line_bytes
    touched = np.zeros((offset + array.nbytes) // line_bytes + 1, np.bool_)
    touched[(places.astype(np.int64) * array.itemsize + offset) // line_bytes] = True
    return int(np.count_nonzero(touched))


def floor_parts(graph: Graph, threads: Iterable[int] = ()) -> dict[str, Callable[[int], int]]:
    """Return the functions to time (``hoptrain.benchmarks.common.rounds``) for one graph, by name: accesses, and bytes copied.

    "line, 2" are the accesses of "line" shared among two of ``threads``: how well the machine itself scales. All together take as much memory as
    the graph has, and half a gigabyte.
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
    """The floor per sampled edge, from what an access of each of ``floor_parts`` costs, in the same unit of time."""
    floor: Array = (
        cost["line"] * (work.lines / work.edges)
        + cost["table"]
        + cost["offsets"] * (work.destinations / work.edges)
        + cost["copy"] * OUTPUT_BYTES
    )
    return floor


def _memory(num_bytes: int) -> Array:
    """Written, since untouched pages would all be the same one."""
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
    """Bytes read and bytes written both count, as is the custom for memory bandwidth."""
    np.copyto(target, source)
    return 2 * source.nbytes


@cpu_kernel
def random_reads(memory: Any, begin: Any, num_reads: Any, places: Any) -> Any:
    """Read entries of ``memory`` at random, ``len(places)`` at a time: the reads from number ``begin``. Returns the sum, so that none can be left out."""
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
    """Add one to entries of ``memory`` at random, ``len(places)`` at a time."""
    for first in range(0, num_updates, len(places)):
        for j in range(len(places)):
            places[j] = bounded(_hash(first + j), len(memory))
            prefetch_many(memory, places[j])
        for j in range(len(places)):
            memory[places[j]] += 1


@cpu_kernel
def _hash(number: Any) -> Any:
    """32 bits that look random."""
    mixed = np.uint64(number + 1) * _GAMMA
    mixed = (mixed ^ (mixed >> _B27)) * _MIX
    return mixed >> _B32
