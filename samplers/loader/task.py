"""``SampleTask``, which samples the batch of a step and gathers its features and labels. Workers and loaders run it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.ring import Allocate, Spec, allocate_private, total_bytes
from hoptrain.engine.schedule import StepSchedule
from hoptrain.kernels.shared.philox import MAX_EPOCH
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import SampledBatch
from hoptrain.samplers.batch.serialise import EdgeIds, Header, PackedBatch, header_of
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import no_edges
from hoptrain.samplers.loader.check_batch import check_batch
from hoptrain.samplers.loader.gather import gather_all, gather_rows, named_rows, start_gathering

if TYPE_CHECKING:  # not imported at run time, since most workers need only one kind of sampler
    from hoptrain.samplers.loader.topology.edges import EdgeFiles
    from hoptrain.samplers.superbatch.transport import BatchReceiver

BatchAndRows: TypeAlias = tuple[SampledBatch, list[tuple[str, Any, Array]]]


@dataclass(eq=False, kw_only=True, slots=True)
class SampleTask:
    """A ``hoptrain.engine.queue.worker.Task`` that writes the structure and the rows of a mini-batch directly into a queue slot.

    Attributes:
        graph: the graph to sample.
        stores: tables of node and edge data by their name in a batch (``Dataset.stores``): arrays, or cached rows of a file (``CachedFeatures``).
        sampler: the prepared sampler.
        schedule: the schedule that determines the items and the address of each batch.
        workspace: scratch memory of the process that makes the batches.
        is_checked: True if a batch of the sampler has been checked completely in this process.
        receiver: receiver of batches that were sampled by the process that fills the feature cache; None without one. Batches that it has not kept are
            sampled here, as are those of ``rehearse``.
        edges: files of the graph's edges, if these do not fit in memory.
        gathers_x: False if the memory of the rows ``x`` is left undefined, and whoever reads them gathers them.
    """

    graph: Any
    stores: dict[str, Any]
    sampler: Sampler[Any, Any]
    schedule: StepSchedule
    workspace: Workspace
    is_checked: bool = False
    receiver: BatchReceiver | None = None
    edges: EdgeFiles | None = None
    gathers_x: bool = True

    def rehearse(self, epoch: int) -> int:
        """Make the first batch of an epoch on the CPU and return its size in bytes. Workers that start later load the compiled kernels from disk."""
        sizes: list[int] = []

        def allocate(specs: Sequence[Spec]) -> dict[str, Array]:
            sizes.append(total_bytes(specs))
            return allocate_private(specs)

        replace(self, workspace=Workspace()).make_batch(epoch, 0, allocate)
        return sizes[0]

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> Header:
        """Make the batch of a step in arrays from ``allocate`` and return its header. With a feature cache, ``epoch`` is a ``run_and_epoch``."""
        begin = time.perf_counter()
        run, epoch = divmod(epoch, MAX_EPOCH)
        batch, edge_ids = self._received(run, step) or self._sampled(epoch, step)
        rows = self.rows_of(batch, edge_ids)
        structure = batch.arrays()
        sampled = time.perf_counter()
        specs = [(name, array.dtype, array.shape) for name, array in structure.items()]
        out = allocate([*specs, *_specs_of(rows)])
        for name, array in structure.items():
            out[name][...] = array
        now = [(store, ids, out[name]) for name, store, ids in rows if isinstance(store, np.ndarray) and (self.gathers_x or name != "x")]
        gather_all(now, self.workspace)
        for name, store, ids in rows:
            if not isinstance(store, np.ndarray):
                store.gather(ids, out[name], run, step, self.workspace)
        return header_of(
            batch,
            num_step_seeds=self.num_step_seeds(step, batch),
            sample_s=sampled - begin,
            gather_s=time.perf_counter() - sampled,
            made_at=begin,
            pid=os.getpid(),
        )

    def sampled(self, epoch: int, step: int) -> SampledBatch:
        """Return the batch of a step without feature rows. Its arrays are in the workspace, and valid until the next batch."""
        return self._sampled(epoch, step)[0]

    def with_rows(self, epoch: int, step: int) -> BatchAndRows:
        """Return the batch of a step, and name, store and row ids of each array of rows that it takes. All are valid until the next batch."""
        batch, ids = self._sampled(epoch, step)
        return batch, self.rows_of(batch, ids)

    def rows_of(self, batch: SampledBatch | PackedBatch, ids: EdgeIds) -> list[tuple[str, Any, Array]]:
        """Return name, store and row ids of each array of rows that a batch takes; ``ids`` has edge ids that were looked up before."""
        return list(named_rows(batch, self.stores, lambda store, name, at: ids[name] if name in ids else self._edge_rows(store, name, at)))

    def _received(self, run: int, step: int) -> tuple[PackedBatch, EdgeIds] | None:
        """Return the batch of a step that another process has sampled; None if there is none."""
        return self.receiver.batch(run, step) if self.receiver is not None and run else None

    def _sampled(self, epoch: int, step: int) -> tuple[SampledBatch, EdgeIds]:
        items, address = self.schedule.batch_items(epoch, step), self.schedule.address(epoch, step)
        if self.edges is not None:
            return self.edges.batches(self.sampler, [(items, address)])[0]
        found = self._on_host(self.sampler.sample(self.graph, items, **address._asdict(), workspace=self.workspace))
        check_batch(found, self.sampler, self.graph, None if self.is_checked else items)
        self.is_checked = True
        return found, {}

    def start_rows(self, batch: SampledBatch, allocate: Allocate) -> tuple[dict[str, Array], Callable[[], None]]:
        """Return arrays from ``allocate`` for the rows of a sampled batch, by name, and a function that waits until all threads have filled them."""
        rows = list(named_rows(batch, self.stores, self._edge_rows))
        out = allocate(_specs_of(rows))
        return out, start_gathering([(store, ids, out[name]) for name, store, ids in rows], self.workspace)

    def _on_host(self, batch: SampledBatch) -> SampledBatch:
        """Return the batch with all of its arrays on the host; arrays of a device are copied together."""
        if self.workspace.device == "cpu":
            return batch
        arrays: list[Any] = []

        def note(array: Any) -> Any:
            arrays.append(array)
            return array

        batch.map(note)
        copies = iter(self.workspace.staging.fetch(arrays))
        return batch.map(lambda _: next(copies))

    def _edge_rows(self, store: str, name: str, places: Array) -> Array:
        """Return the rows (M,) of a store for the edges at CSC positions ``places`` (M,): their edge ids, in memory of the workspace."""
        relation = store.partition(".")[2]
        ids: Array | None = (self.graph.relations[tuple(relation.split(":"))] if relation else self.graph).edge_ids
        if len(places) and places.min() < 0:
            raise no_edges(type(self.sampler).__name__)
        if ids is None:
            return places
        out = self.workspace.array(name, len(places), ids.dtype)
        gather_rows(ids, places, out, self.workspace)
        return out

    def num_step_seeds(self, step: int, batch: SampledBatch | PackedBatch) -> int:
        """Return the number of seeds of a step over all ranks; if batches choose their own seeds, every rank is assumed to have as many as ``batch``."""
        return self.schedule.num_step_items(step) if self.sampler.by_seeds else batch.num_seeds * self.schedule.world_size


def _specs_of(rows: Sequence[tuple[str, Array, Array]]) -> list[Spec]:
    """Return the specs of the arrays for the rows of each (name, store, ids)."""
    return [(name, store.dtype, (len(ids), *store.shape[1:])) for name, store, ids in rows]
