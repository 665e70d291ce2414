"""A callback that measures the stages of each training batch, for the logs, a trace file and the message about the bottleneck."""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from hoptrain.engine.machine import usable_cores
from hoptrain.engine.storage.bottleneck import slow_rows
from hoptrain.engine.timeline import BatchTimes, Span, Timeline, bottleneck
from hoptrain.engine.trace import TraceFile, trace_path
from hoptrain.samplers.loader.epochs import EpochLoader, Timed

_PATIENCE_S = 5.0  # seconds for a GPU to finish its last steps at the end of a run


class BatchTraceCallback(Callback):
    """A callback that logs how long each stage of a batch takes, and prints the bottleneck at the end of the run.

    It logs means over an epoch, on rank 0: ``time/STAGE`` in seconds per batch for the stages sample, gather, wait, copy and train; ``time/step``,
    the seconds from one batch to the next; and ``queue_mean``, the mean number of batches ready in the queue.
    On a GPU, copy is the time for which the training stream waits for a batch. GPU times are read from CUDA events after they have passed, so
    nothing waits for the GPU.

    Examples:
        >>> import json, pathlib, tempfile
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import NodeDataModule, NeighborSampler, NodeClassifier, BatchTraceCallback
        >>> data = NodeDataModule("digits-knn", NeighborSampler([5, 5]), num_workers=0, seed=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     callbacks = [BatchTraceCallback(f"{folder}/out.json")]
        ...     trainer = Trainer(callbacks=callbacks, fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        ...     trainer.fit(NodeClassifier(data.num_features, data.num_classes, data.num_hops), data)
        ...     events = json.loads(pathlib.Path(folder, "out.json").read_text())["traceEvents"]
        bottleneck: ... (...% of the time)...
        >>> sorted({event["name"] for event in events if event["ph"] == "X"})  # the spans of each batch
        ['copy', 'gather', 'sample', 'train', 'wait']
    """

    def __init__(self, path: str | Path | None = None) -> None:
        """Create the callback.

        Args:
            path: file to write a trace of every batch to (see ``hoptrain.engine.trace``). With several ranks each writes its own file, such as
                ``out.rank0.json`` for ``out.json``. None writes no trace.
        """
        self.path: Path | None = None if path is None else Path(path)
        self._trace: TraceFile | None = None
        self._timeline = Timeline()
        self._pending: deque[_Pending] = deque()  # measurements of steps that the GPU has not finished; empty on a CPU
        self._clock: _Clock = _HostClock()
        self._marks: list[Any] = []  # times of the current batch; empty if it comes from another loader

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Open the trace file.

        Raises:
            InputError: the trace file cannot be written.
        """
        if stage == "fit":
            self._clock = _DeviceClock() if trainer.strategy.root_device.type == "cuda" else _HostClock()
            self._timeline = Timeline()
            if self.path is not None:
                self._trace = TraceFile(trace_path(self.path, trainer.global_rank, trainer.world_size), trainer.global_rank)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reset the sums of times. If a run resumes in the middle of an epoch, Lightning does not call ``on_train_epoch_start`` for that epoch."""
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reset the sums of times, before the epoch's first batch is requested."""
        self._timeline.new_epoch()
        if isinstance(trainer.train_dataloader, EpochLoader):
            trainer.train_dataloader.on_batch = self._on_delivery

    def _on_delivery(self) -> None:
        self._marks = [self._clock.mark()]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Record the time at which the batch is on the device."""
        if self._marks:
            self._marks.append(self._clock.mark())

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Record the time at which the step is done (on a GPU: queued)."""
        loader = trainer.train_dataloader
        if self._marks and isinstance(loader, EpochLoader) and isinstance(batch, Timed):
            marks, self._marks = [*self._marks, self._clock.mark()], []
            self._pending.append(_Pending(_feed_times(batch, loader.last_wait), loader.num_ready, marks))
            self._collect()

    def _collect(self) -> None:
        while self._pending and (times := self._clock.read(self._pending[0].marks)) is not None:
            facts, num_ready, _ = self._pending.popleft()
            delivered, started, done = times
            batch = BatchTimes(**facts, copy=(delivered, started), train=(started, done), num_ready=num_ready)
            self._timeline.add(batch)
            if self._trace is not None:
                self._trace.add(batch)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the means over the batches of the epoch whose times are known."""
        pl_module.log_dict(self._timeline.epoch.means(), batch_size=1, rank_zero_only=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read the times of the last steps, waiting for the GPU for a limited time."""
        deadline = time.monotonic() + _PATIENCE_S
        self._collect()
        while self._pending and time.monotonic() < deadline:
            time.sleep(0.001)
            self._collect()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Complete the trace file; rank 0 prints the bottleneck."""
        if stage == "fit":
            self._close()
            self._print(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Complete the trace file, without steps that a GPU has not finished."""
        self._close()
        if isinstance(exception, KeyboardInterrupt):
            self._print(trainer)

    def _close(self) -> None:
        self._pending.clear()
        if self._trace is not None:
            self._trace.close()
            self._trace = None

    def _print(self, trainer: Trainer) -> None:
        loader = trainer.train_dataloader
        if trainer.is_global_zero and isinstance(loader, EpochLoader) and self._timeline.run.num_batches:
            cores, cache = usable_cores(), getattr(loader, "feature_cache", None)
            slow = None if cache is None else slow_rows(self._timeline.run, cache.filled, cache.wait_s, cache.holds_all)
            sentence = slow or bottleneck(self._timeline.run, loader.num_workers, cores, trainer.num_devices)
            print(f"rank 0's {sentence}" if trainer.world_size > 1 else sentence, flush=True)


