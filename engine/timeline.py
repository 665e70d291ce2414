"""Sums of the time that batches spend in each stage, and a sentence about the bottleneck.

All times are seconds of ``time.perf_counter``. On Linux that is CLOCK_MONOTONIC, which all processes of a machine share, so times noted by workers
and by the trainer are comparable. Only sums are kept, so memory does not grow with the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

Span = tuple[float, float]
"""Begin and end of an interval, in seconds."""

STAGES = ("sample", "gather", "wait", "copy", "train")

FEED_SHARE = 0.1
"""If a trainer waits for batches for at least this fraction of its time, the loader counts as the bottleneck."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchTimes:
    """The begin and end of each stage of one batch, from sampling to the end of its training step.

    Attributes:
        epoch: index of the epoch.
        batch: index of the batch within the epoch.
        pid: id of the process that sampled the batch; with 0 workers the trainer's.
        sample: begin and end of sampling.
        gather: begin and end of gathering features and labels, after ``sample``.
        wait: request of the batch and its receipt; with 0 workers this interval includes ``sample`` and ``gather``.
        copy: begin and end of the copy to the training device.
        train: begin and end of the training step; on a GPU it ends when its last kernel has finished.
        num_ready: number of further batches that were ready when this one was taken.
    """

    epoch: int
    batch: int
    pid: int
    sample: Span
    gather: Span
    wait: Span
    copy: Span
    train: Span
    num_ready: int


@dataclass(slots=True)
class Totals:
    """Sums of stage times over batches.

    Attributes:
        num_batches: number of batches.
        elapsed: seconds from the first wait to the last step, without the time between epochs.
        seconds: seconds by stage.
        first_waits: seconds of ``wait`` for the first batches of epochs.
        num_ready: sum of ``BatchTimes.num_ready``.
    """

    num_batches: int = 0
    elapsed: float = 0.0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    first_waits: float = 0.0
    num_ready: int = 0

    def add(self, times: BatchTimes, elapsed: float, is_first: bool) -> None:
        """Add a batch that ended ``elapsed`` seconds after the previous one. ``is_first`` marks the first batch of an epoch."""
        self.num_batches += 1
        self.elapsed += elapsed
        for stage in STAGES:
            begin, end = getattr(times, stage)
            self.seconds[stage] += end - begin
        if is_first:
            self.first_waits += times.wait[1] - times.wait[0]
        self.num_ready += times.num_ready

    def means(self) -> dict[str, float]:
        """Return mean seconds per batch, ``time/STAGE`` and ``time/step`` (a whole step), and the mean queue length ``queue_mean``. Empty without batches."""
        if not self.num_batches:
            return {}
        seconds = {f"time/{stage}": total / self.num_batches for stage, total in self.seconds.items()}
        return seconds | {"time/step": self.elapsed / self.num_batches, "queue_mean": self.num_ready / self.num_batches}


class Timeline:
    """The sums of stage times for the current epoch and for the run.

    Attributes:
        epoch: sums of the batches since the last ``new_epoch()``.
        run: sums of all batches except the first, whose wait includes the start of the workers and the loading of compiled code.
    """

    def __init__(self) -> None:
        self.epoch = Totals()
        self.run = Totals()
        self._last: BatchTimes | None = None

    def add(self, times: BatchTimes) -> None:
        """Add a batch. Batches are added in training order."""
        last, self._last = self._last, times
        is_first = last is None or last.epoch != times.epoch
        elapsed = times.train[1] - (times.wait[0] if last is None or is_first else last.train[1])
        self.epoch.add(times, elapsed, is_first)
        if last is not None:
            self.run.add(times, elapsed, is_first)

    def new_epoch(self) -> None:
        """Reset the sums of the epoch."""
        self.epoch = Totals()


