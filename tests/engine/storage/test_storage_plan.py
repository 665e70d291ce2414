"""The plan of a cache of rows: the fewest reads that there can be, rows where they are said to be, and no slot before its readers are done."""

import numpy as np
import pytest
from scipy.optimize import linprog

from hoptrain.engine import InputError
from hoptrain.engine.storage.plan import RowPlan
from hoptrain.kernels.cpu.storage import plan as plan_kernels


def plan_of(num_rows, num_slots, lookahead, **options):
    return RowPlan(np.empty(num_rows, np.int32), num_slots, lookahead, **options)


def drawn(seed, num_rows, num_steps, most):
    """Steps with rows of a skewed law, ascending and distinct; some steps are empty."""
    draw = np.random.default_rng(seed)
    law = 1 / (1 + np.arange(num_rows)) ** draw.uniform(0, 1.2)
    steps = (draw.choice(num_rows, draw.integers(0, most + 1), replace=False, p=law / law.sum()) for _ in range(num_steps))
    return [np.sort(rows) for rows in steps]


def run(plan, steps, first_tag=1):
    """The plan of all steps, with the rows put where it says: what each step reads."""
    waiting, found = iter(steps), []
    for tag, rows in enumerate(steps, first_tag):
        for _ in range(plan.wanted):
            if (later := next(waiting, None)) is not None:
                plan.foresee(later)
        reads = plan.next(tag)
        plan._cache.slot_of[reads.rows] = reads.slots
        slots = plan._cache.slot_of[rows]
        np.testing.assert_array_equal(plan._cache.row_of[slots], rows)
        assert reads.num_used == len(rows)
        found.append(reads)
    return found


def fewest_reads(steps, capacity):
    """By linear programming: an interval between two uses of a row saves a read, and over no gap between steps lie more than ``capacity``."""
    last, spans = {}, []
    for step, rows in enumerate(steps):
        for row in rows:
            if row in last:
                spans.append((last[row], step))
            last[row] = step
    total = sum(map(len, steps))
    if not spans:
        return total
    begins, ends = np.array(spans).T
    gaps = np.arange(len(steps))[:, None]
    over = ((begins <= gaps) & (gaps < ends)).astype(float)
    found = linprog(-np.ones(len(spans)), A_ub=over, b_ub=np.full(len(steps), capacity), bounds=(0, 1))
    return total + round(found.fun)  # intervals make a totally unimodular matrix: the optimum is whole


@pytest.mark.parametrize("seed", range(40))
def test_reads_are_the_fewest_there_can_be(seed):
    num_rows, most = 30, 8
    steps = drawn(seed, num_rows, 25, most)
    largest = max(map(len, steps))
    for capacity in (0, 1, 3, 7, 20, 30):
        plan = plan_of(num_rows, capacity + 2 * largest, len(steps))
        for rows in steps:
            plan.foresee(rows)
        reads = run(plan, steps)
        assert sum(len(step.rows) for step in reads) == fewest_reads(steps, capacity)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_the_longer_the_window_the_fewer_the_reads(seed):
    steps = drawn(seed, 400, 200, 40)
    reads = [sum(len(step.rows) for step in run(plan_of(400, 160, lookahead), steps)) for lookahead in (1, 5, 64)]
    fewest = fewest_reads(steps, 160 - 2 * max(map(len, steps)))
    assert reads[0] > reads[1] > 1.05 * fewest > reads[2]


@pytest.mark.parametrize("seed", range(10))
def test_no_slot_is_written_before_its_readers_are_done(seed):
    """A reader of step t finds its rows until it is done, though steps be read as far ahead as the plan permits."""
    steps = drawn(seed, 60, 80, 12)
    plan = plan_of(60, 40, 4)
    in_use = {}  # by step, the slots of its rows
    for tag, (reads, rows) in enumerate(zip(run(plan, steps), steps, strict=True), 1):
        assert reads.after < tag
        for earlier in [earlier for earlier in in_use if earlier <= reads.after]:
            del in_use[earlier]
        taken = set().union(*(own for own, _ in in_use.values())) if in_use else set()
        assert not taken & set(reads.slots.tolist())
        where = {} if tag == 1 else in_use.get(tag - 1, (None, {}))[1].copy()
        where |= dict(zip(reads.rows.tolist(), reads.slots.tolist(), strict=True))
        in_use[tag] = ({where[row] for row in rows.tolist() if row in where}, where)


def test_ties_go_by_the_order_of_accesses_and_ids():
    steps = [np.array([1, 2, 3, 4]), np.array([5]), np.array([1, 2, 3, 4])]
    plan = plan_of(6, 2 + 8, 8)
    for rows in steps:
        plan.foresee(rows)
    assert [step.rows.tolist() for step in run(plan, steps)] == [[1, 2, 3, 4], [5], [3, 4]]


def test_beyond_the_window_rows_go_by_how_often_they_were_used():
    """Rows 1 and 2 are used thrice and once; nothing is known of either when one has to go, and it is the latter, though it came last or first."""
    for seldom in (2, 1):
        often = 3 - seldom
        steps = [np.array(rows) for rows in ([often], [often], sorted([often, seldom]), [5], [6], [often], [seldom])]
        plan = plan_of(7, 1 + 2 * 2, 1)
        reads = [step.rows.tolist() for step in run(plan, steps)]
        assert reads[-2:] == [[], [seldom]]


def test_classes_of_uses_grow_with_them():
    classes = [plan_kernels._class(uses) for uses in range(2**16)]
    assert classes == sorted(classes)
    assert classes[:16] == list(range(16))
    assert classes[-1] < plan_kernels.NUM_CLASSES


def test_other_steps_than_foreseen_cost_reads_and_no_more():
    steps = drawn(5, 50, 30, 9)
    plan = plan_of(50, 30, 4)
    run(plan, steps[:10])
    plan.forget()
    run(plan, steps[20:], first_tag=100)


def test_what_is_foreseen_has_a_bound():
    plan = plan_of(100, 60, 50, most_foreseen=100)
    steps = drawn(6, 100, 60, 20)
    waiting, most = iter(steps), 0
    for tag in range(1, 40):
        for _ in range(plan.wanted):
            plan.foresee(next(waiting))
        most = max(most, plan._num_foreseen)
        reads = plan.next(tag)
        plan._cache.slot_of[reads.rows] = reads.slots
    assert 80 < most < 100 + 2 * 20


def test_a_step_that_does_not_fit_is_refused():
    plan = plan_of(10, 3, 2)
    plan.foresee(np.arange(4))
    with pytest.raises(InputError, match="memory has room for 3 rows, and a step reads 4: give more"):
        plan.next(1)