class _Pending(NamedTuple):
    facts: dict[str, Any]
    num_ready: int
    marks: list[Any]


def _feed_times(batch: Timed, wait: Span) -> dict[str, Any]:
    """Return the times that the loader measured for a batch, as fields of ``BatchTimes``."""
    if batch.made_at:
        begin, sampled = batch.made_at, batch.made_at + batch.sample_s
        gathered = sampled + batch.gather_s
    else:  # this process sampled a bulk: the wait, minus the gathering, was for the bulk
        begin, gathered = wait
        sampled = max(begin, gathered - batch.gather_s)
    spans = {"sample": (begin, sampled), "gather": (sampled, gathered), "wait": wait}
    return {"epoch": batch.epoch, "batch": batch.batch, "pid": batch.pid or os.getpid()} | spans


class _Clock(Protocol):
    def mark(self) -> Any:
        """Record the time at which the device finishes the work queued so far, and return the mark."""

    def read(self, marks: list[Any]) -> list[float] | None:
        """Return the times of a batch's marks on the clock of ``time.perf_counter``; None if the device has not reached the last one."""


class _HostClock:
    def mark(self) -> float:
        return time.perf_counter()

    def read(self, marks: list[float]) -> list[float]:
        return marks


class _DeviceClock:
    """A clock whose marks are CUDA events. The device measures their differences, which are then converted to the host's clock."""

    def __init__(self) -> None:
        self._last: tuple[Any, float] | None = None  # the event that was read last, and its time on the host's clock

    def mark(self) -> tuple[Any, float]:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event, time.perf_counter()

    def read(self, marks: list[tuple[Any, float]]) -> list[float] | None:
        if not marks[-1][0].query():
            return None
        known_by = time.perf_counter()
        first, queued = marks[0]
        offsets = [first.elapsed_time(event) / 1e3 for event, _ in marks[1:]]
        begin = queued if self._last is None else self._last[1] + self._last[0].elapsed_time(first) / 1e3
        # The clocks drift apart, so the time is clamped: it is not before the event was queued, and not after the event was found to be complete.
        begin = max(min(begin, known_by - offsets[-1]), queued)
        times = [begin, *(begin + offset for offset in offsets)]
        self._last = marks[-1][0], times[-1]
        return times
