"""How fast is sampling with a graph's edges in a file, in a memory map and in memory, and what does it cost to transfer a batch between processes?"""

from __future__ import annotations

import mmap
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.baselines.loaders import touch
from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.common.rounds import time_rounds
from hoptrain.benchmarks.storage.sources import InMemory, join
from hoptrain.benchmarks.storage.speed import System, control_group, drop_cached
from hoptrain.engine import Dataset, Graph, HeteroDataset, HeteroGraph, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.queue.message_slot import SharedMessageSlot
from hoptrain.engine.queue.options import DEFAULTS
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.engine.queue.ring import Allocate
from hoptrain.engine.queue.shared_memory import mapped_files
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.shared_rows import CachedTable, SharedRows, tag_of
from hoptrain.samplers import HeteroLaborSampler, HeteroSampler, LaborSampler, NeighborSampler, Workspace
from hoptrain.samplers.batch.serialise import written
from hoptrain.samplers.buffers.workspace import DIRECT_TABLE_BYTES
from hoptrain.samplers.hops import columns_of, types_of
from hoptrain.samplers.loader.check_batch import prepared
from hoptrain.samplers.loader.feature_cache import LOOKAHEAD, FeatureCache
from hoptrain.samplers.loader.memory_left import budget_of
from hoptrain.samplers.loader.task import SampleTask
from hoptrain.samplers.loader.topology.edge_memory import EDGE_SHARE, edge_files
from hoptrain.samplers.superbatch.transport import BatchReceiver, put

MEMORY, TIER, MAP = "in memory", "tier", "map, MADV_RANDOM"
_ROW = 4
"""Number of features of a node. All systems keep the features in memory, so that only the place of the edges makes a difference."""
_WARM = 256
"""Number of warm-up steps, in which hoptrain's feature cache (the tier) reads the features."""
_STEPS = 32
_SCRATCH = 40 << 20
"""Bytes that a process needs to sample a batch and to process its arrays."""


@dataclass(eq=False, kw_only=True)
class _MappedEdges:
    """A task of ``WorkerPool`` that samples from memory-mapped edges, in a control group if one is given."""

    task: SampleTask
    group: Path | None

    @cached_property
    def _ready(self) -> bool:
        if self.group is not None:
            join(self.group)
        for file in _maps(self.task.graph):
            file.base.madvise(mmap.MADV_RANDOM)
        return True

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> Any:
        """Join the control group and advise the kernel before the first batch, and make a batch."""
        return self._ready and self.task.make_batch(epoch, step, allocate)


