"""Timing in interleaved rounds where the systems do different amounts of work: the cost of a unit of it, round by round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array

WARMUP = 2
"""Rounds of one call each before those that count."""


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


def time_rounds(
    subjects: Mapping[str, Callable[[int], int]], rounds: int, *, least_s: float = 0.0, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Cost]:
    """Time several subjects against one another: each in every round, so that a slow spell of the machine meets them all.

    The order rotates from round to round, for none should always run behind the same other one. A round goes through the subjects as often as
    it takes, each time leaving out those that had their ``least_s``: so a fast one is timed as long as a slow one, in several places.

    Args:
        subjects: by name, what takes the number of its call, from 0, does some work and returns how much.
        rounds: number of rounds that count, after ``WARMUP`` others.
        least_s: seconds that a subject takes in a round at least; by default one call.
        clock: seconds; for tests.

    Raises:
        InputError: nothing to time, or no round.
    """
    if not subjects or rounds < 1:
        raise InputError(f"{len(subjects)} subjects in {rounds} rounds: timing needs one of each at least; give more")
    found = {name: _Subject(act, clock) for name, act in subjects.items()}
    order = list(found.values())
    for number in range(-WARMUP, rounds):
        shift = number % len(order)
        turn = order[shift:] + order[:shift]
        for subject in turn:
            subject.rounds.append((0.0, 0, 0))
        while turn:
            for subject in turn:
                subject.call()
            turn = [subject for subject in turn if number >= 0 and subject.rounds[-1][0] < least_s]
    return {name: subject.cost(rounds) for name, subject in found.items()}


@dataclass(eq=False, slots=True)
class _Subject:
    """Times its own calls, since a call's amount of work is known to it alone."""

    act: Callable[[int], int]
    clock: Callable[[], float]
    rounds: list[tuple[float, int, int]] = field(default_factory=list)
    """Seconds, amount of work and calls of each round."""

    def call(self) -> None:
        seconds, amount, calls = self.rounds[-1]
        number = sum(calls for _, _, calls in self.rounds)
        begin = self.clock()
        done = self.act(number)
        self.rounds[-1] = (seconds + self.clock() - begin, amount + done, calls + 1)

    def cost(self, rounds: int) -> Cost:
        seconds, amounts, calls = np.array(self.rounds[-rounds:]).T
        return Cost(1e9 * seconds / amounts, float(amounts.sum() / calls.sum()))
