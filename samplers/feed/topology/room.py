"""Whether a graph's edges are read from their file, and how the memory for that is shared out."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, cast

from hoptrain.engine import Graph
from hoptrain.engine.machine import available_memory
from hoptrain.engine.partition.rows import PartedRows
from hoptrain.engine.queue.shared_memory import mapped_file
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.handed import HandedSources
from hoptrain.engine.storage.plan import IN_FLIGHT
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE, bytes_for
from hoptrain.kernels.shared.draws import ALL
from hoptrain.samplers.base import FanoutSampler
from hoptrain.samplers.feed.task import SampleTask

_log = logging.getLogger(__name__)

EDGE_SHARE = 4
"""A part of this many of the memory is for the edges, where they are read from their file."""
HANDED_SHARE = 4
"""And of that part for what is handed over."""
_LEAST = 2
"""Steps in flight, below which nothing could be read while the trainers have another one."""


def are_edges_read(task: SampleTask, memory: int | None, files: Iterable[FileRows | PartedRows]) -> bool:
    """Whether the edges of a task's graph are to be read from their file, since memory has no room for them; that is said.

    Not by a sampler that looks at them itself: then they stay mapped.

    Args:
        task: a loader's.
        memory: bytes that the rows in files may take; None for what is left, of which edges may take half.
        files: the rows, which take no more than all of them in slots do.
    """
    graph = task.graph
    if not isinstance(graph, Graph) or mapped_file(graph.indices) is None:
        return False
    free = available_memory()
    all_rows = sum(bytes_for(file.shape[0], file.shape[0], file.row_bytes) for file in files)
    most = all_rows + all_rows // (FORESEEN_SHARE - 1)
    room = max(free // 2 if memory is None else free - min(memory, most), 0)
    if graph.indices.nbytes <= room:
        return False
    can_ask: bool = getattr(task.sampler, "can_ask", False)
    what = "they are read from their file" if can_ask else f"they stay mapped, since {type(task.sampler).__name__} looks at them itself"
    much = f"{graph.indices.nbytes / 2**20:,.1f} MiB, and there is room for {room / 2**20:,.1f}"
    _log.log(logging.INFO if can_ask else logging.WARNING, "the graph's edges take %s: %s", much, what)
    return can_ask


def handed_sources(task: SampleTask, memory: int, num_ranks: int) -> HandedSources:
    """Places for steps in flight of the ranks of a machine, as many as ``memory`` bytes have room for."""
    graph, sampler = task.graph, cast(FanoutSampler, task.sampler)
    most, likely = (_edges(graph, sampler.fanout_codes, task.schedule.batch_size + 1, of_all) for of_all in (graph.num_edges, None))
    num_steps = min(max(memory // (likely * num_ranks * graph.indices.dtype.itemsize), _LEAST), IN_FLIGHT)
    return HandedSources.make(num_steps, num_ranks * sampler.num_hops, most * num_ranks, graph.indices.dtype)


def _edges(graph: Any, fanouts: tuple[int, ...], num_nodes: int, of_all: int | None) -> int:
    """The edges of a batch at most; a hop that takes all edges of its vertices has ``of_all``, by default as many as the vertices have on average."""
    total = 0
    for fanout in fanouts:
        mean = -(-num_nodes * graph.num_edges // max(1, graph.num_nodes))
        edges = num_nodes * fanout if fanout != ALL else mean if of_all is None else of_all
        num_nodes = min(num_nodes + edges, graph.num_nodes)
        total += edges
    return max(1, total)
