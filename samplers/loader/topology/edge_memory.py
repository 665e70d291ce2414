"""The decision whether a graph's edges are read from files or memory-mapped, and the division of memory for reading them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from hoptrain.engine import Graph, HeteroGraph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.machine import available_memory
from hoptrain.engine.queue.shared_memory import mapped_file
from hoptrain.engine.storage.file_rows import FileRows, StoredRows
from hoptrain.engine.storage.plan import IN_FLIGHT
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE, bytes_for
from hoptrain.samplers.batch.minibatch import named
from hoptrain.samplers.buffers.alias import TABLES_BYTES
from hoptrain.samplers.hops import columns_of, types_of
from hoptrain.samplers.loader.memory_left import held_whole
from hoptrain.samplers.loader.task import SampleTask
from hoptrain.samplers.loader.topology.edges import EDGE_ROWS, EdgeFiles

_log = logging.getLogger(__name__)

EDGE_SHARE = 4
"""If edges are read from files, 1 / ``EDGE_SHARE`` of the memory is for future steps that are sampled together and for their batches."""
SAMPLE_SHARE = 16
"""If the graph is in memory, 1 / ``SAMPLE_SHARE`` of the cache's memory is for batches of future steps."""
HANDED_SHARE = 4
"""If edges are read from files, 1 / ``HANDED_SHARE`` of the memory for future steps is for batches that are being passed to workers."""
_TABLES = {"weights": TABLES_BYTES, "times": 4}
"""Bytes per edge, by edge array, that sampling in memory takes in addition to the array: alias tables for weights, the order of edges for times."""
_LEAST = 2
"""Minimum number of steps in flight, so that rows of one step can be read while trainers use another."""


def are_edges_read(task: SampleTask, memory: int | None, files: Mapping[str, StoredRows], is_said: bool = True) -> bool:
    """Return whether the edges of a task's graph must be read from files, because they do not fit in memory.

    It returns False for samplers that access edges themselves, since these need memory-mapped edges.

    Args:
        task: the loader's task.
        memory: bytes for the feature cache; None for the free memory, of which edges may take half.
        files: the cached tables by the names of their stores; a table takes at most the memory of all of its rows.
        is_said: True to log the result.
    """
    asked = _asked(task) if isinstance(task.graph, Graph | HeteroGraph) else {}
    if not asked:
        return False
    free = available_memory()
    all_rows = sum(bytes_for(file.shape[0], file.shape[0], file.row_bytes) for file in files.values())
    most = all_rows + all_rows // (FORESEEN_SHARE - 1) + sum(held_whole(task.stores, files).values())
    available = max(free // 2 if memory is None else free - min(memory, most), 0)
    size = sum(array.nbytes + _TABLES.get(name.partition(".")[0], 0) * len(array) for name, array in asked.items())
    is_known = task.sampler.hop_sampler is not None
    if size <= available or not is_said:
        return size > available and is_known
    what = "they are read from their file" if is_known else f"they stay mapped, since {type(task.sampler).__name__} accesses them itself"
    much = f"{size / 2**20:,.1f} MiB, and {available / 2**20:,.1f} MiB are available"
    _log.log(logging.INFO if is_known else logging.WARNING, "the graph's edges take %s: %s", much, what)
    return is_known


def edge_files(task: SampleTask) -> EdgeFiles:
    """Return the files of the edges of a task's graph."""
    return EdgeFiles(task.graph, {name: FileRows.of(array, "edges") for name, array in _asked(task).items()})


def _asked(task: SampleTask) -> dict[str, Array]:
    """Return the mapped edge arrays that a task reads, by the names of ``EdgeFiles``.

    These are the sources of edges; their weights or times if the sampler draws by them; and their ids if edges have features.

    Raises:
        InputError: the sampler needs weights and the graph has none.
    """
    sampler, found = task.sampler.hop_sampler, dict[str, Array]()
    draws = sampler.along(task.graph) if sampler else {}
    for relation, columns in columns_of(task.graph).items():
        own = draws[relation].arrays(columns) if draws else {"indices": columns.indices}
        if draws and named(EDGE_ROWS, relation) in task.stores and columns.edge_ids is not None:
            own["edge_ids"] = columns.edge_ids
        found |= {named(name, relation): array for name, array in own.items() if mapped_file(array) is not None}
    return found


def steps_in_flight(task: SampleTask, memory: int, num_ranks: int) -> int:
    """Return how many steps may be passed to the ranks of a machine at once: as many as fit in ``memory`` bytes."""
    # an edge takes a position, a source, and an id or a weight; nodes are ignored, since they are fewer than edges
    of_edge: int = max(2 * id_dtype(own.num_edges).itemsize + own.indices.itemsize for own in columns_of(task.graph).values())
    return min(max(memory // (num_ranks * _num_edges(task) * of_edge), _LEAST), IN_FLIGHT)


def _num_edges(task: SampleTask) -> int:
    """Return an upper bound of the edges of a batch. For hops that take all edges of a node, or a fraction, it is an estimate from the average degree."""
    sampler: Any = task.sampler.hop_sampler
    draws, columns = sampler.along(task.graph), columns_of(task.graph)
    sizes = {kind: number for kind, (number, _) in types_of(task.graph).items()}
    ends = 1 if sampler is task.sampler else 2 + 2 * getattr(task.sampler, "num_negatives", 0)
    seeded = getattr(sampler, "seed_type", None)
    batch_size = task.schedule.num_step_items(0) // task.schedule.world_size
    num_nodes = {kind: batch_size * ends + 1 if seeded in (None, kind) else 0 for kind in sizes}
    total = 0
    for hop in range(sampler.num_hops):
        found = dict.fromkeys(sizes, 0)
        for relation, own in columns.items():
            found[relation[0]] += _edges_of(draws[relation].fanouts[hop], num_nodes[relation[2]], own)
        total += sum(found.values())
        num_nodes = {kind: min(number + found[kind], sizes[kind]) for kind, number in num_nodes.items()}
    return max(1, total)


def _edges_of(fanout: int | float, num_nodes: int, columns: RelationColumns) -> int:
    """Return an estimate of the number of edges that ``num_nodes`` nodes draw with ``fanout``."""
    edges = -(-num_nodes * columns.num_edges // max(1, columns.num_nodes))
    if isinstance(fanout, float):
        return int(edges * fanout) + num_nodes  # num_nodes is added because the number of edges of each node is rounded up
    return edges if fanout < 0 else num_nodes * int(fanout)
