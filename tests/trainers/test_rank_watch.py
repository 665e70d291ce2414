"""The failure of one rank ends all of them within seconds, with its cause."""

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

RANK = """
    import os, sys, time
    from datetime import timedelta
    from torch.distributed import TCPStore
    from hoptrain.trainers import rank_watch
    rank, port, action = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    rank_watch.SILENCE_S = 5.0
    store = TCPStore("127.0.0.1", port, None, rank == 0, timedelta(seconds=30), wait_for_workers=False)
    watch = rank_watch._Watch(store, rank, 3)
    print("ready", flush=True)
    time.sleep(2)
    if action == "raise":
        watch.fail(RuntimeError("worker 3 failed at batch 7"))
        sys.exit(1)
    if action == "kill":
        os.kill(os.getpid(), 9)
    if action == "stop":
        os.kill(os.getpid(), 19)
    if action == "finish":
        watch.stop()
        sys.exit(0)
    time.sleep(60)  # a collective that waits for ever
"""


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
def test_all_ranks_end(victim, action, cause):
    port = _free_port()
    ranks = [_start(rank, port, action if rank == victim else "wait") for rank in range(3)]
    try:
        for rank in ranks:
            assert rank.stdout.readline() == "ready\n"
        begin = time.monotonic()
        others = [rank for i, rank in enumerate(ranks) if i != victim]
        errors = [rank.communicate(timeout=40)[1] for rank in others]
        assert time.monotonic() - begin < 40  # a collective that waits for ever is given 60 s here
        assert [rank.returncode for rank in others] == [1, 1]
        assert all(cause in text for text in errors)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def test_ranks_that_finish_one_after_another_disturb_nobody():
    port = _free_port()
    ranks = [_start(rank, port, "finish") for rank in range(3)]
    results = [rank.communicate(timeout=100) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], results


def _free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _start(rank, port, action):
    command = [sys.executable, "-c", textwrap.dedent(RANK), str(rank), str(port), action]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root)
