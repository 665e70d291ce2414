"""The failure of one rank ends all ranks within seconds, with its cause. Ranks are processes without torch, each with a watchdog.

``HOPTRAIN_FAULTS=1`` lets each rank fail in each way (``make test-faults``).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from ranks.on_machines import send

RANK = Path(__file__).parents[2] / "reference" / "light_rank.py"
END_S = 100  # a busy machine
pytestmark = pytest.mark.timeout(3 * END_S)


class Ranks:
    """Three ranks of which one acts and the others wait forever in a collective."""

    def __init__(self, folder):
        self.folder, self.ranks, self.address = folder, [], ""

    def start(self, *actions):
        self.begin(*actions)
        deadline = time.monotonic() + END_S
        while connections_to(int(self.address.split()[1])) < len(self.ranks):
            assert time.monotonic() < deadline, "the watchdogs do not connect"
            time.sleep(0.05)
        time.sleep(0.5)  # by then each rank has reported its position
        self.go()

    def begin(self, *actions):
        for rank, action in enumerate(actions):
            if action == "absent":
                continue
            environment = dict(os.environ)
            if rank:
                environment |= {"HOPTRAIN_WATCH": self.address, "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(actions))}
            with open(self.folder / f"errors{rank}", "wb") as errors:
                self.ranks.append(
                    subprocess.Popen(
                        [sys.executable, RANK, action, *([str(len(actions))] if rank == 0 else [])],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                        text=True,
                        env=environment,
                        start_new_session=True,
                    )
                )
            if rank == 0:
                self.address = self.ranks[0].stdout.readline().strip()

    def go(self):
        for process in self.ranks:
            with suppress(BrokenPipeError):  # the first rank may have failed and ended this one
                process.stdin.write("\n")
                process.stdin.flush()

    def wait(self):
        """Wait until all ranks and watchdogs have ended; return the exit code and the last line of each."""
        deadline = time.monotonic() + END_S
        for process in self.ranks:
            process.wait(max(0.0, deadline - time.monotonic()))
        while left := [pid for process in self.ranks for pid in of_session(process.pid)]:
            assert time.monotonic() < deadline, f"watches are left: {left}"
            time.sleep(0.05)
        lines = [path.read_text().splitlines() for path in sorted(self.folder.glob("errors*"))]
        return [process.returncode for process in self.ranks], lines

    def close(self):
        for process in self.ranks:
            send(of_session(process.pid), signal.SIGKILL)
            process.wait()
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()


def connections_to(port):
    """Return the number of connections to a port of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def of_session(session):
    found = []
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(folder.name))
    return found


@pytest.fixture
def ranks(tmp_path):
    ranks = Ranks(tmp_path)
    yield ranks
    ranks.close()


SEEN = " (last seen at epoch 2, step 31)"


CAUSES = {
    "raise": ("failed: RuntimeError: worker 3 failed at batch 7: ... ValueError: too deep (at ", 1),
    "leave4": ("ended by sys.exit(4) before the run was done (at ", 4),
    "exit": ("ended with exit code 3 before the run was done" + SEEN, 3),
    "KILL": ("was killed by SIGKILL, by hand or because memory ran out" + SEEN, -signal.SIGKILL),
    "crash": ("was killed by SIGSEGV at ", -signal.SIGSEGV),
}
EVERY_FAILURE = [(action, victim) for action in CAUSES for victim in (0, 1)]
SOME_FAILURES = [(action, number % 2) for number, action in enumerate(CAUSES)]
"""Each action once. The coordinator decides, in the watchdog of rank 0."""


@pytest.mark.parametrize(("action", "victim"), EVERY_FAILURE if "HOPTRAIN_FAULTS" in os.environ else SOME_FAILURES)
def test_every_rank_reports_the_cause(ranks, action, victim):
    cause, code = CAUSES[action]
    actions = ["wait"] * 3
    actions[victim] = action
    ranks.start(*actions)
    codes, lines = ranks.wait()
    if action == "crash":
        assert "in string_at" in lines[victim][-1]
    for rank in range(3):
        assert codes[rank] == (code if rank == victim else 1)
        words = "" if rank == victim else f"rank {rank} ends, because "
        assert lines[rank][-1].startswith(f"hoptrain: {words}rank {victim} {cause}")
        assert len(lines[rank]) == 1 or (rank == victim and action == "raise")


def test_a_stopped_rank_and_one_that_holds_the_interpreter_are_killed(ranks):
    ranks.start("STOP", "hold", "wait")
    codes, lines = ranks.wait()
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 1]
    cause = "rank 0 was stopped (SIGSTOP) and not continued for 10 s" + SEEN
    assert lines == [[f"hoptrain: {cause}"], [f"hoptrain: rank 1 ends, because {cause}"], [f"hoptrain: rank 2 ends, because {cause}"]]


