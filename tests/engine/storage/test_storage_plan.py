"""The plan of a row cache: it reads as few rows as possible into the slots that it returns, and overwrites no slot in use."""

from itertools import combinations

import numpy as np
import pytest
from cases.mistakes import refused
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from hoptrain.engine import Dataset
from hoptrain.engine.storage.plan import RowPlan
from hoptrain.kernels.cpu.storage import plan as plan_kernels
from hoptrain.samplers import LaborSampler, LadiesSampler, NeighborSampler, SampleLoader


def plan_of(num_rows, num_slots, prefetch_steps, **options):
    slot_of = np.empty(num_rows, np.int32)
    plan = RowPlan(slot_of, num_slots, prefetch_steps, **options)
    plan.slot_of, plan.row_of = slot_of, np.full(num_slots, -1)  # the plan's slots, and the slots after the planned reads
    return plan


def drawn(seed, num_rows, num_steps, most):
    """Return steps with distinct, ascending rows drawn from a skewed distribution; some steps are empty."""
    draw = np.random.default_rng(seed)
    distribution = 1 / (1 + np.arange(num_rows)) ** draw.uniform(0, 1.2)
    steps = (
        draw.choice(num_rows, draw.integers(0, most + 1), replace=False, p=distribution / distribution.sum()) for _ in range(num_steps)
    )
    return [np.sort(rows) for rows in steps]


def planned(plan, steps, first_tag=1):
    """Yield, for each step, the last step that must have finished before its reads, and the reads; check that each row is in its slot."""
    waiting = iter(steps)
    for tag, rows in enumerate(steps, first_tag):
        for _ in range(plan.wanted):
            if (later := next(waiting, None)) is not None:
                plan.foresee(later)
        landed, reads = plan.free_slots(), plan.next(tag)
        plan.row_of[reads.slots] = reads.rows
        np.testing.assert_array_equal(plan.row_of[plan.slot_of[rows]], rows)
        assert reads.num_used == len(rows)
        yield landed, reads


def run(plan, steps, first_tag=1):
    """Return the reads of each step."""
    return [reads for _, reads in planned(plan, steps, first_tag)]


