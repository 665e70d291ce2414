"""Batches sampled in the training process, on a stream of their own beside the training: one bulk ahead of the batches that are taken."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic

from hoptrain.engine import WorkerError
from hoptrain.engine.device import DeviceStream, check_cuda
from hoptrain.engine.device_store import DeviceRows
from hoptrain.samplers.base import SomeBatch
from hoptrain.samplers.feed.check_batch import check_batch
from hoptrain.samplers.feed.gather import named_rows
from hoptrain.samplers.feed.task import SampleTask


class DeviceFeed(Generic[SomeBatch]):
    """Samples bulks on a CUDA device and gathers features and labels there.

    A batch owns its memory (torch's, where torch is in the process): it stays good for as long as it is held. The host waits only for a bulk's
    sizes, which it asked for one bulk earlier; the training's stream waits for the batch on the device.
    """

    def __init__(self, task: SampleTask, bulk: int, placement: str = "auto") -> None:
        """Copy features and labels to where the device reads them; the sampler copies the graph with the first bulk.

        Args:
            task: what a batch is; its workspace is on "cuda".
            bulk: batches that are sampled at once.
            placement: of features and labels, "device", "pinned" or "auto".

        Raises:
            InputError: CUDA cannot be used.
        """
        check_cuda()
        workspace = task.workspace
        self._task, self._bulk, self._stream = task, bulk, workspace.stream
        # Rows are gathered on a stream of their own, lest they wait for the bulk that is sampled ahead.
        self._beside = DeviceStream(workspace.gpu)
        self._rows = {
            name: DeviceRows(store, self._beside, placement=placement, thresholds=workspace.on_device.thresholds)
            for name, store in task.stores.items()
        }
        ids = task.graph.edge_ids if "edge_attr" in task.stores else None
        self._edge_ids = (
            None if ids is None else DeviceRows(ids, self._beside, placement=placement, thresholds=workspace.on_device.thresholds)
        )
        self._workspaces = deque([workspace])
        self._run = 0

    def run(self, epoch: int, steps: range) -> Iterator[SomeBatch]:
        """The batches of ``steps``, in order. A new run ends the one before."""
        self._run += 1
        self._stream.synchronize()  # a bulk that the run before had under way would be overwritten
        self._beside.synchronize()
        return self._batches(self._run, epoch, [steps[i : i + self._bulk] for i in range(0, len(steps), self._bulk)])

    def _batches(self, run: int, epoch: int, bulks: list[range]) -> Iterator[SomeBatch]:
        finish = self._start(epoch, bulks[0]) if bulks else list
        for bulk, following in zip(bulks, [*bulks[1:], None], strict=True):
            begin = time.perf_counter()
            batches = finish()
            if following is not None:
                finish = self._start(epoch, following)
            sample_s = (time.perf_counter() - begin) / len(bulk)
            for i, step in enumerate(bulk):
                self._check(run, step)
                begin = time.perf_counter()
                batch = batches[i].map(self._beside.copy)
                check_batch(batch, self._task.sampler, self._task.graph)
                rows = {name: store.gather_here(ids) for name, store, ids in named_rows(batch, self._rows, self._edge_rows)}
                filled = batch.with_rows(rows)
                self._beside.hand_to_torch(*batch.arrays().values(), *rows.values())
                gather_s = time.perf_counter() - begin
                yield replace(filled, num_step_seeds=self._task.num_step_seeds(step, batch), sample_s=sample_s, gather_s=gather_s)

    def _start(self, epoch: int, steps: range) -> Callable[[], Sequence[SomeBatch]]:
        """Queue a bulk into the buffers of the last one but one, whose batches have all been copied out of them, or will have been by then."""
        task = self._task
        workspace = self._workspaces[0]
        self._workspaces.rotate()
        self._stream.wait_for(self._beside)
        seeds = [task.schedule.batch_items(epoch, step) for step in steps]
        first = task.schedule.batch_number(steps[0])
        address = {"seed": task.schedule.seed, "epoch": epoch, "first_batch": first}
        finish = task.sampler.start_bulk(task.graph, seeds, **address, workspace=workspace)
        if len(self._workspaces) == 1:  # now there is a copy of the graph, which both read
            self._workspaces.appendleft(workspace.twin())
        return finish

    def _edge_rows(self, _: str, places: Any) -> Any:
        """The ids of the edges at ``places``: where their features stand."""
        return places if self._edge_ids is None else self._edge_ids.gather_here(places)

    def _check(self, run: int, step: int) -> None:
        if run != self._run:
            raise WorkerError(
                f"batch {step} was asked of an iterator that is no longer valid: its loader was iterated anew; take a new iterator"
            )