def test_a_rank_that_waits_for_ever_before_it_arrives(ranks):
    ranks.start("wait", "late", "wait")
    _, lines = ranks.wait()
    cause = "rank 1 has not arrived: it was idle for 12 s while another rank waits for it" + SEEN
    assert [errors[-1] for errors in lines] == [
        f"hoptrain: rank 0 ends, because {cause}",
        f"hoptrain: {cause}",
        f"hoptrain: rank 2 ends, because {cause}",
    ]


def test_an_error_caused_by_another_is_not_reported(ranks):
    ranks.start("raise", "raise-lost", "raise-lost")
    _, lines = ranks.wait()
    assert lines[0][-1].startswith("hoptrain: rank 0 failed: RuntimeError: worker 3")
    for rank in (1, 2):
        (line,) = lines[rank]
        assert line.startswith(f"hoptrain: rank {rank} ends, because rank 0 failed: RuntimeError: worker 3")


@pytest.mark.parametrize(("number", "code"), [("INT", -signal.SIGINT), ("TERM", -signal.SIGTERM)])
def test_a_rank_that_is_asked_to_end_is_no_failure(ranks, number, code):
    ranks.start("wait", number, "wait")
    codes, lines = ranks.wait()
    assert codes == [1, code, 1]
    assert not any(line.startswith("hoptrain: ") for line in lines[1])
    assert lines[0][0].startswith("hoptrain: rank 0 ends, because rank 1 was")


def test_ranks_that_are_all_asked_to_end_say_nothing(ranks):
    ranks.start("INT", "INT", "INT")
    _, lines = ranks.wait()
    assert not any(line.startswith("hoptrain: ") for errors in lines for line in errors)


@pytest.mark.parametrize("action", ["finish", "leave0"])
def test_ranks_that_end_in_order_say_nothing(ranks, action):
    ranks.start(action, action, action)
    assert ranks.wait() == ([0, 0, 0], [[], [], []])


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_without_its_watch_ends(ranks, victim):
    """A rank whose watchdog was killed ends, and so do the other ranks; watchdogs are lost if a whole machine goes down."""
    ranks.start("wait", "wait", "wait")
    (watch,) = set(of_session(ranks.ranks[victim].pid)) - {ranks.ranks[victim].pid}
    os.kill(watch, signal.SIGKILL)
    codes, lines = ranks.wait()
    assert codes == [1, 1, 1]
    assert lines[victim] == ["hoptrain: this rank ends, because its watchdog has ended"]
    assert lines[2] == [f"hoptrain: rank 2 ends, because rank {victim} has ended, and so has its watchdog"]


def greet(address, rank, key=None):
    """Connect as the watchdog of a machine that is then cut off: it sends nothing more and closes nothing."""
    host, port, its_key = address.split()
    connection = socket.create_connection((host, int(port)), 10)
    connection.sendall(f"{key or its_key}\n".encode() + json.dumps({"rank": rank}).encode() + b"\n")
    return connection


def test_a_machine_that_is_cut_off(ranks):
    ranks.begin("wait", "wait", "absent")
    with greet(ranks.address, 2):
        ranks.go()
        codes, lines = ranks.wait()
    assert codes == [1, 1]
    cause = "rank 2 is cut off: no message came from its machine for 10 s"
    assert lines == [[f"hoptrain: rank {rank} ends, because {cause}"] for rank in (0, 1)]


def test_the_machine_that_is_cut_off_from_rank_0(ranks):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ranks.address = f"127.0.0.1 {silent.getsockname()[1]} key"
        ranks.begin("absent", "wait")
        ranks.go()
        codes, lines = ranks.wait()
    assert codes == [1]
    assert lines == [["hoptrain: rank 1 ends, because rank 0 is cut off: no message came from its machine for 10 s"]]


def test_a_rank_that_comes_when_rank_0_has_gone(ranks):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    ranks.address = f"127.0.0.1 {port} key"
    ranks.begin("absent", "wait")
    codes, lines = ranks.wait()
    assert codes == [1]
    assert lines == [["hoptrain: rank 1 ends, because rank 0 has ended: its watchdog does not answer"]]


@pytest.mark.parametrize("key", ["guessed", None])
def test_a_stranger_changes_nothing(ranks, key):
    ranks.begin("finish", "finish")
    with greet(ranks.address, 1 if key else 7, key) as stranger:
        assert stranger.recv(100) == b""
    ranks.go()
    assert ranks.wait() == ([0, 0], [[], []])
