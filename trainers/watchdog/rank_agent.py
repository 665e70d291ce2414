"""The agent in a rank: it starts the watchdog, reports progress and failures to it, and ends the rank when the watchdog asks."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hoptrain.kernels.child_process import import_path, python
from hoptrain.trainers.watchdog.channel import Channel
from hoptrain.trainers.watchdog.launcher import end_with_launcher

ADDRESS = "HOPTRAIN_WATCH"
"""Name of the environment variable with the coordinator's address, for ranks that rank 0 launches."""
_BEAT_S = 1.0
_START_S = 60.0  # seconds for the watchdog to start: on a busy machine an interpreter takes seconds
_DECISION_S = 30.0  # seconds to wait for the coordinator's decision, longer than any decision takes; then the error is printed without it
_BROKEN = {"DistError", "LostStageError", "ConnectionError", "EOFError"}
"""Names of the exception classes raised for a broken connection. torch also raises plain RuntimeErrors, recognised by ``_BROKEN_TEXTS``."""
_BROKEN_TEXTS = ("gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe")

_current: RankAgent | None = None
_reports_on_stderr = False
"""True while Python reports crashes of this process on stderr (see ``_report_crashes``). Once the watchdog has started, it reports them instead."""


def current() -> RankAgent | None:
    """Return the agent of this process, or None if it has no watchdog."""
    return _current


class RankAgent:
    """The agent of this process, one rank of several.

    Attributes:
        address: address of the coordinator; empty on ranks other than 0.
    """

    def __init__(self, rank: int, world_size: int, host: str = "127.0.0.1") -> None:
        """Start the watchdog of this rank.

        Args:
            rank: rank of this process in the run.
            world_size: number of ranks.
            host: name or address by which other machines find rank 0.

        Raises:
            RuntimeError: the watchdog of rank 0 does not start in time.
        """
        global _current
        self.address = ""
        self._position: Callable[[], str] = _innermost_frame
        self._is_ending = False
        self._is_closed = False
        self._decision = threading.Event()
        self._listens = threading.Event()
        ours, theirs = socket.socketpair()
        read_end, self._crash = os.pipe()
        with theirs:
            self._process = _start(rank, world_size, host, theirs.fileno(), read_end)
        os.close(read_end)
        # False if the user has enabled faulthandler, whose settings then stay
        self._reports_crashes = _reports_on_stderr or not faulthandler.is_enabled()
        if self._reports_crashes:
            faulthandler.enable(self._crash, all_threads=False)  # reports the line of a segmentation fault
        self._channel = Channel(ours)
        threading.Thread(target=self._run, name="hoptrain-watch", daemon=True).start()
        if rank == 0 and not self._listens.wait(_START_S):
            raise RuntimeError(f"the watchdog of rank 0 did not start within {_START_S:.0f} s")
        _current = self

    def join(self, address: str) -> None:
        """Connect the watchdog to the coordinator at this address, the ``address`` of rank 0."""
        self._channel.send(join=address)

    def arrive(self) -> None:
        """Report that this rank has built its objects, and waits for the others at the rendezvous."""
        self._channel.send(arrived=True)

    def works_at(self, position: Callable[[], str]) -> None:
        """Report every second, as the rank's current work, the text that ``position`` returns. Before this call the agent reports the current line of code."""
        self._position = position
        self._report_position()

    def launched(self, pids: dict[int, int]) -> None:
        """Report the process ids of the ranks that this process has launched, since the watchdogs of these ranks may not have started yet."""
        self._channel.send(launched=list(pids.items()))

    def fail(self, error: BaseException) -> None:
        """Report why this rank ends, and wait for the coordinator's decision. Return if this failure is the first; otherwise the process ends here."""
        if self._is_ending:
            return
        self._is_ending = True
        kind, text = report(error)
        self._channel.send(kind=kind, text=text)
        if kind != "asked":
            self._decision.wait(_DECISION_S)

    def close(self) -> None:
        """Report that this rank has finished, so that its watchdog ends. After a failure the watchdog stays until this process has ended."""
        global _current
        if self._is_closed or self._is_ending:
            return
        self._is_closed = True
        self._channel.send(done=True)
        if self._reports_crashes:
            faulthandler.disable()
        os.close(self._crash)
        with suppress(subprocess.TimeoutExpired):  # the watchdog of rank 0 may have to stay for other ranks
            self._process.wait(_BEAT_S)
        _current = None

    def _run(self) -> None:
        """Receive messages of the watchdog, and report every second what this rank works on."""
        waiting = select.poll()
        waiting.register(self._channel, select.POLLIN)
        due = time.monotonic() + _BEAT_S
        while True:
            messages = self._channel.receive() if waiting.poll(1000 * _BEAT_S) else []
            if messages is None:
                break
            for message in messages:
                self._on_message(message)
            if time.monotonic() >= due and not self._is_closed:
                due = time.monotonic() + _BEAT_S
                self._report_position()
        self._channel.close()
        if not self._is_closed and not self._is_ending:
            os.write(2, b"hoptrain: this rank ends, because its watchdog has ended\n")
            os._exit(1)

    def _report_position(self) -> None:
        with suppress(Exception):  # at start and end, objects that the position is read from may be incomplete
            self._channel.send(place=self._position())

    def _on_message(self, message: dict[str, object]) -> None:
        if "end" in message:
            os._exit(1)  # the main thread may be in a collective that never returns, where no exception can be raised
        if "yours" in message:
            self._decision.set()
        if "address" in message:
            self.address = str(message["address"])
            self._listens.set()