def speed(
    data: Dataset | HeteroDataset, fanouts: list[int], batch_size: int, batches: int, rounds: int
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Measure mini-batches a second with edges read by the tier, mapped, and in memory. Return records and a part of the summary.

    Each system has one process that samples and gathers; the tier has another one, which samples ahead. A quarter of the tier's memory is for edges, the
    rest for the features. The control group of the map's process holds as many bytes of edges, and everything else that the process needs.
    """
    rows, facts = list[dict[str, Any]](), {"graph": data.name, "part": "edges"}
    with _opened(data, fanouts, batch_size, batches) as (systems, edges, share):
        systems[TIER].take(0, range(min(_WARM, systems[TIER].schedule.num_steps)))
        costs = time_rounds(systems, rounds)
    for name, cost in costs.items():
        limit = "control group" if systems[name].group else "dropped pages" if name == MAP else None
        rows.append(facts | {"system": name, "batches_s": 1e9 / cost.median, "spread": cost.spread, "limit": limit})
    next(row for row in rows if row["system"] == TIER).update(edges_mib=edges / 2**20, share=share)
    tier = costs[TIER].ns
    return rows, {"min_edges_over_map": costs[MAP].over(tier), "min_edges_share_of_memory_speed": costs[MEMORY].over(tier)}


@contextmanager
def _opened(data: Any, fanouts: list[int], batch_size: int, batches: int) -> Iterator[tuple[dict[str, System], int, float]]:
    """Return the systems, the bytes of all edges, and the share of the edges that fits into the tier's memory for edges."""
    sampler: Any = NeighborSampler(fanouts) if isinstance(data, Dataset) else HeteroSampler(fanouts, data.seed_type)
    sampler, items = prepared(sampler, data.graph, data.split("train"))
    schedule, systems = Schedule(items=items, batch_size=batch_size, seed=options.SEED), dict[str, System]()
    with tempfile.TemporaryDirectory(dir=data.path.parent) as folder:
        stores = {
            name: _table(Path(folder, f"{i}.npy"), len(store)) for i, (name, store) in enumerate(data.stores().items()) if name[0] == "x"
        }
        files = {name: FileRows.of(store, "features") for name, store in stores.items()}
        in_memory = _in_memory(data.graph)
        edges = sum(own.indices.nbytes for own in columns_of(in_memory).values())
        memory = budget_of(stores, files, 0, EDGE_SHARE).least({name: len(store) for name, store in stores.items()})

        def system(
            graph: Any, own: dict[str, Any], memory: int | None = None, group: Path | None = None, is_mapped: bool = False
        ) -> System:
            task = SampleTask(graph=graph, stores=dict(own), sampler=sampler, schedule=schedule, workspace=Workspace())
            tier = None
            if memory is not None:
                task.edges = edge_files(task)
                tier = FeatureCache(task, memory, LOOKAHEAD, 1, DEFAULTS)
            size = SampleTask(graph=in_memory, stores=dict(own), sampler=sampler, schedule=schedule, workspace=Workspace()).rehearse(0)
            pool: WorkerPool = WorkerPool(_MappedEdges(task=task, group=group) if is_mapped else task, 1, batch_bytes=size)
            dropped = [str(file.filename) for file in _maps(graph)] if is_mapped and not group else []
            return System(schedule=schedule, pool=pool, batches=batches, use=_read, tier=tier, group=group, dropped=dropped, filled=[])

        own = {name: InMemory(file=file) for name, file in files.items()}
        limit = memory // EDGE_SHARE + sum(store.nbytes for store in stores.values()) + _beside(in_memory)
        for file in _maps(data.graph):  # drops the pages that copying the graph has read
            file.base.madvise(mmap.MADV_DONTNEED)
            drop_cached(str(file.filename))
        try:
            systems[MEMORY] = system(in_memory, own)
            systems[TIER] = system(data.graph, stores, memory)
            systems[MAP] = system(data.graph, own, group=control_group("edges", limit), is_mapped=True)
            yield systems, edges, memory / EDGE_SHARE / edges
        finally:
            for each in systems.values():
                each.close()


def _table(path: Path, number: int) -> Array:
    """Write an array (number, 4) int32 to a file, and return it memory-mapped."""
    np.save(path, np.arange(_ROW * number, dtype=np.int32).reshape(number, _ROW))
    table: Array = np.load(path, mmap_mode="r")
    return table


def _maps(graph: Graph | HeteroGraph) -> list[Any]:
    return mapped_files(*(array for own in columns_of(graph).values() for name, array in own.arrays().items() if name != "indptr"))


def _in_memory(graph: Graph | HeteroGraph) -> Graph | HeteroGraph:
    if isinstance(graph, Graph):
        return graph.in_memory()
    made = HeteroGraph(graph.num_nodes, {})
    for relation, own in graph.relations.items():
        made.relations[relation] = RelationColumns(np.array(own.indptr), np.array(own.indices), own.num_src, validate=False)
    return made


def _beside(graph: Graph | HeteroGraph) -> int:
    """Return the bytes that a process needs in addition to edges and features: row pointers, tables of nodes, and the arrays of a batch."""
    tables = sum(min(DIRECT_TABLE_BYTES, 4 * number) for number, _ in types_of(graph).values())
    return _SCRATCH + tables + sum(own.indptr.nbytes for own in columns_of(graph).values())


def _read(batch: Any) -> None:
    """Read one value of every cache line of the features of a mini-batch."""
    for rows in batch.x.values() if isinstance(batch.x, dict) else [batch.x]:
        touch(rows.view(np.uint8).reshape(len(rows), -1), 64)


def handover(
    data: Dataset | HeteroDataset, fanouts: list[int], batch_size: int, is_quick: bool
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Measure the processor time that it takes to transfer a sampled step between processes. Return records and a part of the summary.

    Records have the median milliseconds of processor time of a step on the graph in memory: to sample it (``sample_ms``), to serialise and send it in the
    process that samples ahead (``hand_ms``), and to receive it in a sampler process (``take_ms``).
    """
    graph, records, ratios = _in_memory(data.graph), [], []
    samplers: list[Any] = [NeighborSampler(fanouts), LaborSampler(fanouts)]
    if isinstance(data, HeteroDataset):
        samplers = [HeteroSampler(fanouts, data.seed_type), HeteroLaborSampler(fanouts, data.seed_type)]
    for each in samplers:
        sampler, items = prepared(each, graph, data.split("train"))
        schedule = Schedule(items=items, batch_size=batch_size, seed=options.SEED)
        task = SampleTask(graph=graph, stores={}, sampler=sampler, schedule=schedule, workspace=Workspace())
        box, shared = SharedMessageSlot.make(), SharedRows.make([CachedTable(1, 1, 1, 1)], 1)
        receiver = BatchReceiver(boxes=[box], shared=shared, rank=0, patience_s=60.0)
        times: list[list[float]] = []
        for number in range(2 + (4 if is_quick else _STEPS)):
            step, at = number % schedule.num_steps, [time.thread_time()]
            batch = task.sampled(0, step)
            at.append(time.thread_time())
            put([box], tag_of(1, number), written(batch))
            at.append(time.thread_time())
            shared.publish(tag_of(1, number))
            receiver.batch(1, number)
            times.append(np.diff([*at, time.thread_time()]).tolist())
        sample, hand, take = (1e3 * statistics.median(column) for column in zip(*times[2:], strict=True))
        own = {"sampler": type(each).__name__, "sample_ms": sample, "hand_ms": hand, "take_ms": take, "edges": batch.num_edges}
        records.append({"graph": data.name, "part": "handover", **own})
        ratios.append(take / sample)
    return records, {"max_take_over_sample": max(ratios)}
