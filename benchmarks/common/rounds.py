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
"""Rounds before those that count."""
_MOST_UNITS = 1024


@dataclass(frozen=True, slots=True)
class Cost:
    """Measurements of one subject.

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
        """Seconds of a call."""
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
    subjects: Mapping[str, Callable[[int], int]], rounds: int, *, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Cost]:
    """Time several subjects against one another: one call of each per round, so that a slow spell of the machine meets them all.

    The order rotates from round to round, for none should always run behind the same other one.

    Args:
        subjects: by name, what takes the number of its call, from 0, does some work and returns how much.
        rounds: number of rounds that count, after ``WARMUP`` others.
        clock: seconds; for tests.

    Raises:
        InputError: nothing to time, or no round.
    """
    if not subjects or rounds < 1:
        raise InputError(f"{len(subjects)} subjects in {rounds} rounds: timing needs one of each at least; give more")
    names = list(subjects)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    amounts: dict[str, list[int]] = {name: [] for name in names}
    for number in range(WARMUP + rounds):
        shift = (number - WARMUP) % len(names)
        for name in names[shift:] + names[:shift]:
            begin = clock()
            amounts[name].append(subjects[name](number))
            seconds[name].append(clock() - begin)
    return {name: _cost(np.array(seconds[name][-rounds:]), np.array(amounts[name][-rounds:])) for name in names}


def _cost(seconds: Array, amounts: Array) -> Cost:
    return Cost(1e9 * seconds / amounts, float(amounts.mean()))


@dataclass(eq=False, slots=True)
class Paced:
    """A subject that does as many units of work (mini-batches, say) a call as take about as long as those of the others.

    So a fast system is timed over as long a stretch as a slow one: in milliseconds it would be a matter of luck. The first call compiles what
    there is to compile; each other one tells how many units the next should have.

    Attributes:
        act: takes the number of the first unit and how many to do; does them and returns the amount of work.
        seconds: what a call should take; with 0 it has ``least`` units.
        least: units of a call at least, for instance one for each thread.
        by_unit: whether the cost is that of a unit, whatever it amounts to.
    """

    act: Callable[[int, int], int]
    seconds: float
    least: int = 1
    by_unit: bool = False
    clock: Callable[[], float] = time.perf_counter
    calls: list[tuple[int, int]] = field(default_factory=list)
    """Amount of work and units of each call."""
    _units: int = 0

    def __call__(self, call: int) -> int:
        """Do some units; returns the amount of work, or their number."""
        units = self._units or self.least
        begin = self.clock()
        amount = self.act(sum(units for _, units in self.calls), units)
        if call > 0:
            fitting = units * self.seconds / max(self.clock() - begin, 1e-6)
            self._units = min(max(self.least, round(fitting)), _MOST_UNITS)
        self.calls.append((amount, units))
        return units if self.by_unit else amount

    @property
    def amount_per_unit(self) -> float:
        """On average."""
        amount, units = np.sum(self.calls, axis=0)
        return float(amount / units)
