"""Batches sampled in the training process, on a stream of their own beside the training: one bulk ahead of the batches that are taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from hoptrain.engine import Graph, Schedule, WorkerError
from hoptrain.engine.arrays import Array
from hoptrain.engine.device import check_cuda
from hoptrain.engine.device_store import DeviceRows
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.checks import check_batch
from hoptrain.samplers.scratch.workspace import Workspace


class DeviceFeed:
    """Samples bulks on a CUDA device and gathers features and labels there.

    A batch owns its memory (torch's, where torch is in the process): it stays good for as long as it is held. The host waits only for a bulk's
    sizes, which it asked for one batch earlier; the training's stream waits for the batch on the device.
    """

    def __init__(
        self, graph: Graph, stores: dict[str, Array], sampler: Sampler, schedule: Schedule, workspace: Workspace, bulk: int
    ) -> None:
        """Copy features and labels to where the device reads them.

        Args:
            graph: copied by the sampler, with the first bulk.
            stores: rows by vertex, called "x" (for a batch's nodes) and "y" (for its seeds).
            sampler: the algorithm.
            schedule: seeds of the batches.
            workspace: on "cuda"; its ``placement`` holds for the stores as well.
            bulk: batches that are sampled at once.

        Raises:
            InputError: CUDA cannot be used.
        """
        check_cuda()
        self._stream = workspace.stream
        self._rows = {
            name: DeviceRows(store, workspace.stream, placement=workspace.placement, thresholds=workspace.on_device.thresholds)
            for name, store in stores.items()
        }
        self._graph, self._sampler, self._schedule, self._workspace = graph, sampler, schedule, workspace
        self._bulk = bulk
        self._run = 0

    def run(self, epoch: int, steps: range) -> Iterator[MiniBatch]:
        """The batches of ``steps``, in order. A new run ends the one before."""
        self._run += 1
        self._stream.synchronize()  # a bulk that the run before had under way would be overwritten
        return self._batches(self._run, epoch, [steps[i : i + self._bulk] for i in range(0, len(steps), self._bulk)])

    def _batches(self, run: int, epoch: int, bulks: list[range]) -> Iterator[MiniBatch]:
        finish = self._start(epoch, bulks[0]) if bulks else list
        for bulk, following in zip(bulks, [*bulks[1:], None], strict=True):
            begin = time.perf_counter()
            batches = [batch.map(self._stream.copy) for batch in finish()]
            sample_s = (time.perf_counter() - begin) / len(bulk)
            for step, batch in zip(bulk, batches, strict=True):
                self._check(run, step)
                check_batch(batch, self._sampler, self._graph)
                begin = time.perf_counter()
                filled = self._fill(batch)
                self._stream.hand_to_torch(*filled.arrays().values(), *(rows for rows in (filled.x, filled.y) if rows is not None))
                if step == bulk[-1] and following is not None:
                    finish = self._start(epoch, following)
                gather_s = time.perf_counter() - begin
                deals_seeds, schedule = self._sampler.deals_seeds, self._schedule
                num_step_seeds = schedule.num_step_seeds(step) if deals_seeds else batch.num_seeds * schedule.world_size
                yield replace(filled, num_step_seeds=num_step_seeds, sample_s=sample_s, gather_s=gather_s)

    def _start(self, epoch: int, steps: range) -> Callable[[], list[MiniBatch]]:
        seeds = [self._schedule.batch_seeds(epoch, step) for step in steps]
        return self._sampler.start_bulk(
            self._graph,
            seeds,
            seed=self._schedule.seed,
            epoch=epoch,
            first_batch=self._schedule.batch_number(steps[0]),
            workspace=self._workspace,
        )

    def _fill(self, batch: MiniBatch) -> MiniBatch:
        """Features of the nodes and labels of the seeds."""
        ids = {"x": batch.node_ids, "y": batch.seeds}
        return replace(batch, **{name: rows.gather_here(ids[name]) for name, rows in self._rows.items()})

    def _check(self, run: int, step: int) -> None:
        if run != self._run:
            raise WorkerError(
                f"batch {step} was asked of an iterator that is no longer valid: its loader was iterated anew; take a new iterator"
            )
