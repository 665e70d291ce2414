"""Every fault of a worker ends within seconds: the worker is replaced and batches are unchanged, or one error is raised.

``HOPTRAIN_FAULTS=50`` repeats the quick cases 50 times, and combines each fault with each state of a worker (``make test-faults``).
"""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cases.mistakes import refused
from reference.tasks import Faulty, Numbers

from hoptrain.engine import WorkerError

REPEATS = int(os.environ.get("HOPTRAIN_FAULTS", "2"))
EACH = pytest.mark.skipif("HOPTRAIN_FAULTS" not in os.environ, reason="each combination: HOPTRAIN_FAULTS=2")


def run(pool, epoch, steps):
    """Return the value of each batch, after checking that all its elements are equal."""
    found = []
    for arrays, _ in pool.run(epoch, range(steps)):
        assert (arrays["values"] == arrays["values"][0]).all()
        found.append(int(arrays["values"][0]))
        del arrays
    return found


def undisturbed(epoch, steps):
    return [100 * epoch + step for step in range(steps)]


QUICK_DEATHS = ("sampling", "kill"), ("writing", "segfault"), ("written", "exit")
"""Each state and each kind of death once."""


@pytest.mark.parametrize(
    ("state", "action"),
    [
        pytest.param(state, action, marks=pytest.mark.promise if (state, action) in QUICK_DEATHS else EACH)
        for state in ("sampling", "writing", "written")
        for action in ("kill", "segfault", "exit")
    ],
)
def test_a_worker_that_dies_is_replaced(pool_of, tmp_path, caplog, state, action):
    steps = 3 * REPEATS + 2
    faults = {3 * i + 1: (state, action) for i in range(REPEATS)}
    pool = pool_of(Faulty(tmp_path, faults), 2)
    with caplog.at_level(logging.WARNING):
        assert run(pool, 0, steps) == undisturbed(0, steps)
    assert len(caplog.records) == REPEATS
    how = {"kill": "was killed by SIGKILL", "segfault": "was killed by SIGSEGV", "exit": "ended with exit code 0"}[action]
    assert all(how in record.getMessage() for record in caplog.records)
    assert run(pool, 1, 2) == undisturbed(1, 2)


@pytest.mark.parametrize("state", ["sampling", "writing", "written"])
def test_an_exception_ends_the_run_and_the_pool_serves_on(pool_of, tmp_path, state):
    pool = pool_of(Faulty(tmp_path, {3: (state, "raise")}), 2)
    for epoch in range(REPEATS):
        with refused("worker 1", "failed batch 3", error=WorkerError, below="RuntimeError: broken once"):
            run(pool, epoch, 8)
        assert run(pool, epoch, 8) == undisturbed(epoch, 8)


@pytest.mark.parametrize(
    ("state", "action", "where"),
    [
        pytest.param("sampling", "stop", "the process is stopped", marks=EACH),
        ("writing", "stop", "the process is stopped"),
        pytest.param("written", "stop", "the process is stopped", marks=EACH),
        ("sampling", "spin", "in _spin"),
    ],
)
def test_a_worker_that_makes_nothing_is_named_with_its_stack_and_replaced(pool_of, tmp_path, caplog, state, action, where):
    pool = pool_of(
        Faulty(tmp_path, {2: (state, action)}), 2, timeout=4, max_restarts=10
    )  # a busy machine may take seconds to start a worker
    with caplog.at_level(logging.WARNING):
        assert run(pool, 0, 6) == undisturbed(0, 6)
    messages = [record.getMessage() for record in caplog.records]
    assert any("has not made batch 2 for 4 s" in message and where in message for message in messages)


def test_a_stack_can_be_asked_for_again(pool_of, tmp_path):
    pool = pool_of(Faulty(tmp_path, {0: ("sampling", "spin")}), 1)
    batches = pool.run(0, range(2))
    deadline = time.monotonic() + 60
    while not (tmp_path / "0-0").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    for stack in (pool.workers[0].stack(), pool.workers[0].stack()):
        assert stack.startswith("Current thread")
        assert "in _spin" in stack
    batches.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, *(pytest.param(number, marks=EACH) for number in (signal.SIGSEGV, signal.SIGTERM))])
def test_a_worker_that_dies_idle_is_replaced(pool_of, tmp_path, number):
    pool = pool_of(Faulty(tmp_path, {}), 2)
    for epoch in range(REPEATS):
        assert run(pool, epoch, 5) == undisturbed(epoch, 5)
        for pid in pool.pids():
            os.kill(pid, number)


