"""Whether a graph's edges are read from their file, and how the memory for that is shared out."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import cast

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.machine import available_memory
from hoptrain.engine.partition.rows import PartedRows
from hoptrain.engine.queue.shared_memory import mapped_file
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.plan import IN_FLIGHT
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE, bytes_for
from hoptrain.samplers.ahead.draws import can_be_drawn
from hoptrain.samplers.base import FanoutSampler
from hoptrain.samplers.feed.task import SampleTask
from hoptrain.samplers.feed.topology.edges import EDGE_ROWS, EdgeFiles
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
    is_known = can_be_drawn(task.sampler)
    asked = _asked(task) if is_known else {"indices": graph.indices}
    size = sum(array.nbytes for array in asked.values()) + (TABLES_BYTES * graph.num_edges if "weights" in asked else 0)
    if size <= room:
        return False
    is_known = is_known and all(mapped_file(array) is not None for array in asked.values())
    what = "they are read from their file" if is_known else f"they stay mapped, since {type(task.sampler).__name__} looks at them itself"
    much = f"{size / 2**20:,.1f} MiB, and there is room for {room / 2**20:,.1f}"
    _log.log(logging.INFO if is_known else logging.WARNING, "the graph's edges take %s: %s", much, what)
    return is_known


def edge_files(task: SampleTask) -> EdgeFiles:
    """The files of the edges of a task's graph."""
    return EdgeFiles(task.graph, {name: FileRows.of(array, "edges") for name, array in _asked(task).items()})


def _asked(task: SampleTask) -> dict[str, Array]:
    """What is read for a task: the sources of edges; by weight, their weights; where edges have features, their ids.

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


def steps_in_flight(task: SampleTask, memory: int, num_ranks: int) -> int:
    """How many steps are handed over to the ranks of a machine at once: as many as ``memory`` bytes have room for."""
    of_edge: int = 2 * id_dtype(task.graph.num_edges).itemsize + task.graph.indices.itemsize  # place, source, id or weight; nodes are fewer
    return min(max(memory // (num_ranks * _num_edges(task) * of_edge), _LEAST), IN_FLIGHT)


def _num_edges(task: SampleTask) -> int:
    """Edges of a batch, as many as there may be; a hop that takes all edges of its vertices, or a share of them, takes as many as on average."""
    graph, num_nodes, total = task.graph, task.schedule.batch_size + 1, 0
    for fanout in cast(FanoutSampler, task.sampler).fanouts:
        edges = -(-num_nodes * graph.num_edges // max(1, graph.num_nodes))
        if isinstance(fanout, float):
            edges = int(edges * fanout) + num_nodes  # each vertex's number is rounded up
        elif fanout >= 1:
            edges = num_nodes * int(fanout)
        total += edges
        num_nodes = min(num_nodes + edges, graph.num_nodes)
    return max(1, total)
