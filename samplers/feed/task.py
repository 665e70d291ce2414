"""One step of a feed: sample, then gather features and labels."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hoptrain.engine import Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.ring import Allocate, Spec, allocate_private, total_bytes
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.sampled import SampledBatch
from hoptrain.samplers.checks import no_edges
from hoptrain.samplers.feed.check_batch import check_batch
from hoptrain.samplers.feed.gather import gather_rows, named_rows
from hoptrain.samplers.scratch.workspace import Workspace


@dataclass(eq=False, kw_only=True, slots=True)
class SampleTask:
    """What a worker does: a batch's structure and rows go straight into the slot. It is a ``hoptrain.engine.queue.worker.Task``.

    Attributes:
        graph: what is sampled.
        stores: rows by vertex, and by edge id, by the name that they have for a batch (``Dataset.stores``).
        sampler: the algorithm, prepared.
        schedule: what is in which batch.
        workspace: of the process that makes the batches.
        is_checked: whether a batch of the sampler was checked in full in this process.
    """

    graph: Any
    stores: dict[str, Array]
    sampler: Sampler[Any, Any]
    schedule: Schedule
    workspace: Workspace
    is_checked: bool = False

    def rehearse(self, epoch: int) -> int:
        """Make the first batch here, on the CPU: workers that start now load the compiled kernels from disk. Returns its size in bytes."""
        sizes: list[int] = []

        def allocate(specs: Sequence[Spec]) -> dict[str, Array]:
            sizes.append(total_bytes(specs))
            return allocate_private(specs)

        replace(self, workspace=Workspace()).make_batch(epoch, 0, allocate)
        return sizes[0]

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> SampledBatch:
        """Make the batch of a step in arrays from ``allocate``; returns its header."""
        begin = time.perf_counter()
        items, address = self.schedule.batch_items(epoch, step), self.schedule.address(epoch, step)
        batch = self._on_host(self.sampler.sample(self.graph, items, **address._asdict(), workspace=self.workspace))
        check_batch(batch, self.sampler, self.graph, None if self.is_checked else items)
        self.is_checked = True
        structure = batch.arrays()
        sampled = time.perf_counter()
        specs = [(name, array.dtype, array.shape) for name, array in structure.items()]
        rows = list(named_rows(batch, self.stores, self._edge_rows))
        specs += [(name, store.dtype, (len(ids), *store.shape[1:])) for name, store, ids in rows]
        out = allocate(specs)
        for name, array in structure.items():
            out[name][...] = array
        for name, store, ids in rows:
            gather_rows(store, ids, out[name], self.workspace)
        return batch.header(
            num_step_seeds=self.num_step_seeds(step, batch),
            sample_s=sampled - begin,
            gather_s=time.perf_counter() - sampled,
            made_at=begin,
            pid=os.getpid(),
        )

    def _on_host(self, batch: SampledBatch) -> SampledBatch:
        """The batch with all of its arrays on the host, which those of a device are copied to together."""
        if self.workspace.device == "cpu":
            return batch
        arrays: list[Any] = []

        def note(array: Any) -> Any:
            arrays.append(array)
            return array

        batch.map(note)
        copies = iter(self.workspace.staging.fetch(arrays))
        return batch.map(lambda _: next(copies))

    def _edge_rows(self, name: str, places: Array) -> Array:
        """The ids of the edges at ``places`` (M,), in memory of the workspace: where their features stand."""
        ids: Array | None = self.graph.edge_ids
        if len(places) and places.min() < 0:
            raise no_edges(type(self.sampler).__name__)
        if ids is None:
            return places
        out = self.workspace.array(name, len(places), ids.dtype)
        gather_rows(ids, places, out, self.workspace)
        return out

    def num_step_seeds(self, step: int, batch: SampledBatch) -> int:
        """Seeds of a step over all ranks; where batches choose theirs, as many for each rank as this one has."""
        return self.schedule.num_step_items(step) if self.sampler.by_seeds else batch.num_seeds * self.schedule.world_size
