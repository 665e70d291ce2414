"""Batches that a thread prepares one step ahead, or several at once, equal batches made in sequence.

No thread is left when the iterator ends.
"""

import gc
import os
import signal
import sys
import threading
import time
import traceback
from itertools import count, islice

import numpy as np
import pytest
from cases.mistakes import refused
from reference.tasks import Numbers

from hoptrain.engine import InputError, WorkerError
from hoptrain.engine.queue import ahead
from hoptrain.engine.queue.ahead import run_inline, run_together
from hoptrain.engine.queue.ring import Recycled


def values(batches):
    return [(int(arrays["step"][0]), arrays["values"].tolist()) for arrays, _ in batches]


def run_ahead(task, epoch, steps, **options):
    """Return the batches of a task, made one step ahead in recycled memory."""
    memory = Recycled(3)

    def make(step):
        arrays = {}

        def allocate(specs):
            arrays.update(memory(specs))
            return arrays

        return arrays, task.make_batch(epoch, step, allocate)

    return ahead.run_ahead(make, steps, **options)


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("hoptrain-ahead")]


class Noted(Numbers):
    """A slow task that records when each batch begins and ends."""

    def __init__(self, seconds=0.0, **options):
        super().__init__(**options)
        self.seconds, self.notes, self.makers, self.value = seconds, [], set(), 0

    def make_batch(self, epoch, step, allocate):
        self.notes.append(("begins", step))
        self.makers.add(threading.current_thread())
        time.sleep(self.seconds)
        made = super().make_batch(epoch, step, allocate)
        self.notes.append(("ends", step))
        return made


@pytest.mark.parametrize("number", [0, 1, 2, 11])
def test_the_same_batches_as_without_the_thread(number):
    task = Numbers(sizes=(10, 3, 400_000, 1, 0))
    assert values(run_ahead(task, 1, range(number))) == values(run_inline(task, 1, range(number)))
    assert threads() == []


def test_one_batch_is_made_while_one_is_used_and_no_more():
    task, asked = Noted(), []

    def steps():
        for step in count():
            assert threading.current_thread() is threading.main_thread()
            asked.append(step)
            yield step

    batches = run_ahead(task, 0, steps())
    for step in range(5):
        assert int(next(batches)[0]["step"][0]) == step
        deadline = time.monotonic() + 30
        while ("ends", step + 1) not in task.notes:
            assert time.monotonic() < deadline, "the next batch is made while this one is used"
        assert asked == list(range(step + 2))
        assert ("begins", step + 2) not in task.notes
    batches.close()
    assert threading.main_thread() not in task.makers
    assert len(task.makers) == 1


def test_memory_is_that_of_three_batches():
    places = set()
    for arrays, _ in run_ahead(Numbers(), 0, range(40)):
        places.add(arrays["values"].ctypes.data)
        del arrays
    assert len(places) <= 3


def test_batches_may_be_kept():
    assert values(list(run_ahead(Numbers(sizes=(1000,)), 3, range(20)))) == [(step, [300 + step] * 1000) for step in range(20)]


@pytest.mark.parametrize(("action", "kind", "words"), [("raise", RuntimeError, "broken"), ("input", InputError, "seed bad")])
def test_what_goes_wrong_is_raised_where_its_batch_is_due(action, kind, words):
    batches = run_ahead(Numbers(actions={2: action}), 0, range(6))
    assert [int(arrays["step"][0]) for arrays, _ in islice(batches, 2)] == [0, 1]
    with refused("2", words, error=kind) as raised:
        next(batches)
    assert "make_batch" in "".join(traceback.format_tb(raised.tb)), "the traceback has the position in the task"
    del raised
    assert list(batches) == []
    assert threads() == []


def test_an_error_of_the_steps_ends_the_thread():
    def steps():
        yield 0
        raise InputError("no step after 0: rule; remedy")

    with refused("0", "no step after", "remedy"):
        list(run_ahead(Numbers(), 0, steps()))
    assert threads() == []


@pytest.mark.parametrize("how", ["break", "close", "collected"])
def test_nothing_is_under_way_after_an_early_end(how):
    task = Noted(seconds=0.05)
    batches = run_ahead(task, 0, range(50))
    if how == "break":
        for _ in batches:
            break
        del batches
    elif how == "close":
        next(batches)
        batches.close()
    else:
        circle = [batches]
        circle.append(circle)
        next(batches)
        del batches, circle
        gc.collect()
    assert threads() == []
    assert [step for what, step in task.notes if what == "begins"] == [step for what, step in task.notes if what == "ends"] == [0, 1]


def awaits_a_result():
    """Return whether the main thread waits for a result."""
    stack = traceback.walk_stack(sys._current_frames()[threading.main_thread().ident])
    return any(frame.f_code.co_name == "result" for frame, _ in stack)


