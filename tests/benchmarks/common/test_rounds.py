import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.benchmarks.common import rounds
from hoptrain.benchmarks.common.rounds import WARMUP, Cost, Paced, time_rounds


class Bench:
    """A clock that advances only while a measured subject runs, with a log of the subjects' names."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def work(self, name, durations, amount=1):
        """Return a subject whose calls take the given durations, after a long warm-up."""
        remaining = iter([1000] * rounds.WARMUP + list(durations))

        def call(number):
            assert number == self.log.count(name)
            self.log.append(name)
            self.now += next(remaining)
            return amount

        return call

    def clock(self):
        return self.now


def test_every_unit_of_work_is_timed():
    bench = Bench()
    costs = time_rounds({"slow": bench.work("slow", [4, 6, 50]), "fast": bench.work("fast", [1, 3, 10], 2)}, 3, clock=bench.clock)
    assert list(costs) == ["slow", "fast"]
    np.testing.assert_array_equal(costs["slow"].ns, [4e9, 6e9, 50e9])
    np.testing.assert_array_equal(costs["fast"].ns, [0.5e9, 1.5e9, 5e9])
    assert (costs["slow"].amount, costs["fast"].amount) == (1, 2)
    assert costs["slow"].over(costs["fast"].ns) == 8  # median of the ratios 8, 4 and 10


def test_a_slow_spell_leaves_the_ratio_alone():
    bench = Bench()
    spell = [1, 100, 1, 100, 100]
    costs = time_rounds(
        {name: bench.work(name, [cost * factor for factor in spell]) for name, cost in (("a", 2), ("b", 6))}, 5, clock=bench.clock
    )
    assert costs["b"].over(costs["a"].ns) == 3


def test_every_round_calls_each_once_in_rotating_order():
    bench = Bench()
    time_rounds({name: bench.work(name, [1] * 3) for name in "abc"}, 3, clock=bench.clock)
    orders = ["".join(bench.log[i : i + 3]) for i in range(0, 3 * (WARMUP + 3), 3)]
    assert [sorted(order) for order in orders] == [["a", "b", "c"]] * (WARMUP + 3)
    assert orders[WARMUP:] == ["abc", "bca", "cab"]


def test_a_fast_system_does_more():
    now = iter([0.0, 0.0, 0.01, 0.0, 0.2, 0.0, 0.1])  # times at which calls begin and end, except for the end of the first
    asked = []
    paced = Paced(lambda first, number: asked.append((first, number)) or 10 * number, 0.1, least=2, clock=lambda: next(now))
    assert [paced(call) for call in range(4)] == [20, 20, 200, 100]
    assert asked == [(0, 2), (2, 2), (4, 20), (24, 10)]
    assert paced.amount_per_unit == 10


def test_a_slow_system_does_the_least():
    now = iter([0.0, 0.0, 30.0, 0.0, 30.0])
    paced = Paced(lambda first, number: 7, 0.1, least=3, by_unit=True, clock=lambda: next(now))
    assert [paced(call) for call in range(3)] == [3, 3, 3]
    assert paced.amount_per_unit == pytest.approx(7 / 3)


def test_no_system_runs_for_ever():
    paced = Paced(lambda first, number: number, 1e9, least=2, clock=lambda: 0.0)
    assert [paced(call) for call in range(3)] == [2, 2, 1024]


def test_amounts_may_change_from_call_to_call():
    seen = []

    def act(call):
        seen.append(call)
        return 100 if call < WARMUP else 1000 * (call - WARMUP + 1)

    cost = time_rounds({"a": act}, 3)["a"]
    assert seen == list(range(WARMUP + 3))
    assert cost.amount == 2000
    assert len(cost.ns) == 3
    assert (cost.ns > 0).all()


@pytest.mark.parametrize(("subjects", "rounds"), [({}, 3), ({"a": int}, 0)])
def test_nothing_to_time(subjects, rounds):
    with refused(f"{len(subjects)} subjects", f"{rounds} rounds timing 1", "give more"):
        time_rounds(subjects, rounds)


def test_ratio_within_rounds():
    mine, other = Cost(np.array([10.0, 100.0, 30.0]), 50.0), np.array([5.0, 50.0, 10.0])
    assert mine.over(other) == 2.0
    assert (mine.median, mine.seconds) == (30.0, pytest.approx(1.5e-6))
    assert mine.spread == pytest.approx(45 / 30)