def first_in_flight(steps, num_slots, most):
    """Return, for each step, the first step that is in flight with it.

    At most ``most`` steps are in flight, and their rows take at most half of the slots; two steps may take all.
    """
    firsts = [0]
    for step in range(1, len(steps)):
        for first in range(firsts[-1], step + 1):
            together, number = len(set().union(*steps[first : step + 1])), step + 1 - first
            if number == 1 or (number <= most and together <= num_slots // (1 if number == 2 else 2)):
                break
        firsts.append(first)
    return firsts


def fewest_reads(steps, num_slots, most=16):
    """Return the least number of reads by linear programming.

    Keeping a row between two uses saves a read, and takes a slot at each step in between, if the step is in flight with neither use.
    """
    last, spans, firsts = {}, [], first_in_flight(steps, num_slots, most)
    for step, rows in enumerate(steps):
        for row in rows:
            if row in last:
                spans.append((last[row], step))
            last[row] = step
    total = sum(map(len, steps))
    if not spans:
        return total
    begins, ends = np.array(spans).T
    at, first = np.arange(len(steps))[:, None], np.array(firsts)[:, None]
    capacity = [num_slots - len(set().union(*steps[first : step + 1])) for step, first in enumerate(firsts)]
    found = linprog(-np.ones(len(spans)), A_ub=((begins < first) & (at < ends)).astype(float), b_ub=capacity, bounds=(0, 1))
    return total + round(found.fun)  # intervals make a totally unimodular matrix: the optimum is whole


@pytest.mark.parametrize("in_flight", [1, 2, 5])
@pytest.mark.parametrize("seed", range(20))
def test_reads_are_the_fewest_there_can_be(seed, in_flight):
    num_rows, most = 30, 8
    steps = drawn(seed, num_rows, 25, most)
    largest = max(map(len, steps))
    for num_slots in (largest, 12, 16, 22, 30):
        plan = plan_of(num_rows, num_slots, len(steps), in_flight=in_flight)
        for rows in steps:
            plan.foresee(rows)
        reads = run(plan, steps)
        assert sum(len(step.rows) for step in reads) == fewest_reads(steps, num_slots, in_flight)


def exhaustive(steps, num_slots):
    """Return the smallest number of reads by trying every eviction before each step."""
    states = {frozenset(): 0}
    for rows in map(frozenset, steps):
        after = {}
        for kept, reads in states.items():
            others = kept - rows
            for stay in combinations(sorted(others), min(len(others), num_slots - len(rows))):
                state = rows | frozenset(stay)
                after[state] = min(after.get(state, 10**9), reads + len(rows - kept))
        states = after
    return min(states.values())


@given(st.lists(st.sets(st.integers(0, 7), max_size=3), min_size=1, max_size=10), st.integers(3, 6))
def test_one_step_in_flight_reads_what_trying_all_finds(steps, num_slots):
    steps = [np.array(sorted(rows), np.int64) for rows in steps]
    plan = plan_of(8, num_slots, len(steps), in_flight=1)
    for rows in steps:
        plan.foresee(rows)
    assert sum(len(step.rows) for step in run(plan, steps)) == exhaustive([rows.tolist() for rows in steps], num_slots)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_the_longer_the_window_the_fewer_the_reads(seed):
    steps = drawn(seed, 400, 200, 40)
    reads = [sum(len(step.rows) for step in run(plan_of(400, 120, prefetch_steps), steps)) for prefetch_steps in (1, 5, 64)]
    fewest = fewest_reads(steps, 120)
    assert reads[0] > reads[1] > 1.05 * fewest > reads[2]


@pytest.mark.parametrize("share", [0.05, 0.1, 0.25])
@pytest.mark.parametrize("sampler", [NeighborSampler([8, 6]), LaborSampler([8, 6]), LadiesSampler([256, 256])])
def test_64_batches_ahead_read_at_most_a_twentieth_more_than_all_of_them(sampler, share):
    draw, number = np.random.default_rng(0), 40_000
    edges = np.stack([number * draw.random(400_000) ** 3, draw.integers(0, number, 400_000)]).astype(np.int64)
    data = Dataset(x=np.empty((number, 0), np.float32), edge_index=edges, splits={"train": np.arange(0, number, 8)})
    loader = SampleLoader(data, sampler, batch_size=16, seed=1)
    steps = [np.unique(batch.node_ids).astype(np.int32) for _ in range(2) for batch in loader]
    assert len(steps) > 9 * 64
    knows_all = plan_of(number, int(share * number), len(steps))
    for rows in steps:
        knows_all.foresee(rows)
    fewest = sum(len(knows_all.next(tag).rows) for tag in range(1, len(steps) + 1))
    reads = sum(len(own.rows) for own in run(plan_of(number, int(share * number), 64), steps))
    assert fewest < sum(map(len, steps))
    assert fewest <= reads <= 1.05 * fewest


@pytest.mark.parametrize("in_flight", [1, 2, 16])
@pytest.mark.parametrize("seed", range(5))
def test_no_slot_is_written_before_its_readers_are_done(seed, in_flight):
    """A reader finds the rows of its step until it has finished, even if later rows are read as early as the plan permits."""
    steps = drawn(seed, 60, 80, 12)
    plan, where, in_use, most = plan_of(60, 40, 4, in_flight=in_flight), {}, {}, 0
    for tag, ((landed, reads), rows) in enumerate(zip(planned(plan, steps), steps, strict=True), 1):
        in_use = {earlier: slots for earlier, slots in in_use.items() if earlier > landed}
        assert not set().union(*in_use.values()) & set(reads.slots.tolist())
        where |= dict(zip(reads.rows.tolist(), reads.slots.tolist(), strict=True))
        in_use[tag] = {where[row] for row in rows.tolist()}
        most = max(most, len(in_use)) if tag > 20 else most
    assert most >= min(in_flight, 2)


def test_ties_go_by_the_order_of_accesses_and_ids():
    steps = [np.array([1, 2, 3, 4]), np.array([5]), np.array([6]), np.array([1, 2, 3, 4])]
    plan = plan_of(7, 4, 8, in_flight=1)
    for rows in steps:
        plan.foresee(rows)
    assert [step.rows.tolist() for step in run(plan, steps)] == [[1, 2, 3, 4], [5], [6], [4]]


def test_beyond_the_window_rows_go_by_how_often_they_were_used():
    """Rows without a known next use are evicted by their number of uses: row 2, used once, goes before row 1, used three times."""
    for seldom in (2, 1):
        often = 3 - seldom
        steps = [np.array(rows) for rows in ([often], [often], sorted([often, seldom]), [5], [6], [often], [seldom])]
        plan = plan_of(7, 2, 1, in_flight=1)
        reads = [step.rows.tolist() for step in run(plan, steps)]
        assert reads[-2:] == [[], [seldom]]


def test_classes_of_uses_grow_with_them():
    classes = [plan_kernels.class_of(uses) for uses in range(2**16)]
    assert classes == sorted(classes)
    assert classes[:16] == list(range(16))
    assert classes[-1] < plan_kernels.NUM_CLASSES


def test_unplanned_steps_cost_reads_only():
    steps = drawn(5, 50, 30, 9)
    plan = plan_of(50, 30, 4)
    run(plan, steps[:10])
    plan.forget()
    run(plan, steps[20:], first_tag=100)


def test_the_number_of_planned_rows_has_a_bound():
    plan = plan_of(100, 60, 50, most_foreseen=100)
    steps = drawn(6, 100, 60, 20)
    waiting, most, sizes = iter(steps), 0, []
    for tag in range(1, 40):
        for _ in range(plan.wanted):
            plan.foresee(rows := next(waiting))
            sizes.append(len(rows))
        most = max(most, sum(sizes[plan.landed :]))  # tags count from 1
        plan.next(tag)
    assert 80 < most < 100 + 2 * 20


def test_a_step_that_does_not_fit_is_refused():
    plan = plan_of(10, 3, 2)
    plan.foresee(np.arange(4))
    with refused("3 slots", "step 4 rows", "give more"):
        plan.next(1)
