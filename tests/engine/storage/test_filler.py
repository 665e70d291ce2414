"""The process that fills a row cache: rows are present when their step is announced, and it reads several steps together."""

import numpy as np
import pytest

from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.filler import CacheFillTask, Filled, run_and_epoch
from hoptrain.engine.storage.shared_rows import CachedTable, SharedRows, tag_of

V, STEPS = 400, 30


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = np.random.default_rng(0).integers(0, 256, (V, 24), np.uint8)
    path = tmp_path_factory.mktemp("filler") / "x.npy"
    np.save(path, rows)
    return np.load(path, mmap_mode="r")


def rows_of(epoch, step):
    draw = np.random.default_rng([epoch, step])
    return [np.unique((V * draw.random(12) ** 3).astype(np.int32))]


class Steps:
    """A sampler of future steps whose batches are their rows; it notes the tags of the steps that it passes to the workers."""

    num_in_flight, is_full = 32, False

    def __init__(self, rows_of):
        self.rows_of, self.published = rows_of, []

    def rows_of_next(self, later):
        return next((self.rows_of(*at) for at in later), None)

    def publish(self, tag, landed):
        assert landed < tag
        self.published.append(tag)

    def forget(self):
        pass

    def counted(self):
        return Filled()


def filler(table, num_slots, rows_of=rows_of):
    shared = SharedRows.make([CachedTable(V, 24, num_slots, 1 << 20)], 1)
    return CacheFillTask(shared=shared, files=[FileRows.of(table, "features")], samples=Steps(rows_of), num_steps=STEPS, prefetch_steps=8)


def fill(task, run, epoch, steps, table):
    """Run the cache for some steps, check the rows of every announced step, and return the statistics of each step."""
    found = []
    task.shared.begin(0, run, steps)
    for step in steps:
        found.append(task.make_batch(run_and_epoch(run, epoch), step, lambda _: {}))
        ready = task.shared.ready - tag_of(run, 0)
        assert step <= ready < steps.stop
        for there in range(step, ready + 1):
            (rows,) = task.samples.rows_of(epoch, there)
            slots = np.empty(len(rows), np.int32)
            task.shared.find(0, rows, slots)
            np.testing.assert_array_equal(task.shared.rows(0)[slots], table[rows])
        task.shared.take(0, tag_of(run, step))
    assert task.samples.published[-len(steps) :] == [tag_of(run, step) for step in steps]  # each once, in order
    return found


@pytest.mark.parametrize("num_slots", [14, 22, 120, 200, V])
def test_rows_of_steps_that_are_ready_are_there(table, num_slots):
    task = filler(table, num_slots)
    found = [*fill(task, 1, 0, range(STEPS), table), *fill(task, 2, 1, range(STEPS), table)]
    assert sum(each.num_used for each in found) == sum(len(rows_of(epoch, step)[0]) for epoch in (0, 1) for step in range(STEPS))
    at_once = 2 * STEPS / sum(each != Filled() for each in found)
    assert at_once > 2 if num_slots >= 120 else at_once < 1.1  # half of the slots hold three steps only in the larger cases


def test_runs_that_stop_early_and_begin_anywhere(table):
    task = filler(table, 120)
    fill(task, 1, 0, range(5), table)
    fill(task, 2, 0, range(5, 17), table)
    fill(task, 3, 4, range(20, STEPS), table)
    fill(task, 4, 5, range(STEPS), table)


def test_a_step_that_fills_the_cache_is_read_alone(table):
    """If a step needs nearly all slots, the smaller steps before it are read without it, so that no step waits forever."""

    def with_a_large_one(epoch, step):
        return [np.arange(100, dtype=np.int32)] if step == 20 else rows_of(epoch, step)

    fill(filler(table, 110, with_a_large_one), 1, 0, range(STEPS), table)