def test_a_worker_that_is_stopped_in_the_middle_of_a_message_is_replaced(pool_of, tmp_path):
    pool = pool_of(Faulty(tmp_path, {2: ("written", "half")}), 2)
    assert run(pool, 0, 6) == undisturbed(0, 6)


def test_a_worker_that_is_stopped_before_it_runs_is_replaced(pool_of, tmp_path, monkeypatch):
    monkeypatch.setattr("hoptrain.engine.queue.pool.START_S", 4)
    pool = pool_of(Faulty(tmp_path, {}), 1, timeout=4, max_restarts=10)
    os.kill(pool.pids()[0], signal.SIGSTOP)  # before the worker has arranged to die with this process
    assert run(pool, 0, 2) == undisturbed(0, 2)
    pool.close()
    pool = pool_of(Faulty(tmp_path, {}), 1)
    os.kill(pool.pids()[0], signal.SIGSTOP)
    pool.close()


def test_a_worker_that_is_stopped_idle_is_replaced(pool_of, tmp_path):
    pool = pool_of(Faulty(tmp_path, {}), 2, timeout=4, max_restarts=10)
    assert run(pool, 0, 5) == undisturbed(0, 5)
    stopped = pool.pids()[1]
    os.kill(stopped, signal.SIGSTOP)
    assert run(pool, 1, 5) == undisturbed(1, 5)
    assert pool.pids()[1] != stopped


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSEGV, marks=EACH), signal.SIGSTOP])
def test_a_worker_that_ends_while_it_waits_for_a_slot_is_replaced(pool_of, tmp_path, number):
    """A worker that ends while it waits for a slot is replaced; its finished batches are delivered, and the new worker makes the rest."""
    pool = pool_of(Faulty(tmp_path, {}), 1, prefetch_factor=2, timeout=4, max_restarts=10)
    batches = pool.run(0, range(10))
    first, _ = next(batches)  # keeping the batch makes the worker run out of slots
    time.sleep(0.5)
    os.kill(pool.pids()[0], number)
    rest = [int(arrays["values"][-1]) for arrays, _ in batches]
    assert [int(first["values"][0]), *rest] == undisturbed(0, 10)


@pytest.mark.promise
def test_a_worker_that_dies_again_and_again_ends_the_run(pool_of, tmp_path):
    pool = pool_of(Faulty(tmp_path, {2: ("writing", "kill")}, again=True), 2, max_restarts=2)
    with refused("worker 0", "pid killed SIGKILL 3 times batch", "fix sampler timeout", WorkerError):
        run(pool, 0, 6)


def test_a_batch_resets_the_count_of_restarts_in_a_row(pool_of, tmp_path):
    faults = dict.fromkeys(range(6), ("sampling", "kill"))
    assert run(pool_of(Faulty(tmp_path, faults), 1, max_restarts=1), 0, 8) == undisturbed(0, 8)


@pytest.mark.parametrize("slow", ["sampler", "trainer"])
def test_one_side_ten_times_slower_than_the_other(pool_of, tmp_path, slow):
    faults = dict.fromkeys(range(12), ("sampling", "sleep")) if slow == "sampler" else {}
    found = []
    for arrays, _ in pool_of(Faulty(tmp_path, faults, again=True), 2).run(0, range(12)):
        time.sleep(0.05 if slow == "trainer" else 0.005)
        found.append(int(arrays["values"][0]))
    assert found == undisturbed(0, 12)


@pytest.mark.parametrize("action", ["kill", "stop", "raise"])
def test_a_fault_in_a_run_that_is_left_does_not_reach_the_next(pool_of, tmp_path, action):
    (tmp_path / "1-2").touch()  # no fault in the second epoch
    (tmp_path / "1-3").touch()
    pool = pool_of(Faulty(tmp_path, {2: ("writing", action), 3: ("written", action)}), 2, timeout=4, max_restarts=10)
    batches = pool.run(0, range(50))
    assert int(next(batches)[0]["values"][0]) == 0
    time.sleep(0.5)  # the workers run into their faults
    assert run(pool, 1, 6) == undisturbed(1, 6)


def test_two_pools_at_once(pool_of, tmp_path):
    one, two = pool_of(Faulty(tmp_path, {3: ("written", "kill")}), 2), pool_of(Numbers(), 1)
    ours, theirs = one.run(0, range(8)), two.run(1, range(8))
    pairs = [(int(a["values"][0]), int(b["values"][0])) for (a, _), (b, _) in zip(ours, theirs, strict=True)]
    assert pairs == list(zip(undisturbed(0, 8), undisturbed(1, 8), strict=True))


