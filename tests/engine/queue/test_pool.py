"""The pool of sampler processes: order, contents, errors, and no process that outlives the trainer."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from cases.mistakes import refused
from reference.tasks import Numbers, Unloadable

from hoptrain.engine import WorkerError
from hoptrain.engine.queue.ahead import run_inline
from hoptrain.engine.queue.pool import WorkerPool


def values(batches):
    return [(int(arrays["step"][0]), arrays["values"].tolist()) for arrays, _ in batches]


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_the_same_batches_in_the_same_order_as_without_workers(pool_of, num_workers):
    task = Numbers(sizes=(10, 3, 400_000, 1, 0))  # the third batch is larger than a slot
    pool = pool_of(task, num_workers)
    for epoch in range(2):
        assert values(pool.run(epoch, range(11))) == values(run_inline(task, epoch, range(11)))


def test_batches_may_be_kept(pool_of):
    """If the trainer keeps more batches than there are slots, later batches are copies; no call blocks, and no batch is overwritten."""
    batches = list(pool_of(Numbers(sizes=(1000,)), 2).run(3, range(20)))
    assert values(batches) == [(step, [300 + step] * 1000) for step in range(20)]


def test_slots_are_used_again(pool_of):
    """In a steady state every batch lies in one of the ring's slots, and no memory is allocated."""
    places = set()
    for arrays, _ in pool_of(Numbers(), 1, prefetch_factor=2).run(0, range(30)):
        places.add(arrays["values"].ctypes.data)
        del arrays
    assert len(places) <= 3


def test_a_run_that_is_broken_off_leaves_nothing_in_the_next(pool_of):
    pool = pool_of(Numbers(), 2)
    first = pool.run(0, range(50))
    next(first)
    assert values(pool.run(1, range(6))) == [(step, [100 + step] * 10) for step in range(6)]
    with refused("batch 1", "iterator no longer valid", "take new iterator", WorkerError):
        next(first)


def test_steps_may_start_anywhere(pool_of):
    pool = pool_of(Numbers(), 3)
    assert [step for step, _ in values(pool.run(0, range(7, 12)))] == [7, 8, 9, 10, 11]
    assert values(pool.run(0, range(5, 5))) == []


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_run_may_be_extended(pool_of, num_workers):
    pool = pool_of(Numbers(actions={9: "input"}), num_workers)
    run = pool.run(0, range(1))
    found = values([next(run)])
    for stop in (2, 3, 9):
        pool.extend(stop)
        found += values(islice(run, stop - len(found)))
    assert found == [(step, [step] * 10) for step in range(9)]
    pool.extend(12)
    with refused("seed 9", "bad rule", "remedy"):
        next(run)
    pool.extend(20)
    assert values(pool.run(1, range(4))) == [(step, [100 + step] * 10) for step in range(4)]


def test_a_replaced_worker_continues_to_the_end_of_an_extended_run(pool_of):
    pool = pool_of(Numbers(), 1)
    run = pool.run(0, range(2))
    next(run)
    os.kill(pool.pids()[0], signal.SIGKILL)
    pool.extend(5)
    assert [step for step, _ in values(run)] == [1, 2, 3, 4]


def test_workers_import_no_torch_and_stay(pool_of):
    pool = pool_of(Numbers(), 2)
    facts = [facts for epoch in range(2) for _, facts in pool.run(epoch, range(4))]
    assert all(f["heavy"] == [] for f in facts)
    assert len({f["pid"] for f in facts}) == 2


def test_a_worker_runs_nothing_of_the_current_folder(pool_of, tmp_path, monkeypatch):
    for name in ("struct", "copy", "select"):
        (tmp_path / f"{name}.py").write_text("open(__file__ + '.ran', 'w')")
    monkeypatch.chdir(tmp_path)
    assert len(values(pool_of(Numbers(), 1).run(0, range(2)))) == 2
    assert list(tmp_path.glob("*.ran")) == []