def _start(rank: int, world_size: int, host: str, link: int, crash: int) -> subprocess.Popen[bytes]:
    """Start a watchdog in its own process group, so that signals of a terminal or a launcher do not reach it."""
    program = "from hoptrain.trainers.watchdog.process import main; main()"
    return subprocess.Popen(
        python("-c", program, os.getpid(), rank, world_size, host, link, crash),
        pass_fds=(link, crash),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=os.environ | import_path(),
        process_group=0,
    )


def report(error: BaseException) -> tuple[str, str]:
    """Return the kind of an exception, as ``Coordinator`` defines it, and a clause that describes it without the rank."""
    was_interrupted = isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt)
    classes = {base.__name__ for base in type(error).__mro__}
    if isinstance(error, SystemExit):
        if was_interrupted or "SIGTERMException" in classes or error.code == 128 + signal.SIGTERM:
            return "asked", "was asked to end"
        code = error.code or 0
        return ("failed" if code else "left"), f"ended by sys.exit({code!r}) before the run was done{_where(error)}"
    if was_interrupted:
        return "asked", "was asked to end"
    lines = str(error).strip().splitlines() or [""]
    text = lines[0] if len(lines) == 1 or not lines[0].endswith(":") else f"{lines[0]} ... {lines[-1].strip()}"
    is_broken = bool(classes & _BROKEN) or any(part in str(error) for part in _BROKEN_TEXTS)
    return ("lost" if is_broken else "failed"), f"failed: {type(error).__name__}: {text}{_where(error)}"


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" (at {frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name})" if frames else ""


def _innermost_frame() -> str:
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}, in {frame.f_code.co_name}"


@contextmanager
def watched() -> Iterator[None]:
    """Run a watchdog for this process inside the context, if the process is one of several ranks, and report exceptions to it.

    Ranks that Lightning launches have the coordinator's address in their environment. Ranks of torchrun exchange it through the store of its agent.
    Rank 0 of Lightning's launcher gets its watchdog when it launches the others; ranks of other launchers get theirs after the rendezvous.
    """
    try:
        _begin()
        _report_crashes()
        yield
    except BaseException as error:
        if _current is not None:
            _current.fail(error)
        raise
    if _current is not None:
        _current.close()


def _report_crashes() -> None:
    """Enable faulthandler, which prints the line of code when a signal ends this process, such as SIGBUS for a truncated mapped file."""
    global _reports_on_stderr
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__, all_threads=False)
        _reports_on_stderr = True


def _begin() -> None:
    end_with_launcher()
    address = os.environ.pop(ADDRESS, "")
    if address:
        RankAgent(int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])).join(address)
    elif os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and int(os.environ["WORLD_SIZE"]) > 1:
        is_one_machine = os.environ["WORLD_SIZE"] == os.environ.get("LOCAL_WORLD_SIZE")
        host = "127.0.0.1" if is_one_machine else os.environ["MASTER_ADDR"]
        agent = RankAgent(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), host)
        from hoptrain.trainers.watchdog.restarts import exchange  # imports torch, which takes seconds

        agent.join(exchange(agent.address))
