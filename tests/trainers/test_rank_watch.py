"""The failure of one rank ends all of them within seconds, with its cause."""

import multiprocessing
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import SimpleNamespace

import pytest

_CONTEXT = multiprocessing.get_context("forkserver")


@pytest.fixture(scope="module", autouse=True)
def _fork_server():
    """Importing torch and Lightning takes seconds: one process does it, and every rank is forked from that."""
    _CONTEXT.set_forkserver_preload(["hoptrain.trainers.rank_watch"])
    process = _CONTEXT.Process(target=int)
    process.start()
    process.join()


@pytest.mark.parametrize(
    ("victim", "action", "cause"),
    [
        (1, "raise", "rank 1 failed: RuntimeError: worker 3 failed at batch 7"),
        (0, "raise", "rank 0 failed: RuntimeError: worker 3 failed at batch 7"),
        (2, "kill", "rank 2 is gone: its heartbeat stopped"),
        (2, "stop", "rank 2 is gone: its heartbeat stopped"),
        (0, "kill", "rank 0 is gone"),
    ],
)
def test_all_ranks_end(victim, action, cause, start):
    ranks = [start(rank, action if rank == victim else "wait") for rank in range(3)]
    others = [rank for i, rank in enumerate(ranks) if i != victim]
    begin = time.monotonic()
    for rank in others:
        rank.join(50)
    assert time.monotonic() - begin < 50  # a collective that waits for ever is given 60 s here
    assert [rank.exitcode for rank in others] == [1, 1]
    assert all(cause in rank.errors.read_text() for rank in others)


def test_a_stopped_rank_is_killed_by_the_one_that_started_it(start):
    waiting, stopped = start(1, "wait"), start(2, "stop")
    first = start(0, "wait", waiting.pid, stopped.pid)
    for rank in (first, waiting, stopped):
        rank.join(50)
    assert "rank 2 is gone: its heartbeat stopped" in first.errors.read_text()
    assert (first.exitcode, stopped.exitcode) == (1, -signal.SIGKILL)


def test_ranks_that_finish_one_after_another_disturb_nobody(start):
    ranks = [start(rank, "finish") for rank in range(3)]
    for rank in ranks:
        rank.join(100)
    assert [rank.exitcode for rank in ranks] == [0, 0, 0], [rank.errors.read_text() for rank in ranks]


@pytest.fixture
def start(tmp_path):
    """Starts a rank; ``started`` are the ranks that it may kill."""
    ranks = []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def start_one(rank, action, *started):
        process = _CONTEXT.Process(target=_rank, args=(rank, port, action, started, tmp_path / f"{rank}"))
        process.errors = tmp_path / f"{rank}"
        process.start()
        ranks.append(process)
        return process

    yield start_one
    for rank in ranks:
        rank.kill()
        rank.join()


def _kill(pid):
    """As ``Popen.kill`` does it."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _rank(rank, port, action, started, errors):
    from torch.distributed import TCPStore

    from hoptrain.trainers import rank_watch

    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
    rank_watch.SILENCE_S = 5.0
    store = TCPStore("127.0.0.1", port, None, rank == 0, timedelta(seconds=30), wait_for_workers=False)
    processes = [SimpleNamespace(kill=partial(_kill, pid), poll=lambda: None) for pid in started]
    watch = rank_watch._Watch(store, rank, 3, processes)
    time.sleep(2)
    if action == "raise":
        watch.fail(RuntimeError("worker 3 failed at batch 7"))
        sys.exit(1)
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if action == "finish":
        watch.stop()
        sys.exit(0)
    time.sleep(60)  # a collective that waits for ever