def test_a_wait_costs_no_processor_time(pool_of, tmp_path):
    """The trainer uses less than 5 % of a core while it waits for a stopped worker's batch; polling would use a whole core."""
    pool = pool_of(Faulty(tmp_path, {1: ("sampling", "stop")}), 1, timeout=5, max_restarts=10)
    batches = pool.run(0, range(3))
    next(batches)
    time.sleep(0.3)
    begin, used = time.monotonic(), time.process_time()
    next(batches)
    waited = time.monotonic() - begin
    assert waited > 3
    assert time.process_time() - used < 0.05 * waited
    batches.close()


def started(folder):
    """Return the ids of the processes that samplers have started; each sampler forks one and executes one."""
    return [int(pid) for path in folder.glob("started-*") for pid in path.read_text().split()]


def assert_none_runs(pids, seconds=20):
    deadline = time.monotonic() + seconds
    while any(map(_is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in pids if _is_running(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


@pytest.mark.parametrize("end", ["close", "exit", "kill", pytest.param("spin", marks=EACH), "stop"])
def test_what_a_sampler_starts_ends_with_its_worker(pool_of, tmp_path, end):
    """Processes that a sampler starts end with their worker, however the worker ends.

    A worker with ``exit`` ends and leaves its children; a worker with ``spin`` or ``stop`` is replaced.
    """
    faults = {0: ("sampling", "start")} | ({} if end == "close" else {1: ("sampling", end)})
    pool = pool_of(Faulty(tmp_path, faults), 1, timeout=4, max_restarts=10)
    assert run(pool, 0, 3) == undisturbed(0, 3)
    pids = started(tmp_path)
    assert len(pids) == 2
    if end == "close":
        assert all(map(_is_running, pids))
        pool.close()
    assert_none_runs(pids)


TRAINER = """
import glob, os, sys, time
from reference.tasks import Faulty
from hoptrain.engine.queue.pool import WorkerPool
pool = WorkerPool(Faulty({folder!r}, {faults!r}), 2)
batches = pool.run(0, range(1000))
print(*pool.pids(), flush=True)
while len(glob.glob({folder!r} + "/started-*")) < {starting}:
    time.sleep(0.05)
{action}
"""


ENDS = {
    "killed": "os.kill(os.getpid(), 9)",
    "ends without close": "next(batches) if not {faults!r} else None; sys.exit(0)",
    "exits at once": "os._exit(1)",
    "dies while a fork of it lives": "os.fork() or time.sleep(60); os._exit(0)",
}
WORKERS = {
    "well": {},
    "stopped and stuck": {0: ("sampling", "stop"), 1: ("sampling", "spin")},
    "with processes of their own": {0: ("sampling", "start"), 1: ("written", "start")},
}
SOME_ENDS = {
    ("killed", "stopped and stuck"),
    ("killed", "with processes of their own"),
    ("ends without close", "well"),
    ("exits at once", "with processes of their own"),
    ("dies while a fork of it lives", "stopped and stuck"),
}
"""Each end, and each kind of worker."""


@pytest.mark.parametrize(
    ("end", "workers"),
    [pytest.param(end, workers, marks=[] if (end, workers) in SOME_ENDS else EACH) for end in ENDS for workers in WORKERS],
)
def test_no_worker_outlives_its_trainer(tmp_path, end, workers):
    action, faults = ENDS[end], WORKERS[workers]
    starting = sum(action == "start" for _, action in faults.values())
    script = TRAINER.format(folder=str(tmp_path), faults=faults, starting=starting, action=action.format(faults=faults))
    trainer = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": "."},
    )
    pids = [int(pid) for pid in trainer.stdout.readline().split()]
    assert len(pids) == 2
    trainer.wait(60)
    trainer.stdout.close()
    pids += started(tmp_path)
    assert len(pids) == 2 + 2 * starting
    assert_none_runs(pids)


def _is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_fork_of_the_trainer_leaves_the_workers_alone(pool_of, tmp_path):
    pool = pool_of(Faulty(tmp_path, {}), 2)
    batches = pool.run(0, range(10))
    next(batches)
    child = os.fork()
    if child == 0:
        pool.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert [int(arrays["values"][0]) for arrays, _ in batches] == undisturbed(0, 10)[1:]
