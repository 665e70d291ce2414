"""Counts of the rows that a cache has to read in some epochs, found without reading any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from hoptrain.benchmarks.storage.policies import Fixed, Lru, Policy, S3Fifo, most_of
from hoptrain.engine import Dataset, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.storage.plan import RowPlan
from hoptrain.samplers import Sampler, Workspace
from hoptrain.samplers.loader.task import SampleTask
from hoptrain.samplers.loader.topology.superbatch import StepAccesses

POLICIES = ("LRU", "S3-FIFO", "degree", "presampled")
"""Names of the cache policies that ``policies`` returns."""
Accesses = Sequence[Sequence[Array]]
"""For each epoch and each of its steps, the distinct rows (B,) that the step uses, ascending."""


def accesses(data: Dataset, sampler: Sampler[Any, Any], schedule: Schedule, num_epochs: int) -> Accesses:
    """Sample the first epochs and return the rows that each step uses."""
    task = SampleTask(graph=data.graph, stores={"x": 0}, sampler=sampler, schedule=schedule, workspace=Workspace())
    rows_of = StepAccesses(tasks=[task], num_tables=1)
    return [[rows_of(epoch, step)[0] for step in range(schedule.num_steps)] for epoch in range(num_epochs)]


def uses(steps: Sequence[Array], num_rows: int) -> Array:
    """Return the number of steps (V,) that use each row."""
    return np.bincount(np.concatenate(steps), minlength=num_rows)


def policies(data: Dataset, before: Sequence[Array], num_slots: int) -> dict[str, Callable[[], Policy]]:
    """Return a factory of each cache policy by name; ``before`` are the steps of the previous epoch."""
    number = data.graph.num_nodes
    return {
        "LRU": partial(Lru, number, num_slots),
        "S3-FIFO": partial(S3Fifo, number, num_slots),
        "degree": partial(Fixed, number, most_of(np.bincount(np.asarray(data.graph.indices), minlength=number), num_slots)),
        "presampled": partial(Fixed, number, most_of(uses(before, number), num_slots)),
    }


def policy_misses(policy: Policy, steps: Sequence[Array]) -> Iterator[int]:
    """Yield the number of rows initially in the cache, then the misses of each step."""
    yield int((policy.slot_of >= 0).sum())
    for rows in steps:
        yield int((policy.slot_of[rows] < 0).sum())
        policy.update(rows)


def plan_misses(num_rows: int, num_slots: int, prefetch_steps: int, steps: Sequence[Array], **options: Any) -> Iterator[int]:
    """Yield the misses of each step with a ``RowPlan``. If ``prefetch_steps`` is at least the number of steps, the plan knows all steps from the start."""
    plan, waiting = RowPlan(np.empty(num_rows, np.int32), num_slots, prefetch_steps, **options), iter(steps)

    def foresee(number: int) -> None:
        for _, rows in zip(range(number), waiting, strict=False):
            plan.foresee(rows)

    foresee(len(steps) if prefetch_steps >= len(steps) else 0)
    for tag in range(1, len(steps) + 1):
        foresee(plan.wanted)
        yield len(plan.next(tag).rows)


def misses_a_row(
    data: Dataset, epochs: Accesses, num_slots: int, lookaheads: Sequence[int], most_foreseen: int | None = None
) -> dict[str, float]:
    """Return the number of rows read per row used, over all epochs, for each policy; the reads that fill the empty cache count.

    Args:
        data: the data set.
        epochs: rows that each step of each epoch uses.
        num_slots: number of rows that the cache holds.
        lookaheads: look-aheads of the plans, in steps.
        most_foreseen: maximum number of future accesses that a plan stores; None for no limit.

    Returns:
        Values by name: those of ``policies``, "plan W" for each look-ahead W, "optimum" for a plan that knows all steps, and "optimum of one" for
        such a plan that prefetches one step only, so that all slots but those of this step can keep rows.
    """
    steps, number = [rows for epoch in epochs for rows in epoch], data.graph.num_nodes
    lengths = [len(rows) for rows in steps]

    def share(misses: Iterator[int]) -> float:
        return sum(misses) / sum(lengths)

    found = {f"plan {ahead}": share(plan_misses(number, num_slots, ahead, steps, most_foreseen=most_foreseen)) for ahead in lookaheads}
    found["optimum"] = share(plan_misses(number, num_slots, len(steps), steps))
    found["optimum of one"] = share(plan_misses(number, num_slots, len(steps), steps, in_flight=1))
    for name, make in policies(data, epochs[0], num_slots).items():
        found[name] = share(policy_misses(make(), steps))
    return found
