"""Predict the reads of out-of-core training for ``hoptrain data info --feature-cache``: plan the first epochs, and time reads for two seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine import HeteroDataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.options import DEFAULTS
from hoptrain.engine.storage.budget import Budget
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.filler import FORESEEN_BYTES, Filled
from hoptrain.engine.storage.plan import IN_FLIGHT, RowPlan, in_order, plan_together
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE
from hoptrain.samplers import HeteroSampler, NeighborSampler
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.loader.feature_cache import LOOKAHEAD
from hoptrain.samplers.loader.gather import split_columns
from hoptrain.samplers.loader.loader import plain_schedule
from hoptrain.samplers.loader.memory_left import budget_of, feature_files, held_whole, memory_bytes, memory_left
from hoptrain.samplers.loader.task import SampleTask
from hoptrain.samplers.loader.topology.edge_memory import (
    EDGE_SHARE,
    HANDED_SHARE,
    SAMPLE_SHARE,
    are_edges_read,
    edge_files,
    steps_in_flight,
)
from hoptrain.samplers.loader.topology.superbatch import StepAccesses, Superbatch, step_accesses
from hoptrain.samplers.superbatch.transport import message_slots
from hoptrain.trainers.commands.table import counted, megabytes

PLAN_S, _READ_S = 20.0, 2.0
"""Maximum seconds for planning, and for timing reads from the disk."""
_KNOWN_EPOCHS = 3
"""Number of epochs whose steps are known to the plan. The first two are simulated; the third only provides future uses of rows."""
_WORKERS = 2
"""Default number of sampler processes of a run."""
_KEPT_READS = 64
"""Maximum number of planned reads that are stored for timing the disk. Each reads the rows of several steps."""


class _Steps(NamedTuple):
    """A record of the outcome of planning some steps.

    Attributes:
        used: number of rows that each step uses.
        missed: number of those rows that are read from disk.
        rows: rows that one read covers, by table, for each of several reads. A read covers several steps.
        edges: reads of edges for all steps that were sampled.
        num_sampled: number of steps that were sampled, including those that were not planned yet.
        step_s: seconds to sample and plan a step, without reads.
    """

    used: list[int]
    missed: list[int]
    rows: list[list[Array]]
    edges: Filled
    num_sampled: int
    step_s: float


def memory_facts(
    data: Any,
    memory: str,
    fanouts: Sequence[int | float] | Mapping[str, Sequence[int | float]],
    batch_size: int,
    split: str = "train",
    weighted: bool = False,
) -> list[list[str]]:
    """Return (name, value) rows with the predicted reads and times of an epoch of out-of-core training.

    Args:
        data: a ``Dataset`` or a ``HeteroDataset``, opened from a folder.
        memory: size of the feature cache, such as ``8GiB``, or ``auto`` for the memory that is free.
        fanouts: fanouts of neighbour sampling. For a heterogeneous graph they may be given by relation, with "" for all relations that are not named.
        batch_size: seeds per step.
        split: name of the split whose nodes are the seeds.
        weighted: draw edges in proportion to their weights.

    Raises:
        InputError: ``feature_cache`` is not a size or is too small, or the data set has no features on disk.
    """
    sampler, schedule = plain_schedule(data, _sampler(data, fanouts, weighted), split=split, batch_size=batch_size)
    stores, _ = split_columns(sampler.stores_of(data))
    files = feature_files(stores)
    if not files:
        raise InputError(
            f"--feature-cache is {memory}: {data.name} must have features that are read from disk, and it has none; leave --feature-cache out"
        )
    task = SampleTask(graph=data.graph, stores=stores, sampler=sampler, schedule=schedule, workspace=Workspace())
    given = memory_bytes(memory)
    if are_edges_read(task, given, files):
        task.edges = edge_files(task)
    size = given or memory_left(task, [*files, *held_whole(stores, files)], _WORKERS, DEFAULTS, 1)[0]
    budget = budget_of(stores, files, size, SAMPLE_SHARE if task.edges is None else EDGE_SHARE, given is None)
    task.stores = {name: i for i, name in enumerate(files)}
    in_flight = IN_FLIGHT if task.edges is None else steps_in_flight(task, budget.of_samples // HANDED_SHARE, 1)
    samples = step_accesses([task], len(files), message_slots(in_flight, 0, [0], None), budget.of_samples)
    steps = _planned(samples, budget, schedule.num_steps)
    features = [file for file in files.values() if isinstance(file, FileRows)]
    by_weight = " by weight" * weighted
    lines = _lines(
        steps,
        features,
        budget,
        schedule.num_steps,
        f"{counted(min(batch_size, len(schedule.items)), 'seed')}, fanouts {_shown(fanouts)}{by_weight}",
    )
    return [*lines, *_edge_lines(steps, samples, schedule.num_steps)] if isinstance(samples, Superbatch) else lines


def _sampler(data: Any, fanouts: Sequence[int | float] | Mapping[str, Sequence[int | float]], weighted: bool) -> Any:
    named = dict(fanouts) if isinstance(fanouts, Mapping) else {"": fanouts}
    common = named.pop("", None)
    if isinstance(data, HeteroDataset):
        own: Any = {"fanouts": named, "default": common} if named else {"fanouts": common}
        return HeteroSampler(seed_type=data.seed_type, weighted=weighted, **own)
    if named or common is None:
        raise InputError(f"--fanouts names {', '.join(named)}: {data.name} has no relations; give numbers alone, such as 10,10")
    return NeighborSampler(common, weighted=weighted)


def _shown(fanouts: Any) -> str:
    if not isinstance(fanouts, Mapping):
        return f"{list(fanouts)}"
    return ", ".join(
        f"{list(own)} for {name or ('other relations' if len(fanouts) > 1 else 'all relations')}" for name, own in fanouts.items()
    )


def _planned(samples: StepAccesses, budget: Budget, num_steps: int) -> _Steps:
    """Plan the steps of two epochs, or as many of them as the time limit allows."""

    def too_little() -> InputError:
        return budget.too_little(dict(zip(budget.sizes, _largest(samples, num_steps), strict=True)))

    try:
        tables = budget.tables()
    except InputError:
        raise too_little() from None
    plans = [
        RowPlan(
            np.empty(table.num_rows, np.int32), table.num_slots, LOOKAHEAD, table.num_bytes // FORESEEN_SHARE // FORESEEN_BYTES,
            in_flight=samples.num_in_flight, too_little=too_little,
        )
        for table in tables
    ]  # fmt: skip
    later = _later(num_steps)

    def foresee(number: int) -> None:
        for _ in range(number):
            for plan, own in zip(plans, samples.rows_of_next(later) or (), strict=False):  # there are no rows after the last step
                plan.foresee(own)

    used, missed, at_once = list[int](), list[int](), list[list[Array]]()
    begin = time.perf_counter()
    foresee(1)
    while (number := len(used)) < 2 * num_steps:  # plans steps in the same order as hoptrain.engine.storage.filler
        epoch_end = (number // num_steps + 1) * num_steps
        coming = iter(range(number + 1, epoch_end + 1))
        tables_reads = plan_together(plans, range(number + 1, epoch_end + 1), partial(_publish, samples, coming))
        for reads in zip(*tables_reads, strict=True):
            foresee(int(not plans[0].num_known) if samples.is_full else min(plan.wanted for plan in plans))
            used.append(sum(own.num_used for own in reads))
            missed.append(sum(len(own.rows) for own in reads))
        at_once.append([in_order(own)[0] for own in tables_reads])
        del at_once[:-_KEPT_READS]
        if time.perf_counter() - begin > PLAN_S:
            break
    edges = samples.counted()
    seconds = time.perf_counter() - begin - edges.read_s
    return _Steps(used, missed, at_once, edges, len(used) + plans[0].num_known, seconds / len(used))


def _later(num_steps: int) -> Iterator[tuple[int, int]]:
    """Yield (epoch, step) of all steps in training order."""
    return ((epoch, step) for epoch in range(_KNOWN_EPOCHS) for step in range(num_steps))


def _largest(samples: StepAccesses, num_steps: int) -> list[int]:
    """Return for each table the maximum number of rows that a step uses, over as many steps as the time limit allows."""
    begin, found = time.perf_counter(), [0] * samples.num_tables
    for at in _later(num_steps):
        found = [max(most, len(rows)) for most, rows in zip(found, samples(*at), strict=True)]
        if time.perf_counter() - begin > PLAN_S:
            break
    return found


def _publish(samples: StepAccesses, coming: Iterator[int], landed: int) -> None:
    samples.publish(next(coming), landed)


def _edge_lines(steps: _Steps, samples: Superbatch, num_steps: int) -> list[list[str]]:
    """Return the table rows about edges read from files, with counts extrapolated from the sampled steps to an epoch."""
    scale = num_steps / steps.num_sampled
    reads, num_bytes, seconds = scale * steps.edges.num_reads, scale * steps.edges.num_bytes, scale * steps.edges.read_s
    size, together = sum(file.shape[0] * file.row_bytes for file in samples.edges.files.values()), samples.num_together
    return [
        [
            "edges",
            f"{size / 2**20:,.1f} MiB, read from disk for {counted(together, 'step')} at once: "
            f"{counted(-(-num_steps // together), 'superbatch', 'superbatches')} per epoch",
        ],
        ["edge reads per epoch", f"{reads:,.0f} reads, {megabytes(num_bytes)}, {seconds:,.1f} s"],
    ]


def _lines(steps: _Steps, files: list[FileRows], budget: Budget, num_steps: int, batch: str) -> list[list[str]]:
    tables = budget.tables()
    whole = "".join(f", and {size / 2**20:,.1f} MiB for all of {name}" for name, size in budget.whole.items())
    warm = slice(len(steps.used) // 2, None)
    used, missed = (float(np.mean(counts[warm])) * num_steps for counts in (steps.used, steps.missed))
    rows, slots = sum(table.num_rows for table in tables), sum(table.num_slots for table in tables)
    half = ", the first half as warm-up" * (len(steps.used) > 1)
    lines = [
        [
            "memory",
            f"{sum(table.num_bytes for table in tables) / 2**20:,.1f} MiB, which hold {slots:,} of {counted(rows, 'row')} ({slots / rows:.0%}){whole}",
        ],
        ["epoch", f"{counted(num_steps, 'step')} of {batch}; predicted from {counted(len(steps.used), 'step')}{half}"],
        ["rows per epoch", f"{used:,.0f} used, {missed:,.0f} of them read from disk ({missed / max(1, used):.0%})"],
    ]
    num_read, seconds = _timed_reads(steps.rows, files)
    if missed and num_read:
        reads, num_bytes = (sum(getattr(file, name) for file in files) for name in ("num_reads", "num_bytes"))
        lines.append(
            ["disk", f"{reads / seconds:,.0f} reads and {num_bytes / 1e6 / seconds:,.0f} MB per second, measured for {seconds:.1f} s"]
        )
        lines.append(
            [
                "reads per epoch",
                f"{missed * reads / num_read:,.0f} reads, {megabytes(missed * num_bytes / num_read)}, {missed / num_read * seconds:,.1f} s",
            ]
        )
    lines.append(["sampling ahead", f"{steps.step_s * num_steps:,.1f} s per epoch, in addition to the reads"])
    return lines


def _timed_reads(reads: list[list[Array]], files: list[FileRows]) -> tuple[int, float]:
    """Read sets of rows until ``_READ_S`` have passed; return the number of rows read and the seconds."""
    number, seconds = 0, 0.0
    for at_once in reversed(reads):
        for file, rows in zip(files, at_once, strict=True):
            out = np.empty((len(rows), file.row_bytes), np.uint8)
            begin = time.perf_counter()
            file.read(rows, np.arange(len(rows)), out)
            number, seconds = number + len(rows), seconds + time.perf_counter() - begin
        if seconds > _READ_S:
            break
    return number, seconds
