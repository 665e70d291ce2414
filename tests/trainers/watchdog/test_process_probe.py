"""A probe reports whether another process runs, and how it ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hoptrain.trainers.watchdog.process_probe import ProcessProbe

KILLED = "was killed by SIGKILL, by hand or because memory ran out"


@pytest.fixture
def start():
    """Start a process that prints a line and then runs a statement."""
    processes = []

    def start_one(line):
        program = f"import os, time\nprint('', flush=True)\n{line}"
        processes.append(subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE))
        processes[-1].stdout.readline()
        return processes[-1]

    yield start_one
    for process in processes:
        process.kill()
        process.communicate()


def look_until(probe, what, look=ProcessProbe.look):
    deadline = time.monotonic() + 30
    while not getattr(probe, what):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
        look(probe)


@pytest.mark.parametrize(
    ("line", "how", "was_asked"),
    [
        ("os._exit(7)", "ended with exit code 7 before the run was done", False),
        ("os.kill(os.getpid(), 9)", KILLED, False),
        ("os.kill(os.getpid(), 11)", "was killed by SIGSEGV", False),
        ("os.kill(os.getpid(), 15)", "was killed by SIGTERM", True),
        ("os.kill(os.getpid(), 40)", "was killed by signal 40", False),
    ],
)
def test_how_a_process_ended(start, line, how, was_asked):
    probe = ProcessProbe(start(line).pid)
    look_until(probe, "is_gone")
    assert (probe.how_it_ended(), probe.was_asked()) == (how, was_asked)


def test_a_process_whose_parent_was_faster(start):
    process = start("time.sleep(100)")
    probe = ProcessProbe(process.pid)
    process.kill()
    process.wait()
    probe.look()
    assert probe.is_gone
    assert probe.how_it_ended() in (
        KILLED,
        "ended without a message: it was killed (SIGKILL, by hand or because memory ran out), or called os._exit",
    )


def test_a_process_of_which_nothing_is_known(start):
    process = start("time.sleep(100)")
    probe = ProcessProbe(process.pid)
    if probe.end is not None:  # older kernels have no such descriptor
        os.close(probe.end)
        probe.end = None
    process.kill()
    process.wait()
    probe.look()
    assert probe.how_it_ended() == "ended without a message: it was killed (SIGKILL, by hand or because memory ran out), or called os._exit"
    assert probe.how_it_ended("crashed: Segmentation fault") == "crashed: Segmentation fault"


def test_a_stopped_process(start):
    process = start("time.sleep(100)")
    probe = ProcessProbe(process.pid)
    process.send_signal(signal.SIGSTOP)
    look_until(probe, "is_stopped")
    process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 30
    while probe.is_stopped and time.monotonic() < deadline:
        probe.look()
    assert not probe.is_stopped


def test_a_process_that_stands_still(start):
    probe = ProcessProbe(start("time.sleep(100)").pid)
    look_until(probe, "is_still", ProcessProbe.look_for_work)


@pytest.mark.parametrize("line", ["while True: pass", "__import__('subprocess').run(['sleep', '100'])"])
def test_a_process_that_works_or_waits_for_a_child(start, line):
    process = start(line)
    probe = ProcessProbe(process.pid)
    time.sleep(1)
    for _ in range(3):
        time.sleep(0.5)
        probe.look_for_work()
        assert not probe.is_still
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