def bottleneck(totals: Totals, num_workers: int, num_cores: int, num_ranks: int = 1) -> str:
    """Return one sentence that names the bottleneck and a remedy, derived from the measured shares of the time alone.

    1. With workers, a wait of 10 % of the time or more means that the workers are too slow, because they work in parallel with the trainer. If half of the
       wait is for first batches of epochs, these are named. Otherwise it is the workers' longest stage or, if they are idle half of the time, the
       queue. More workers are proposed if cores are free for them.
    2. Otherwise the largest of copying, training and the time between steps is named; with 0 workers also sampling.

    Args:
        totals: sums of a run.
        num_workers: number of sampler processes of a rank.
        num_cores: number of cores that the ranks of this machine may use.
        num_ranks: number of ranks on this machine.
    """
    if totals.elapsed <= 0:
        return "bottleneck: unknown, fewer than two batches were trained"
    copy, train = (min(totals.seconds[stage] / totals.elapsed, 1.0) for stage in ("copy", "train"))
    # a GPU may still train the previous batch while the host waits: count only time in which neither copy nor training ran
    wait = min(totals.seconds["wait"] / totals.elapsed, max(0.0, 1 - copy - train))
    between = max(0.0, 1 - copy - train - wait)
    if num_workers and wait >= FEED_SHARE:
        return f"bottleneck: {_slow_workers(totals, wait, num_workers, num_cores, num_ranks)}"
    is_core_free = num_cores > num_ranks
    shares = {"train": train, "copy": copy, "between": between}
    if not num_workers:
        shares["wait"] = wait
    largest = max(shares, key=shares.__getitem__)
    if largest == "wait":
        remedy = (
            f"num_workers 1 or more would work in parallel with training (0 now, {num_cores} cores)" if is_core_free else _cheaper(totals)
        )
        return f"bottleneck: {_work(totals)} in this process ({wait:.0%} of the time): {remedy}"
    if largest == "copy":
        return f"bottleneck: copying to the device ({copy:.0%} of the time): narrower features (float16)"
    if largest == "between":
        return f"bottleneck: between the steps ({between:.0%} of the time: logging, callbacks, validation): a larger batch_size makes fewer steps"
    if not num_workers and wait >= FEED_SHARE and is_core_free:
        return f"bottleneck: training ({train:.0%} of the time); {_work(totals)} took {wait:.0%}: num_workers 1 would run it in parallel"
    return f"bottleneck: training ({train:.0%} of the time); feeding waited {wait:.0%}"


def _slow_workers(totals: Totals, wait: float, num_workers: int, num_cores: int, num_ranks: int) -> str:
    waited = f"trainer waited {wait:.0%} of the time"
    if totals.first_waits > totals.seconds["wait"] / 2:
        share = totals.first_waits / totals.seconds["wait"]
        return f"the first batch of each epoch ({waited}, {share:.0%} of it for these): a smaller batch_size has it ready sooner"
    work = totals.seconds["sample"] + totals.seconds["gather"]
    busy = min(work / (num_workers * totals.elapsed), 1.0)
    if busy < 0.5:
        return f"the queue (workers busy {busy:.0%}, {waited}): a larger prefetch evens out slow batches"
    facts = f"{_work(totals)} (workers busy {busy:.0%}, {waited})"
    # a process occupies a core for the share of the time in which it works; a waiting trainer leaves it free
    free_cores = num_cores / num_ranks - num_workers * busy - (1 - wait)
    if free_cores < 0.5:
        return f"{facts}: {_cheaper(totals)}"
    # enough workers to make a batch in the time of one training step
    enough = max(math.ceil(work / max(totals.elapsed * (1 - wait), 1e-9)), num_workers + 1)
    hint = f"about {enough} would keep up, " if enough + 1 <= num_cores / num_ranks else ""
    return f"{facts}: more num_workers ({num_workers} now, {hint}{num_cores} cores)"


def _work(totals: Totals) -> str:
    return "sampling" if totals.seconds["sample"] >= totals.seconds["gather"] else "gathering features"


def _cheaper(totals: Totals) -> str:
    """Return the advice to make batches cheaper, given when no core is free for more workers."""
    cheaper = "smaller fanouts" if _work(totals) == "sampling" else "narrower features (float16)"
    return f"{cheaper}, since no core is free for more num_workers"