def test_ctrl_c_arrives_while_a_batch_is_awaited():
    class Interrupts(Noted):
        """A task that sends SIGINT once the main thread waits for its batch."""

        def make_batch(self, epoch, step, allocate):
            if step == 0:
                while not awaits_a_result():
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)
            return super().make_batch(epoch, step, allocate)

    batches = run_ahead(Interrupts(seconds=0.5), 0, range(50))
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert time.monotonic() - begin < 30
    assert threads() == []


def test_a_batch_begun_before_a_change_is_recomputed():
    class Reads(Numbers):
        value = 0

        def make_batch(self, epoch, step, allocate):
            allocate([("values", np.dtype(np.int64), (1,))])["values"][0] = self.value

    task, found = Reads(), []
    for arrays, _ in run_ahead(task, 0, range(6), state=lambda: task.value):
        found.append(int(arrays["values"][0]))
        time.sleep(0.01)
        task.value += 10
    assert found == [0, 10, 20, 30, 40, 50]


def test_a_fork_starts_from_scratch_and_its_parent_continues():
    task = Noted(seconds=0.05)
    batches = run_ahead(task, 0, range(4))
    assert int(next(batches)[0]["step"][0]) == 0
    child = os.fork()  # while the thread makes the next batch
    if child == 0:
        try:
            next(batches)
        except WorkerError as error:
            says = "take a new iterator" in str(error)
            here = values(run_ahead(Numbers(), 1, range(3))) == values(run_inline(Numbers(), 1, range(3)))
            os._exit(0 if says and here else 2)
        finally:
            os._exit(3)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert [step for step, _ in values(batches)] == [1, 2, 3]


def run_in_threads(functions):
    """Run the first function in this thread, and each of the others in a new thread."""
    mine, *others = functions
    running = [threading.Thread(target=other) for other in others]
    for thread in running:
        thread.start()
    mine()
    for thread in running:
        thread.join()


def together(task, number, epoch, steps, memory=None, max_bytes=1 << 30):
    return run_together(task, [task] * number, run_in_threads, epoch, steps, memory or Recycled(number + 1), max_bytes)


@pytest.mark.parametrize("number", [2, 3, 8])
@pytest.mark.parametrize("steps", [range(0), range(1), range(2, 13)])
def test_the_same_batches_made_at_once(number, steps):
    task = Numbers(sizes=(10, 3, 400_000, 1, 0))
    assert values(together(task, number, 1, steps)) == values(run_inline(task, 1, steps))


def test_the_first_batch_and_the_last_one_left_over_are_made_alone():
    alone, others, memory = Noted(), [Noted(), Noted(), Noted()], Recycled(4)
    for first in (0, 8):
        list(run_together(alone, others, run_in_threads, 0, range(first, first + 8), memory, 1 << 30))
    begun = [[step for what, step in task.notes if what == "begins"] for task in (alone, *others)]
    assert begun == [[0, 7], [1, 4, 8, 11, 14], [2, 5, 9, 12, 15], [3, 6, 10, 13]]


def test_batches_made_at_once_are_made_by_different_threads_and_none_while_one_is_used():
    begun = threading.Barrier(2, timeout=30)

    class Waiting(Noted):
        def make_batch(self, epoch, step, allocate):
            if step:
                begun.wait()  # waits for the other thread, or fails
            return super().make_batch(epoch, step, allocate)

    task = Waiting()
    for number, (arrays, _) in enumerate(together(task, 2, 0, range(7))):
        assert int(arrays["step"][0]) == number
        made = 1 if number == 0 else number + number % 2 + 1
        assert sum(what == "ends" for what, _ in task.notes) == sum(what == "begins" for what, _ in task.notes) == made
    assert len(task.makers) > 1


def test_batches_that_do_not_fit_are_made_one_by_one():
    task, others = Noted(sizes=(1000,)), [Noted(sizes=(1000,))] * 2
    assert values(run_together(task, others, run_in_threads, 0, range(5), Recycled(3), 8000)) == values(run_inline(task, 0, range(5)))
    assert others[0].notes == []


def test_an_error_of_a_batch_made_at_once_is_raised_where_it_is_due():
    """An error in a batch is raised after all earlier batches were yielded, and keeps its traceback."""
    batches = together(Numbers(actions={2: "raise"}), 2, 0, range(6))
    assert [int(arrays["step"][0]) for arrays, _ in islice(batches, 2)] == [0, 1]
    with refused("2", "broken", error=RuntimeError) as raised:
        next(batches)
    assert "make_batch" in "".join(traceback.format_tb(raised.tb))


def test_memory_of_batches_made_at_once_is_used_again():
    places, memory = set(), Recycled(3)
    for _ in range(3):
        for arrays, _ in together(Numbers(), 2, 0, range(20), memory):
            places.add(arrays["values"].ctypes.data)
            del arrays
    assert len(places) <= 3
