"""Timing in interleaved rounds for systems that do different amounts of work: measures the cost of a unit of work in each round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array

WARMUP = 2
"""Number of warm-up rounds, whose times are discarded."""
_MOST_UNITS = 1024


@dataclass(frozen=True, slots=True)
class Cost:
    """Measured times and amounts of work of one subject, a function that is timed.

    Attributes:
        ns: (rounds,) nanoseconds per unit of work. Ratios of two subjects are formed within each round, before the median is taken.
        amount: mean units of work per call.
    """

    ns: Array
    amount: float

    @property
    def median(self) -> float:
        """Median nanoseconds per unit of work."""
        return float(np.median(self.ns))

    @property
    def seconds(self) -> float:
        """Median seconds per call."""
        return self.median * self.amount * 1e-9

    @property
    def spread(self) -> float:
        """Interquartile range of the rounds, as a fraction of the median."""
        low, high = np.quantile(self.ns, (0.25, 0.75))
        return float(high - low) / self.median

    def over(self, other: Array) -> float:
        """Return the ratio of this cost to ``other`` (rounds,): the median of the ratios within each round."""
        return float(np.median(self.ns / other))


Costs: TypeAlias = Mapping[str, Cost]


def time_rounds(
    subjects: Mapping[str, Callable[[int], int]], rounds: int, *, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Cost]:
    """Time several subjects in interleaved rounds: each is called once per round, so that slow phases of the machine affect all of them.

    The order rotates from round to round, so that no subject always runs after the same other subject.

    Args:
        subjects: functions by name. Each takes the number of the call, from 0, does some work and returns its amount.
        rounds: number of timed rounds, after ``WARMUP`` others.
        clock: returns the time in seconds; replaced by tests.

    Raises:
        InputError: there is no subject or no round.
    """
    if not subjects or rounds < 1:
        raise InputError(f"{len(subjects)} subjects in {rounds} rounds: timing needs at least 1 subject and 1 round; give more")
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
    """A subject that adapts its number of units (such as mini-batches) so that a call takes about a given time.

    So fast and slow systems are timed for equally long; timings of a few milliseconds would be unreliable. The first call compiles. Each later call
    determines the number of units of the next call.

    Attributes:
        act: takes the number of the first unit and the number of units, processes them and returns the amount of work.
        seconds: target duration of a call; with 0 each call has ``least`` units.
        least: minimum number of units of a call, for instance one for each thread.
        by_unit: measure the cost per unit instead of the cost per amount of work.
        clock: returns the time in seconds; replaced by tests.
        calls: amount of work and number of units of each call so far.
    """

    act: Callable[[int, int], int]
    seconds: float
    least: int = 1
    by_unit: bool = False
    clock: Callable[[], float] = time.perf_counter
    calls: list[tuple[int, int]] = field(default_factory=list)
    _units: int = 0

    def __call__(self, call: int) -> int:
        """Process the current number of units. Return the amount of work, or with ``by_unit`` the number of units."""
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
        """Mean amount of work per unit."""
        amount, units = np.sum(self.calls, axis=0)
        return float(amount / units)
