"""Where the time of each batch went, and what that says about the bottleneck.

All times are seconds on the clock of ``time.perf_counter``. On Linux that is CLOCK_MONOTONIC, which the processes of a machine share: what a
worker noted stands on one axis with what the trainer noted. Only sums are kept, so a run of any length costs the same memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

Span = tuple[float, float]
"""Begin and end."""

STAGES = ("sample", "gather", "wait", "copy", "train")

FEED_SHARE = 0.1
"""A trainer that waits for this share of its time is held up by its feed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchTimes:
    """One batch, from its sampling to the end of its training step.

    Attributes:
        epoch: the epoch it belongs to.
        batch: its number within the epoch.
        pid: process that made it; with 0 workers the trainer.
        sample: sampling.
        gather: gathering features and labels; follows ``sample``.
        wait: from asking for the batch to having it; with 0 workers ``sample`` and ``gather`` lie in it.
        copy: until the batch is on the training device.
        train: the training step; on a GPU until its last kernel is done.
        num_ready: batches that lay ready behind this one when it was taken.
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
    """Sums over batches.

    Attributes:
        num_batches: how many.
        elapsed: seconds from the first wait to the last step, without what lies between epochs.
        seconds: by stage.
        first_waits: seconds of ``wait`` that an epoch's first batch took.
        num_ready: of ``BatchTimes.num_ready``.
    """

    num_batches: int = 0
    elapsed: float = 0.0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    first_waits: float = 0.0
    num_ready: int = 0

    def add(self, times: BatchTimes, elapsed: float, is_first: bool) -> None:
        """Count a batch that took ``elapsed`` seconds since the one before; ``is_first`` of its epoch."""
        self.num_batches += 1
        self.elapsed += elapsed
        for stage in STAGES:
            begin, end = getattr(times, stage)
            self.seconds[stage] += end - begin
        if is_first:
            self.first_waits += times.wait[1] - times.wait[0]
        self.num_ready += times.num_ready

    def means(self) -> dict[str, float]:
        """Seconds a batch as ``time/STAGE``, and as ``time/step`` since the one before, and the queue's mean depth as ``queue_mean``; empty without batches."""
        if not self.num_batches:
            return {}
        seconds = {f"time/{stage}": total / self.num_batches for stage, total in self.seconds.items()}
        return seconds | {"time/step": self.elapsed / self.num_batches, "queue_mean": self.num_ready / self.num_batches}


class Timeline:
    """Sums of the epoch so far and of the run.

    Attributes:
        epoch: since ``new_epoch()``.
        run: of all batches but the first, whose wait holds the start of the workers and the loading of compiled code.
    """

    def __init__(self) -> None:
        self.epoch = Totals()
        self.run = Totals()
        self._last: BatchTimes | None = None

    def add(self, times: BatchTimes) -> None:
        """Count a batch; they come in the order of training."""
        last, self._last = self._last, times
        is_first = last is None or last.epoch != times.epoch
        elapsed = times.train[1] - (times.wait[0] if last is None or is_first else last.train[1])
        self.epoch.add(times, elapsed, is_first)
        if last is not None:
            self.run.add(times, elapsed, is_first)

    def new_epoch(self) -> None:
        """Begin the sums of an epoch."""
        self.epoch = Totals()


def bottleneck(totals: Totals, num_workers: int, num_cores: int, num_ranks: int = 1) -> str:
    """One sentence: what holds the run up, and what may help. It is drawn from measured shares of the time alone.

    1. With workers, waiting for a tenth of the time or more means that they are too slow, since they work beside the trainer. If half of that
       waiting is for the first batches of epochs, these are named; else what the workers do most, or, if they are idle half of the time, the queue.
       More workers are proposed where cores are free for them.
    2. Otherwise the largest of copying, training and what lies between the steps, with 0 workers also of making the batches.

    Args:
        totals: of a run.
        num_workers: sampler processes of a rank.
        num_cores: cores that the ranks of this machine may use.
        num_ranks: ranks on this machine.
    """
    if totals.elapsed <= 0:
        return "bottleneck: unknown, fewer than two batches were trained"
    copy, train = (min(totals.seconds[stage] / totals.elapsed, 1.0) for stage in ("copy", "train"))
    # A GPU may be busy with the batch before while the host waits for the next one: only what nobody used counts.
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
        remedy = f"num_workers 1 or more works beside training (0 now, {num_cores} cores)" if is_core_free else _cheaper(totals)
        return f"bottleneck: {_work(totals)} in this process ({wait:.0%} of the time): {remedy}"
    if largest == "copy":
        return f"bottleneck: copying to the device ({copy:.0%} of the time): features of fewer bytes (float16)"
    if largest == "between":
        return f"bottleneck: between the steps ({between:.0%} of the time: logging, callbacks, validation): a larger batch_size makes fewer steps"
    if not num_workers and wait >= FEED_SHARE and is_core_free:
        return f"bottleneck: training ({train:.0%} of the time); {_work(totals)} took {wait:.0%}: num_workers 1 works beside it"
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
    # A core counts as taken for the share of the time in which its process works: a trainer that waits leaves room.
    free_cores = num_cores / num_ranks - num_workers * busy - (1 - wait)
    if free_cores < 0.5:
        return f"{facts}: {_cheaper(totals)}"
    # As many as make a batch in the time that the trainer needs for one.
    enough = max(math.ceil(work / max(totals.elapsed * (1 - wait), 1e-9)), num_workers + 1)
    hint = f"about {enough} would keep up, " if enough + 1 <= num_cores / num_ranks else ""
    return f"{facts}: more num_workers ({num_workers} now, {hint}{num_cores} cores)"


def _work(totals: Totals) -> str:
    return "sampling" if totals.seconds["sample"] >= totals.seconds["gather"] else "gathering features"


def _cheaper(totals: Totals) -> str:
    """A remedy where no core is free."""
    cheaper = "smaller fanouts" if _work(totals) == "sampling" else "features of fewer bytes (float16)"
    return f"{cheaper}, since no core is free for more num_workers"