def test_a_task_whose_class_lies_beside_the_script(pool_of, tmp_path, monkeypatch):
    (tmp_path / "own_task.py").write_text("from reference.tasks import Numbers\nclass Own(Numbers):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("own_task").Own()
    assert values(pool_of(own, 1).run(0, range(2))) == values(run_inline(own, 0, range(2)))


def test_large_arrays_of_the_task_are_shared(pool_of):
    big = np.arange(1 << 20, dtype=np.float64)
    _, facts = next(pool_of(Numbers(shared=big), 1).run(0, range(1)))
    assert facts["shared"] == (big.sum(), False)


def test_an_exception_arrives_with_its_traceback(pool_of):
    pool = pool_of(Numbers(actions={5: "raise"}), 2)
    with refused("worker 1", "failed batch 5", error=WorkerError, below="RuntimeError: broken at 5"):
        values(pool.run(0, range(8)))
    assert len(values(pool.run(0, range(5)))) == 5, "the pool serves on"


def test_bad_input_arrives_as_such(pool_of):
    with refused("seed 2", "bad rule", "remedy"):
        values(pool_of(Numbers(actions={2: "input"}), 2).run(0, range(4)))


def test_a_task_that_cannot_be_loaded_says_why(pool_of):
    with refused("worker 0", "failed started", error=WorkerError, below="no such sampler here"):
        values(pool_of(Unloadable(), 1).run(0, range(1)))


def test_a_task_that_cannot_be_sent_is_the_users_mistake():
    task = Numbers(actions={0: threading.Lock()})
    with refused("'_thread.lock'", "sampler cannot sent worker no locks", "remove num_workers=0"):
        WorkerPool(task, 1)


def test_close_is_idempotent_and_ends_iterators(pool_of):
    pool = pool_of(Numbers(), 2)
    batches = pool.run(0, range(9))
    next(batches)
    pool.close()
    pool.close()
    with refused("batch 1", "iterator loader closed", "take new iterator", WorkerError):
        list(batches)


SCRIPT = """
import os, sys, time
from reference.tasks import Numbers
from hoptrain.engine.queue.pool import WorkerPool
pool = WorkerPool(Numbers(), 2)
for arrays, facts in pool.run(0, range(1000000)):
    if arrays["step"][0] < 2:
        print(facts["pid"], flush=True)
    if arrays["step"][0] == 2:
        print("ready", flush=True)
        {end}
"""
ENDS = {
    "normal end": "break",
    "exception": "raise RuntimeError('boom')",
    "sys.exit": "sys.exit(3)",
    "os._exit": "os._exit(4)",
    "Ctrl-C": "time.sleep(60)",
    "SIGTERM": "time.sleep(60)",
    "SIGKILL": "time.sleep(60)",
}
SIGNALS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM, "SIGKILL": signal.SIGKILL}


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", ENDS)
def test_workers_end_with_their_trainer(end):
    """No sampler process outlives the trainer, however the trainer ends."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(end=ENDS[end])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    lines = [script.stdout.readline().strip() for _ in range(3)]
    assert lines[2] == "ready", script.stderr.read()
    workers = [int(pid) for pid in lines[:2]]
    if end in SIGNALS:
        script.send_signal(SIGNALS[end])
    script.communicate(timeout=20)
    deadline = time.monotonic() + 10
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(is_running, workers))


class SlowToLoad(Numbers):
    """A task that takes 1.2 s to unpickle."""

    def __setstate__(self, state):
        time.sleep(1.2)
        self.__dict__.update(state)


def test_a_start_that_takes_longer_than_a_batch_may_is_waited_for(pool_of):
    """``timeout`` applies to batches only, not to the start of a worker or of the worker that replaces it."""
    pool = pool_of(SlowToLoad(), 1, timeout=1.0, max_restarts=1)
    os.kill(pool.pids()[0], signal.SIGKILL)
    assert values(pool.run(0, range(3))) == [(step, [step] * 10) for step in range(3)]


def test_a_start_that_does_not_end_is_replaced_too(pool_of, monkeypatch):
    monkeypatch.setattr("hoptrain.engine.queue.pool.START_S", 0.2)
    with refused("0.2 s", "alive not started within", error=WorkerError, below="1 time in a row without a batch"):
        next(pool_of(SlowToLoad(), 1, timeout=0.1, max_restarts=0).run(0, range(3)))
