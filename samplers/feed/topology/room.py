"""Whether a graph's edges are read from their file, and how the memory for that is shared out."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.machine import available_memory
from hoptrain.engine.partition.rows import PartedRows
from hoptrain.engine.queue.shared_memory import mapped_file
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.handed import HandedSources
from hoptrain.engine.storage.plan import IN_FLIGHT
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE, bytes_for
from hoptrain.samplers.base import FanoutSampler
from hoptrain.samplers.feed.task import EDGE_ROWS, SampleTask
from hoptrain.samplers.feed.topology.sources import EdgeReader, EdgeSources
from hoptrain.samplers.scratch.alias import TABLES_BYTES, drawable_weights

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
    can_ask: bool = getattr(task.sampler, "can_ask", False)
    asked = _asked(task) if can_ask else {"indices": graph.indices}
    size = sum(array.nbytes for array in asked.values()) + (TABLES_BYTES * graph.num_edges if "weights" in asked else 0)
    if size <= room:
        return False
    can_ask = can_ask and all(mapped_file(array) is not None for array in asked.values())
    what = "they are read from their file" if can_ask else f"they stay mapped, since {type(task.sampler).__name__} looks at them itself"
    much = f"{size / 2**20:,.1f} MiB, and there is room for {room / 2**20:,.1f}"
    _log.log(logging.INFO if can_ask else logging.WARNING, "the graph's edges take %s: %s", much, what)
    return can_ask


def edge_sources(task: SampleTask, **options: Any) -> EdgeSources:
    """What tells a task of its edges from their files; ``options`` are further ones of ``EdgeSources``."""
    files = {name: FileRows.of(array, "edges") for name, array in _asked(task).items()}
    return EdgeSources(reader=EdgeReader(files, task.graph.indptr), num_lists=_num_lists(task), **options)


def _asked(task: SampleTask) -> dict[str, Array]:
    """What a task asks for: for each hop the sources of its edges, and before, by weight, which they are; at last, where edges have features, their ids.

    Raises:
        InputError: there are no weights where they are needed.
    """
    graph: Graph = task.graph
    found = {"indices": graph.indices}
    if getattr(task.sampler, "weighted", False):
        found["weights"] = drawable_weights(graph)
    if EDGE_ROWS in task.stores and graph.edge_ids is not None:
        found["edge_ids"] = graph.edge_ids
    return found


def _num_lists(task: SampleTask) -> int:
    asked, hops = _asked(task), cast(FanoutSampler, task.sampler).num_hops
    return hops * (1 + ("weights" in asked)) + ("edge_ids" in asked)


def handed_sources(task: SampleTask, memory: int, num_ranks: int) -> HandedSources:
    """Places for steps in flight of the ranks of a machine, as many as ``memory`` bytes have room for."""
    graph, asked = task.graph, _asked(task)
    dtypes = [id_dtype(graph.num_edges) if name == "weights" else array.dtype for name, array in asked.items()]
    most, likely = (num_ranks * _entries(task, of_all, len(asked)) for of_all in (graph.num_edges, None))
    num_steps = min(max(memory // (likely * np.result_type(*dtypes).itemsize), _LEAST), IN_FLIGHT)
    return HandedSources.make(num_steps, num_ranks * _num_lists(task), most, np.result_type(*dtypes))


def _entries(task: SampleTask, of_all: int | None, lists: int) -> int:
    """What is handed over of a batch at most: ``lists`` of its edges, and a number for each destination of its hops.

    A hop that takes all edges of its vertices, or a share of them, has ``of_all``, by default as many as it takes on average.
    """
    graph, num_nodes, total = task.graph, task.schedule.batch_size + 1, 0
    for fanout in cast(FanoutSampler, task.sampler).fanouts:
        mean = -(-num_nodes * graph.num_edges // max(1, graph.num_nodes))
        if isinstance(fanout, float):
            mean = int(mean * fanout) + num_nodes  # each vertex's number is rounded up
        edges = num_nodes * int(fanout) if fanout >= 1 and isinstance(fanout, int) else mean if of_all is None else of_all
        total += lists * edges + num_nodes
        num_nodes = min(num_nodes + edges, graph.num_nodes)
    return max(1, total)
