"""Whether a graph's edges are read from their file, and how the memory for that is shared out."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from hoptrain.engine import Graph, HeteroGraph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.hetero_graph import RelationColumns
from hoptrain.engine.machine import available_memory
from hoptrain.engine.partition.rows import PartedRows
from hoptrain.engine.queue.shared_memory import mapped_file
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.plan import IN_FLIGHT
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE, bytes_for
from hoptrain.samplers.ahead.relations import along, can_be_grown, columns_of, named, types_of
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
    asked = _asked(task) if isinstance(task.graph, Graph | HeteroGraph) else {}
    if not asked:
        return False
    free = available_memory()
    all_rows = sum(bytes_for(file.shape[0], file.shape[0], file.row_bytes) for file in files)
    most = all_rows + all_rows // (FORESEEN_SHARE - 1)
    room = max(free // 2 if memory is None else free - min(memory, most), 0)
    size = sum(array.nbytes + TABLES_BYTES * len(array) * name.startswith("weights") for name, array in asked.items())
    if size <= room:
        return False
    is_known = can_be_grown(task.sampler)
    what = "they are read from their file" if is_known else f"they stay mapped, since {type(task.sampler).__name__} looks at them itself"
    much = f"{size / 2**20:,.1f} MiB, and there is room for {room / 2**20:,.1f}"
    _log.log(logging.INFO if is_known else logging.WARNING, "the graph's edges take %s: %s", much, what)
    return is_known


def edge_files(task: SampleTask) -> EdgeFiles:
    """The files of the edges of a task's graph."""
    return EdgeFiles(task.graph, {name: FileRows.of(array, "edges") for name, array in _asked(task).items()})


def _asked(task: SampleTask) -> dict[str, Array]:
    """What lies in files of what is read for a task, by the names of ``EdgeFiles``.

    The sources of edges; by weight, their weights; where edges have features, their ids.

    Raises:
        InputError: there are no weights where they are needed.
    """
    is_known, found = can_be_grown(task.sampler), dict[str, Array]()
    samplers = along(task.sampler, task.graph) if is_known else {}
    for relation, columns in columns_of(task.graph).items():
        own = {"indices": columns.indices}
        if is_known and samplers[relation].weighted:
            own["weights"] = drawable_weights(columns)
        if is_known and named(EDGE_ROWS, relation) in task.stores and columns.edge_ids is not None:
            own["edge_ids"] = columns.edge_ids
        found |= {named(name, relation): array for name, array in own.items() if mapped_file(array) is not None}
    return found


def steps_in_flight(task: SampleTask, memory: int, num_ranks: int) -> int:
    """How many steps are handed over to the ranks of a machine at once: as many as ``memory`` bytes have room for."""
    # Place, source, id or weight; nodes are fewer.
    of_edge: int = max(2 * id_dtype(own.num_edges).itemsize + own.indices.itemsize for own in columns_of(task.graph).values())
    return min(max(memory // (num_ranks * _num_edges(task) * of_edge), _LEAST), IN_FLIGHT)


def _num_edges(task: SampleTask) -> int:
    """Edges of a batch, as many as there may be; a hop that takes all edges of its vertices, or a share of them, takes as many as on average."""
    samplers, columns = along(task.sampler, task.graph), columns_of(task.graph)
    sizes = {kind: number for kind, (number, _) in types_of(task.graph).items()}
    seeded = getattr(task.sampler, "seed_type", None)
    num_nodes = {kind: task.schedule.batch_size + 1 if seeded in (None, kind) else 0 for kind in sizes}
    total = 0
    for hop in range(task.sampler.num_hops):
        found = dict.fromkeys(sizes, 0)
        for relation, own in columns.items():
            found[relation[0]] += _edges_of(samplers[relation].fanouts[hop], num_nodes[relation[2]], own)
        total += sum(found.values())
        num_nodes = {kind: min(number + found[kind], sizes[kind]) for kind, number in num_nodes.items()}
    return max(1, total)


def _edges_of(fanout: int | float, num_nodes: int, columns: Graph | RelationColumns) -> int:
    """Edges that so many vertices draw."""
    edges = -(-num_nodes * columns.num_edges // max(1, columns.num_nodes))
    if isinstance(fanout, float):
        return int(edges * fanout) + num_nodes  # each vertex's number is rounded up
    return edges if fanout < 0 else num_nodes * int(fanout)
