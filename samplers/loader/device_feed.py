"""``DeviceFeed``, which samples batches on the GPU of the training process. It samples several batches (a bulk) at once, on its own stream, one bulk ahead."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Generic

from hoptrain.engine import InputError, WorkerError
from hoptrain.engine.arrays import Array
from hoptrain.engine.device import check_cuda
from hoptrain.engine.errors import explain_hint
from hoptrain.engine.features.quantized import QuantParams
from hoptrain.engine.gpu_memory.device_store import DeviceRows
from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.samplers.base import SomeBatch
from hoptrain.samplers.batch.transfer import expanded_here
from hoptrain.samplers.loader.check_batch import check_batch
from hoptrain.samplers.loader.gather import named_rows, with_columns
from hoptrain.samplers.loader.gpu_cache import HitRates, ScheduledBulk, keep_hot_rows
from hoptrain.samplers.loader.task import SampleTask

_log = logging.getLogger(__name__)

BULK_SEEDS = 8192
"""Default number of seeds of a bulk (batches that are sampled together). A bulk has a fixed cost, so that it pays to sample small batches together."""
MOST_AHEAD = 8
"""Maximum number of batches, with their gathered rows, that the host queues ahead of the training. Without this limit, bulks of 64 would allow 128."""


def default_bulk(batch_size: int, num_steps: int, single_item: bool) -> int:
    """Return how many batches to sample at once: as many as have ``BULK_SEEDS`` seeds, but 2 to 64, and few enough for four bulks in an epoch.

    Args:
        batch_size: seeds of a batch.
        num_steps: batches of an epoch.
        single_item: True if a batch is one item, such as a random subgraph. Then ``batch_size`` does not determine its size, and a bulk has 8 batches.
    """
    wished = 8 if single_item else min(max(BULK_SEEDS // batch_size, 2), 64)
    return max(1, min(wished, num_steps // 4))


def in_bulks(steps: Iterable[int], bulk: int) -> Iterator[range]:
    """Yield consecutive steps in groups of ``bulk``; the last group may be smaller."""
    steps = iter(steps)
    while some := list(islice(steps, bulk)):
        yield range(some[0], some[-1] + 1)


class DeviceFeed(Generic[SomeBatch]):
    """A feed that samples bulks of batches on a CUDA device, and gathers features and labels there.

    A batch owns its memory, which comes from torch's allocator if torch is imported, and stays valid as long as it is referenced. The host waits only for
    the sizes of a bulk, which it requested one bulk earlier. The training's stream waits for the batch on the device.

    Attributes:
        hit_rates: fraction of row reads that hit the cache in device memory; None without a cache.
        beside: stream on which rows are gathered.
        placement: memory for features and labels: "device", "pinned" or "auto".
    """

    def __init__(
        self,
        task: SampleTask,
        bulk: int | None,
        placement: str = "auto",
        gpu_cache: float | str | None = None,
        epoch: int = 0,
        columns: Mapping[str, QuantParams] | None = None,
        counted: Iterable[ScheduledBulk] | None = None,
    ) -> None:
        """Copy features and labels to the memory in which the device reads them; the sampler copies the graph with the first bulk.

        Args:
            task: task that makes a batch; its workspace is on "cuda".
            bulk: number of batches that are sampled at once; None for ``default_bulk``.
            placement: memory for features and labels: "device", "pinned" or "auto".
            gpu_cache: size of the cache for feature rows in device memory: bytes, or a fraction of the rows. Other rows are read from host memory.
            epoch: epoch whose row reads are counted to choose the cached rows.
            columns: scales of the quantised stores, by name; batches have dequantised features.
            counted: bulks whose row reads are counted; by default those of ``epoch``.

        Raises:
            InputError: CUDA cannot be used; there are no features to cache, or the cache does not fit in memory.
        """
        workspace = task.workspace
        check_cuda(workspace.gpu)
        if gpu_cache is not None and "x" not in task.stores:
            raise InputError(f"gpu_cache is {gpu_cache}: the data set must have one feature table for all nodes; leave it out")
        self._columns = columns or {}
        self._task, self._stream, self.placement = task, workspace.stream, placement
        batch_size = task.schedule.num_step_items(0) // task.schedule.world_size
        self._bulk = bulk or default_bulk(batch_size, task.schedule.num_steps, task.sampler.single_item)
        # Rows are gathered on a separate stream, so that they do not wait for the bulk that is sampled ahead.
        self.beside = DeviceStream(workspace.gpu)
        with self.beside.entered():
            self._place(placement, gpu_cache, epoch, counted)
        self._workspaces = deque([workspace])
        self._waits: deque[Callable[[], None]] = deque()  # for each of the last batches, a function that waits for its training step
        self._run = 0

    def _place(self, placement: str, gpu_cache: float | str | None, epoch: int, counted: Iterable[ScheduledBulk] | None) -> None:
        """Copy the rows to the memory in which the device reads them."""
        task = self._task
        self._rows = {
            name: self.table(store, f"{name} of the data set", "pinned" if gpu_cache is not None and name == "x" else placement)
            for name, store in task.stores.items()
        }
        self._edge_ids: DeviceRows | None = None
        if "edge_attr" in task.stores and task.graph.edge_ids is not None:
            self._edge_ids = self.table(task.graph.edge_ids, "edge_ids of the graph")
        self.hit_rates: HitRates | None = None
        if gpu_cache is not None:
            self.hit_rates = keep_hot_rows(self._rows["x"], gpu_cache, task, self._bulk, epoch, counted)

    def table(self, store: Array, what: str, placement: str | None = None) -> DeviceRows:
        """Return a table that the GPU gathers rows from on the stream ``beside``. ``what`` is its name in messages; ``placement`` is by default the feed's."""
        workspace = self._task.workspace
        options: dict[str, Any] = {"thresholds": workspace.on_device.thresholds, "what": what, "meeting": workspace.meeting}
        return DeviceRows(store, self.beside, placement=placement or self.placement, **options)

    def run(self, epoch: int, steps: Iterable[int]) -> Iterator[SomeBatch]:
        """Yield the batches of consecutive ``steps``, sampled one bulk at a time. Another call ends an unfinished iterator."""
        self._run += 1
        with self._stream.entered():
            self._stream.synchronize()  # otherwise a bulk of the previous iteration could be overwritten
            self.beside.synchronize()
            if self.hit_rates is not None:
                self._rows["x"].take_hits()  # drops the counts of an unfinished iteration
        return self._batches(self._run, epoch, in_bulks(steps, self._bulk))

    def _batches(self, run: int, epoch: int, bulks: Iterator[range]) -> Iterator[SomeBatch]:
        num_rows, following = 0, next(bulks, None)
        finish = self._start(epoch, following) if following is not None else list
        while (bulk := following) is not None:
            begin = time.perf_counter()
            batches = finish()
            following = next(bulks, None)
            if following is not None:
                finish = self._start(epoch, following)
            sample_s = (time.perf_counter() - begin) / len(bulk)
            for i, step in enumerate(bulk):
                self._check(run, step)
                begin = time.perf_counter()
                with self.beside.entered():
                    self._waits.append(self.beside.torch_queued())
                    if len(self._waits) > MOST_AHEAD:
                        self._waits.popleft()()
                    batch = self._copied(batches[i])
                    check_batch(batch, self._task.sampler, self._task.graph)
                    rows = {name: store.gather_here(ids) for name, store, ids in named_rows(batch, self._rows, self._edge_rows)}
                    self.beside.hand_to_torch(*batch.arrays().values(), *rows.values())
                    filled = batch.with_rows({name: expanded_here(own) for name, own in with_columns(rows, self._columns).items()})
                    gather_s = time.perf_counter() - begin
                    num_rows += len(rows["x"]) if self.hit_rates is not None else 0
                    if self.hit_rates is not None and following is None and step == bulk[-1]:
                        self._note_hits(epoch, num_rows, self.hit_rates)
                yield replace(filled, num_step_seeds=self._task.num_step_seeds(step, batch), sample_s=sample_s, gather_s=gather_s)

    def _copied(self, batch: SomeBatch) -> SomeBatch:
        """Return a batch with memory of its own, from a batch that views a bulk's buffers."""
        arrays: list[Any] = []

        def note(array: Any) -> Any:
            arrays.append(array)
            return array

        batch = batch.map(note)
        copies = iter(self.beside.copies(arrays))
        return batch.map(lambda _: next(copies))

    def _start(self, epoch: int, steps: range) -> Callable[[], Sequence[SomeBatch]]:
        """Queue a bulk on the device, into the set of buffers that was not used last. It starts after the batches in these buffers are copied out."""
        task = self._task
        workspace = self._workspaces[0]
        self._workspaces.rotate()
        with self._stream.entered():
            self._stream.wait_for(self.beside)
        seeds = [task.schedule.batch_items(epoch, step) for step in steps]
        first = task.schedule.batch_number(steps[0])
        address = {"seed": task.schedule.seed, "epoch": epoch, "first_batch": first}
        finish = task.sampler.start_bulk(task.graph, seeds, **address, workspace=workspace)
        if len(self._workspaces) == 1:  # the first bulk has copied the graph, which both workspaces share
            self._workspaces.appendleft(workspace.twin())
        return finish

    def _edge_rows(self, _: str, __: str, places: Any) -> Any:
        """Return the ids of the edges at CSC positions ``places``, which are the row numbers of their features."""
        return places if self._edge_ids is None else self._edge_ids.gather_here(places)

    def _note_hits(self, epoch: int, num_rows: int, rates: HitRates) -> None:
        """Read the cache's hit counter once per epoch, before the last batch is yielded, since the consumer may not request another batch."""
        rates.had[epoch] = self._rows["x"].take_hits() / num_rows
        _log.info(
            "gpu_cache: %.1f %% of the row reads of epoch %d were hits (%.1f %% expected)",
            100 * rates.had[epoch],
            epoch,
            100 * rates.expected,
        )

    def _check(self, run: int, step: int) -> None:
        if run != self._run:
            raise WorkerError(
                f"batch {step} was requested of an iterator that is no longer valid: its loader was iterated again; take a new iterator"
                + explain_hint("iterator")
            )
