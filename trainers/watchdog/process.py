"""The watchdog of one rank: a separate process that detects how the rank ends, and outlives it long enough to print why."""

from __future__ import annotations

import os
import re
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

from hoptrain.trainers.watchdog.channel import Channel
from hoptrain.trainers.watchdog.coordinator import SILENCE_S, Failure, last_seen
from hoptrain.trainers.watchdog.process_probe import ProcessProbe
from hoptrain.trainers.watchdog.server import Server

_TICK_S = 0.1
_BEAT_S = 1.0
_LONGEST_TICK_S = 1.0
"""Maximum seconds by which one check advances the watchdog's clock. The system clock runs on while a job is suspended, the watchdog's must not."""
_CONNECT_S = 10.0
_END_S = 2.0  # seconds for a rank to end at the request of its watchdog, before it is killed
_OWN_S = 12.0  # seconds for the rank that failed to print its error
_ASKED_S = 3.0  # seconds for a rank to end if it got no signal but another rank did
_TIDY_S = 30.0  # seconds for a rank to end after it received a signal such as SIGTERM
_KERNEL_S = 5.0  # seconds for the kernel to end a killed process


def main() -> None:
    """Run a watchdog. ``argv`` has the rank's process id, rank, world size, host, and the descriptors of its socket and of its crash report."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the watchdog must end after its rank, so it ignores signals
        signal.signal(number, signal.SIG_IGN)
    pid, rank, world_size = map(int, sys.argv[1:4])
    watchdog = WatchdogProcess(pid, rank, socket.socket(fileno=int(sys.argv[5])), int(sys.argv[6]))
    if rank == 0:
        watchdog.serve(sys.argv[4], world_size)
    watchdog.run()


class WatchdogProcess:
    """The watchdog of a rank: it observes the rank, reports to the coordinator, and ends the rank when the coordinator names a failure."""

    def __init__(self, pid: int, rank: int, link: socket.socket, crash: int) -> None:
        """Start to observe a rank.

        Args:
            pid: process id of the rank.
            rank: number of the rank.
            link: socket to the rank.
            crash: file descriptor of the pipe with the rank's crash report.
        """
        self._rank, self._probe, self._crash = rank, ProcessProbe(pid), crash
        self._rank_channel = Channel(link)
        self._server: Server | None = None
        self._coordinator: Channel | None = None  # connection to the coordinator
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._rank_channel, selectors.EVENT_READ, self._on_rank)
        if self._probe.end is not None:  # the exit code must be read before the rank's parent reaps the process
            self._selector.register(self._probe.end, selectors.EVENT_READ, self._check_end)
        self._now = self._beat_due = self._coordinator_heard = 0.0
        self._position = self._kind = ""
        self._has_arrived = self._is_done = False
        self._failure: Failure | None = None
        self._line = ""  # message to print when the rank is asked to end, or has ended
        self._tell_at = self._kill_at = self._give_up_at = inf

    def serve(self, host: str, world_size: int) -> None:
        """Run the coordinator in this process, and send its address to the rank."""
        self._server = Server(self._selector, host, world_size)
        self._rank_channel.send(address=self._server.address)

    def run(self) -> None:
        """Observe the rank until it has ended and its end has been reported. On rank 0, then serve the other watchdogs as long as they need the coordinator."""
        last_tick = time.monotonic()
        is_over = False
        while not is_over or (self._server is not None and self._server.is_needed):
            for key, _ in self._selector.select(_TICK_S):
                key.data()
            now = time.monotonic()
            self._now += min(now - last_tick, _LONGEST_TICK_S)
            last_tick = now
            if self._server is not None:
                self._server.tick(self._now)
            if not is_over and self._step():
                is_over = True
                if self._coordinator is not None:
                    self._selector.unregister(self._coordinator)
                    self._coordinator.close()

    def _step(self) -> bool:
        """Check the rank and perform actions that are due. Return True if the rank needs no watchdog any more."""
        self._check_end()
        if self._now >= self._beat_due:
            self._beat_due = self._now + _BEAT_S
            self._probe.look_for_work()
            state = "stopped" if self._probe.is_stopped else "still" if self._probe.is_still else ""
            self._report(state=state, place=self._position, **({"arrived": True} if self._has_arrived else {}))
        if self._coordinator is not None and self._now > self._coordinator_heard + SILENCE_S:
            self._lose_coordinator(f"rank 0 is cut off: no message came from its machine for {SILENCE_S:.0f} s")
        if self._now >= self._tell_at:
            self._tell_at, self._kill_at = inf, self._now + _END_S
            self._print_line()
            self._rank_channel.send(end=True)
        if self._now >= self._kill_at and not self._probe.is_gone:
            self._kill_at = inf
            self._give_up_at = self._now + _KERNEL_S
            with suppress(ProcessLookupError):
                os.kill(self._probe.pid, signal.SIGKILL)
        if self._is_done or self._now >= self._give_up_at:
            return True
        if self._probe.is_gone and self._failure is not None:
            if self._failure.rank == self._rank or self._failure.kind != "asked":
                self._print_line()
            return True
        return False

    def _check_end(self) -> None:
        """Check whether the rank still runs. If it has ended, report once how it ended."""
        was_gone = self._probe.is_gone
        self._probe.look()
        if was_gone or not self._probe.is_gone:
            return
        if self._probe.end is not None:
            self._selector.unregister(self._probe.end)
        self._on_rank()  # reads the last messages of the rank
        if not self._kind and not self._is_done:
            what, where = _crash_of(self._crash)
            kind = "asked" if self._probe.was_asked() else "died"
            self._end(kind, f"{self._probe.how_it_ended(what)}{where}{last_seen(self._position)}")

    def _end(self, kind: str, text: str) -> None:
        """Report to the coordinator that the rank is ending or has ended."""
        self._kind = kind
        self._give_up_at = self._now + _TIDY_S + _KERNEL_S
        if self._coordinator is not None:
            self._report(kind=kind, text=text)
        else:  # without a coordinator, this watchdog decides
            kind = kind if kind in ("died", "asked") else "failed"
            self._act_on(Failure(self._rank, kind, f"rank {self._rank} {text}"))

    def _report(self, **message: Any) -> None:
        if self._coordinator is not None:
            self._coordinator.send(**message)

    def _on_rank(self) -> None:
        messages = self._rank_channel.receive()
        if messages is None:  # not yet the end of the rank: a process that it forked may keep the socket open, or have closed it
            if self._rank_channel in {key.fileobj for key in self._selector.get_map().values()}:
                self._selector.unregister(self._rank_channel)
            return
        for message in messages:
            self._position = message.get("place", self._position)
            if "join" in message:
                self._join(message["join"])
            if "launched" in message and self._server is not None:
                self._server.launched(message["launched"])
            self._has_arrived = self._has_arrived or "arrived" in message
            if "kind" in message and not self._kind:
                self._on_rank_failure(message["kind"], message["text"])
            if "done" in message:
                self._is_done = True
                self._report(done=True)

    def _on_rank_failure(self, kind: str, text: str) -> None:
        """Handle a failure that the rank reports. The rank waits for the coordinator's decision, unless it was asked to end by a signal."""
        if self._failure is None:
            self._end(kind, text)
        elif kind == "asked":  # the ranks got a signal, which reached the other ranks, too
            self._kind, self._line = kind, ""
            self._tell_at, self._kill_at = inf, self._now + _TIDY_S

    def _join(self, address: str) -> None:
        host, port, key = address.split()
        try:
            self._coordinator = channel = Channel(socket.create_connection((host, int(port)), _CONNECT_S))
        except OSError:
            self._lose_coordinator("rank 0 has ended: its watchdog does not answer")
            return
        self._coordinator_heard = self._now
        self._selector.register(channel, selectors.EVENT_READ, partial(self._on_coordinator, channel))
        channel.send_key(key)
        self._report(rank=self._rank)

    def _on_coordinator(self, channel: Channel) -> None:
        messages = channel.receive()
        self._coordinator_heard = self._now
        for message in messages or []:
            if "failure" in message:
                self._act_on(Failure(**message["failure"]))
            if "end" in message:
                self._hurry()
        if messages is None:
            self._selector.unregister(channel)
            channel.close()
            self._coordinator = None
            self._lose_coordinator("rank 0 has ended, and so has its watchdog")

    def _lose_coordinator(self, text: str) -> None:
        """End the rank because the connection is lost to the coordinator, which otherwise decides on the end and requests it."""
        self._act_on(Failure(0, "died", text))
        self._hurry()

    def _hurry(self) -> None:
        """Ask the rank to end now, if this is already scheduled for later (``_tell_at``)."""
        if self._tell_at < inf:
            self._tell_at = self._now

    def _act_on(self, failure: Failure) -> None:
        """React to a failure: end the rank or let it end, and prepare the line to print. Only the first failure counts."""
        if self._failure is not None:
            return
        self._failure = failure
        is_ours, now = failure.rank == self._rank, self._now
        if failure.kind == "over" or (failure.kind == "failed" and is_ours):
            self._rank_channel.send(yours=True)
            self._line, self._kill_at = failure.text, now + _OWN_S
        elif failure.kind == "asked" and (is_ours or self._kind == "asked"):
            self._kill_at = now + _TIDY_S
        elif is_ours:
            self._line, self._kill_at = failure.text, now
        else:
            self._line = f"rank {self._rank} ends, because {failure.text}"
            self._tell_at = now + (_ASKED_S if failure.kind == "asked" else _OWN_S)

    def _print_line(self) -> None:
        if self._line:
            with suppress(OSError):
                os.write(2, f"hoptrain: {self._line}\n".encode())
            self._line = ""


def _crash_of(report: int) -> tuple[str, str]:
    """Return what a process wrote when it crashed, and the line of code; two empty strings if it did not crash."""
    os.set_blocking(report, False)
    try:
        text = os.read(report, 1 << 16).decode(errors="replace")
    except OSError:
        return "", ""
    what = re.search(r"^Fatal Python error: (.*)", text, re.MULTILINE)
    where = re.search(r'^  File "(.*)", line (\d+) in (.*)', text, re.MULTILINE)
    return (
        f"crashed: {what[1]}" if what else "",
        f" at {where[1]}, line {where[2]}, in {where[3]}" if where else "",
    )
