"""A rank's own part: it starts its watch, tells it how it fares and why it fails, and ends when the watch says so."""

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
"""Environment variable with the hub's address, for the ranks that rank 0 launches."""
_BEAT_S = 1.0
_START_S = 60.0  # how long the watch may take to start: on a busy machine an interpreter needs seconds
_VERDICT_S = 30.0  # longer than any verdict takes, but an error has to be told even if none comes
_BROKEN = {"DistError", "LostStageError", "ConnectionError", "EOFError"}
"""Classes of exceptions that tell of a connection that broke; torch raises plain RuntimeErrors as well."""
_BROKEN_TEXTS = ("gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe")

_current: Member | None = None
_reports_on_stderr = False
"""Whether crashes of this process are reported on stderr (``_report_crashes``); a watch takes that over."""


def current() -> Member | None:
    """This process as a watched rank, if it is one."""
    return _current


class Member:
    """This process, one rank of several.

    Attributes:
        address: where the watches meet; only rank 0 has it from the start.
    """

    def __init__(self, rank: int, world_size: int, host: str = "127.0.0.1") -> None:
        """Start the watch.

        Args:
            rank: of all processes of the run.
            world_size: how many there are.
            host: the name by which other machines find that of rank 0.

        Raises:
            RuntimeError: rank 0's watch does not start.
        """
        global _current
        self.address = ""
        self._place: Callable[[], str] = _innermost_frame
        self._is_ending = False
        self._is_closed = False
        self._verdict = threading.Event()
        self._listens = threading.Event()
        ours, theirs = socket.socketpair()
        read_end, self._crash = os.pipe()
        with theirs:
            self._process = _start(rank, world_size, host, theirs.fileno(), read_end)
        os.close(read_end)
        self._reports_crashes = _reports_on_stderr or not faulthandler.is_enabled()  # else the user has them where he wants them
        if self._reports_crashes:
            faulthandler.enable(self._crash, all_threads=False)  # where a segmentation fault was
        self._channel = Channel(ours)
        threading.Thread(target=self._run, name="hoptrain-watch", daemon=True).start()
        if rank == 0 and not self._listens.wait(_START_S):
            raise RuntimeError(f"the watch of rank 0 does not start within {_START_S:.0f} s")
        _current = self

    def join(self, address: str) -> None:
        """Let the watch meet the others at this address, which is rank 0's ``address``."""
        self._channel.send(join=address)

    def arrive(self) -> None:
        """This rank has come through its constructors, and goes to meet the others."""
        self._channel.send(arrived=True)

    def works_at(self, place: Callable[[], str]) -> None:
        """Let others see every second what ``place`` says this rank works on; until then it is the line of code where it is."""
        self._place = place
        self._tell_place()

    def launched(self, pids: dict[int, int]) -> None:
        """Which processes this one has launched, by rank: their own watches may not have started yet."""
        self._channel.send(launched=list(pids.items()))

    def fail(self, error: BaseException) -> None:
        """Tell why this rank ends. Returns if that is what ends the run; if another's failure is, the process ends here, and says so."""
        if self._is_ending:
            return
        self._is_ending = True
        kind, text = report(error)
        self._channel.send(kind=kind, text=text)
        if kind != "asked":
            self._verdict.wait(_VERDICT_S)

    def close(self) -> None:
        """This rank's work is done: nobody needs to watch it any more. After a failure the watch stays until this process has ended."""
        global _current
        if self._is_closed or self._is_ending:
            return
        self._is_closed = True
        self._channel.send(done=True)
        if self._reports_crashes:
            faulthandler.disable()
        os.close(self._crash)
        with suppress(subprocess.TimeoutExpired):  # rank 0's may have to stay for the others
            self._process.wait(_BEAT_S)
        _current = None

    def _run(self) -> None:
        """Hear what the watch says, and tell it every second what this rank works on."""
        waiting = select.poll()
        waiting.register(self._channel, select.POLLIN)
        due = time.monotonic() + _BEAT_S
        while True:
            messages = self._channel.receive() if waiting.poll(1000 * _BEAT_S) else []
            if messages is None:
                break
            for message in messages:
                self._heed(message)
            if time.monotonic() >= due and not self._is_closed:
                due = time.monotonic() + _BEAT_S
                self._tell_place()
        self._channel.close()
        if not self._is_closed and not self._is_ending:
            os.write(2, b"hoptrain: this rank ends, because its watch is gone\n")
            os._exit(1)

    def _tell_place(self) -> None:
        with suppress(Exception):  # what the place is read from may be half built, or half gone
            self._channel.send(place=self._place())

    def _heed(self, message: dict[str, object]) -> None:
        if "end" in message:
            os._exit(1)  # a thread cannot raise in a collective that waits for ever
        if "yours" in message:
            self._verdict.set()
        if "address" in message:
            self.address = str(message["address"])
            self._listens.set()


def _start(rank: int, world_size: int, host: str, link: int, crash: int) -> subprocess.Popen[bytes]:
    """A watch: in a process group of its own, which a Ctrl-C in the terminal or a launcher's signal does not reach."""
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
    """What an exception means to the others: its kind, as the hub has them, and a line without the rank."""
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
    """Watch this process while the context lasts, if it was started as one of several ranks; tell the watch if it fails.

    The ranks that Lightning launches have the hub's address in their environment. Those of torchrun exchange it by the store of its agent.
    Rank 0 of Lightning's own launcher becomes a member when it launches the others, and other launchers' ranks when they have met.
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
    """Let Python say where this process was when a signal ends it, as a bus error does where a mapped file was cut off."""
    global _reports_on_stderr
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__, all_threads=False)
        _reports_on_stderr = True


def _begin() -> None:
    end_with_launcher()
    address = os.environ.pop(ADDRESS, "")
    if address:
        Member(int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])).join(address)
    elif os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and int(os.environ["WORLD_SIZE"]) > 1:
        is_one_machine = os.environ["WORLD_SIZE"] == os.environ.get("LOCAL_WORLD_SIZE")
        host = "127.0.0.1" if is_one_machine else os.environ["MASTER_ADDR"]
        member = Member(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), host)
        from hoptrain.trainers.watchdog.restarts import exchange  # imports torch, which takes seconds

        member.join(exchange(member.address))
