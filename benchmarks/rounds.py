"""Timing in interleaved rounds where the systems do different amounts of work: the cost of a unit of it, round by round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from hoptrain.benchmarks.harness import interleaved
from hoptrain.engine.arrays import Array

WARMUP = 2


@dataclass(frozen=True, slots=True)
class Cost:
    """What was found about one subject.

    Attributes:
        ns: (rounds,) nanoseconds for a unit of work; a ratio of two subjects is formed within each round, before the median is taken.
        amount: units of work of a call, on average.
    """

    ns: Array
    amount: float

    @property
    def median(self) -> float:
        """Nanoseconds for a unit of work."""
        return float(np.median(self.ns))

    @property
    def seconds(self) -> float:
        """Of a call."""
        return self.median * self.amount * 1e-9

    @property
    def spread(self) -> float:
        """The middle half of the rounds as a share of the median."""
        low, high = np.quantile(self.ns, (0.25, 0.75))
        return float(high - low) / self.median

    def over(self, other: Array) -> float:
        """How many times as much a unit costs as in ``other`` (rounds,)."""
        return float(np.median(self.ns / other))


Costs: TypeAlias = Mapping[str, Cost]


def time_rounds(subjects: Mapping[str, Callable[[int], int]], rounds: int) -> dict[str, Cost]:
    """Call each subject once a round with the number of the round, warm-up included; a call does some work and returns how much."""
    found = {name: _Subject(act) for name, act in subjects.items()}
    interleaved(found, rounds=rounds, warmup=WARMUP)
    return {name: subject.cost(rounds) for name, subject in found.items()}


@dataclass(eq=False, slots=True)
class _Subject:
    """Times its own calls, since a call's amount of work is known to it alone."""

    act: Callable[[int], int]
    seconds: list[float] = field(default_factory=list)
    amounts: list[int] = field(default_factory=list)

    def __call__(self) -> None:
        begin = time.perf_counter()
        amount = self.act(len(self.amounts))
        self.seconds.append(time.perf_counter() - begin)
        self.amounts.append(amount)

    def cost(self, rounds: int) -> Cost:
        seconds, amounts = np.array(self.seconds[-rounds:]), np.array(self.amounts[-rounds:])
        return Cost(1e9 * seconds / amounts, float(amounts.mean()))
