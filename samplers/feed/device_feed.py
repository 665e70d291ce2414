"""Batches sampled in the training process, on a stream of their own beside the training: one bulk ahead of the batches that are taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Generic

from hoptrain.engine import WorkerError
from hoptrain.engine.device import DeviceStream, check_cuda
from hoptrain.engine.device_store import DeviceRows
from hoptrain.samplers.base import SomeBatch
from hoptrain.samplers.feed.check_batch import check_batch
from hoptrain.samplers.feed.task import SampleTask


class DeviceFeed(Generic[SomeBatch]):
    """Samples bulks on a CUDA device and gathers features and labels there.

    A batch owns its memory (torch's, where torch is in the process): it stays good for as long as it is held. The host waits only for a bulk's
    sizes, which it asked for one bulk earlier; the training's stream waits for the batch on the device.
    """

    def __init__(self, task: SampleTask, bulk: int) -> None:
        """Copy features and labels to where the device reads them; the sampler copies the graph with the first bulk.

        Args:
            task: what a batch is; its workspace is on "cuda", and its ``placement`` holds for the rows as well.
            bulk: batches that are sampled at once.

        Raises:
            InputError: CUDA cannot be used.
        """
        check_cuda()
        workspace = task.workspace
        self._task, self._bulk, self._stream = task, bulk, workspace.stream
        self._beside = DeviceStream(
            workspace.gpu
        )  # rows are gathered on a stream of their own, lest they wait for the bulk that is sampled ahead
        self._rows = {
            name: DeviceRows(store, self._beside, placement=workspace.placement, thresholds=workspace.on_device.thresholds)
            for name, store in task.stores.items()
        }
        self._run = 0

    def run(self, epoch: int, steps: range) -> Iterator[SomeBatch]:
        """The batches of ``steps``, in order. A new run ends the one before."""
        self._run += 1
        self._stream.synchronize()  # a bulk that the run before had under way would be overwritten
        return self._batches(self._run, epoch, [steps[i : i + self._bulk] for i in range(0, len(steps), self._bulk)])

    def _batches(self, run: int, epoch: int, bulks: list[range]) -> Iterator[SomeBatch]:
        finish = self._start(epoch, bulks[0]) if bulks else list
        for bulk, following in zip(bulks, [*bulks[1:], None], strict=True):
            begin = time.perf_counter()
            batches = [batch.map(self._stream.copy) for batch in finish()]
            self._beside.wait_for(self._stream)
            if following is not None:  # the copies are queued before it
                finish = self._start(epoch, following)
            sample_s = (time.perf_counter() - begin) / len(bulk)
            for step, batch in zip(bulk, batches, strict=True):
                self._check(run, step)
                check_batch(batch, self._task.sampler, self._task.graph)
                begin = time.perf_counter()
                ids_of = batch.row_ids()
                rows = {name: store.gather_here(ids_of[name]) for name, store in self._rows.items()}
                filled = batch.with_rows(rows)
                self._beside.hand_to_torch(*batch.arrays().values(), *rows.values())
                gather_s = time.perf_counter() - begin
                yield replace(filled, num_step_seeds=self._task.num_step_seeds(step, batch), sample_s=sample_s, gather_s=gather_s)

    def _start(self, epoch: int, steps: range) -> Callable[[], list[SomeBatch]]:
        task = self._task
        seeds = [task.schedule.batch_items(epoch, step) for step in steps]
        first = task.schedule.batch_number(steps[0])
        return task.sampler.start_bulk(task.graph, seeds, seed=task.schedule.seed, epoch=epoch, first_batch=first, workspace=task.workspace)

    def _check(self, run: int, step: int) -> None:
        if run != self._run:
            raise WorkerError(
                f"batch {step} was asked of an iterator that is no longer valid: its loader was iterated anew; take a new iterator"
            )
