"""The watch of one rank, a process of its own: it sees the rank's end, however that comes, and outlives it long enough to say why."""

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
from hoptrain.trainers.watchdog.hub import SILENCE_S, Verdict, last_seen
from hoptrain.trainers.watchdog.server import Server
from hoptrain.trainers.watchdog.sight import Sight

_TICK_S = 0.1
_BEAT_S = 1.0
_LONGEST_TICK_S = 1.0
"""A job that was suspended goes on with the clock far ahead: a tick counts for so much at most."""
_CONNECT_S = 10.0
_END_S = 2.0  # for a rank to end at its watch's word, before it is killed
_OWN_S = 12.0  # for the rank that failed to tell its error
_ASKED_S = 3.0  # for a rank that was not asked to end, where another was
_TIDY_S = 30.0  # for a rank that was asked to end
_KERNEL_S = 5.0  # for the kernel to end a process


def main() -> None:
    """Entry of the process: ``argv`` has the rank's process id, rank, world size, host, and descriptors of its socket and of its crash report."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends with its rank
        signal.signal(number, signal.SIG_IGN)
    pid, rank, world_size = map(int, sys.argv[1:4])
    watch = Watch(pid, rank, socket.socket(fileno=int(sys.argv[5])), int(sys.argv[6]))
    if rank == 0:
        watch.serve(sys.argv[4], world_size)
    watch.run()


class Watch:
    """Looks at a rank, tells the hub, and does what the verdict asks for."""

    def __init__(self, pid: int, rank: int, link: socket.socket, crash: int) -> None:
        """Begin to look.

        Args:
            pid: the rank's process.
            rank: its number.
            link: socket to it.
            crash: where its crash report can be read.
        """
        self._rank, self._sight, self._crash = rank, Sight(pid), crash
        self._link = Channel(link)
        self._server: Server | None = None
        self._hub: Channel | None = None  # the way to it
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._link, selectors.EVENT_READ, self._hear_rank)
        if self._sight.end is not None:  # to look before its parent has asked how it ended
            self._selector.register(self._sight.end, selectors.EVENT_READ, self._see_end)
        self._now = self._beat_due = self._hub_heard = 0.0
        self._place = self._kind = ""
        self._has_arrived = self._is_done = False
        self._verdict: Verdict | None = None
        self._line = ""  # to be said when the rank is told to end, or when it has gone
        self._tell_at = self._kill_at = self._give_up_at = inf

    def serve(self, host: str, world_size: int) -> None:
        """Have the hub here."""
        self._server = Server(self._selector, host, world_size)
        self._link.send(address=self._server.address)

    def run(self) -> None:
        """Watch until there is nothing left to see or to say."""
        looked = time.monotonic()
        is_over = False
        while not is_over or (self._server is not None and self._server.is_needed):
            for key, _ in self._selector.select(_TICK_S):
                key.data()
            now = time.monotonic()
            self._now += min(now - looked, _LONGEST_TICK_S)
            looked = now
            if self._server is not None:
                self._server.tick(self._now)
            if not is_over and self._step():
                is_over = True
                if self._hub is not None:
                    self._selector.unregister(self._hub)
                    self._hub.close()

    def _step(self) -> bool:
        """Look at the rank and act; returns whether that was all."""
        self._see_end()
        if self._now >= self._beat_due:
            self._beat_due = self._now + _BEAT_S
            self._sight.look_for_work()
            state = "stopped" if self._sight.is_stopped else "still" if self._sight.is_still else ""
            self._tell(state=state, place=self._place, **({"arrived": True} if self._has_arrived else {}))
        if self._hub is not None and self._now > self._hub_heard + SILENCE_S:
            self._lose_hub(f"rank 0 is cut off: nothing was heard from its machine for {SILENCE_S:.0f} s")
        if self._now >= self._tell_at:
            self._tell_at, self._kill_at = inf, self._now + _END_S
            self._say()
            self._link.send(end=True)
        if self._now >= self._kill_at and not self._sight.is_gone:
            self._kill_at = inf
            self._give_up_at = self._now + _KERNEL_S
            with suppress(ProcessLookupError):
                os.kill(self._sight.pid, signal.SIGKILL)
        if self._is_done or self._now >= self._give_up_at:
            return True
        if self._sight.is_gone and self._verdict is not None:
            if self._verdict.rank == self._rank or self._verdict.kind != "asked":
                self._say()
            return True
        return False

    def _see_end(self) -> None:
        """Look whether the rank is there still; if not, tell how it ended, once."""
        was_gone = self._sight.is_gone
        self._sight.look()
        if was_gone or not self._sight.is_gone:
            return
        if self._sight.end is not None:
            self._selector.unregister(self._sight.end)
        self._hear_rank()  # its last words
        if not self._kind and not self._is_done:
            what, where = _crash_of(self._crash)
            kind = "asked" if self._sight.was_asked() else "died"
            self._end(kind, f"{self._sight.how_it_ended(what)}{where}{last_seen(self._place)}")

    def _end(self, kind: str, text: str) -> None:
        """The rank ends, or has ended."""
        self._kind = kind
        self._give_up_at = self._now + _TIDY_S + _KERNEL_S
        if self._hub is not None:
            self._tell(kind=kind, text=text)
        else:  # nobody to ask
            kind = kind if kind in ("died", "asked") else "failed"
            self._obey(Verdict(self._rank, kind, f"rank {self._rank} {text}"))

    def _tell(self, **message: Any) -> None:
        if self._hub is not None:
            self._hub.send(**message)

    def _hear_rank(self) -> None:
        messages = self._link.receive()
        if messages is None:  # its end is seen otherwise: a process that it has forked may hold the socket
            if self._link in {key.fileobj for key in self._selector.get_map().values()}:
                self._selector.unregister(self._link)
            return
        for message in messages:
            self._place = message.get("place", self._place)
            if "join" in message:
                self._join(message["join"])
            if "launched" in message and self._server is not None:
                self._server.launched(message["launched"])
            self._has_arrived = self._has_arrived or "arrived" in message
            if "kind" in message and not self._kind:
                self._hear_of_failure(message["kind"], message["text"])
            if "done" in message:
                self._is_done = True
                self._tell(done=True)

    def _hear_of_failure(self, kind: str, text: str) -> None:
        """The rank waits to be told whether it is the cause, unless it was asked to end."""
        if self._verdict is None:
            self._end(kind, text)
        elif kind == "asked":  # others were too
            self._kind, self._line = kind, ""
            self._tell_at, self._kill_at = inf, self._now + _TIDY_S

    def _join(self, address: str) -> None:
        host, port, key = address.split()
        try:
            self._hub = hub = Channel(socket.create_connection((host, int(port)), _CONNECT_S))
        except OSError:
            self._lose_hub("rank 0 is gone: nothing answers where its watch was")
            return
        self._hub_heard = self._now
        self._selector.register(hub, selectors.EVENT_READ, partial(self._hear_hub, hub))
        hub.send_key(key)
        self._tell(rank=self._rank)

    def _hear_hub(self, hub: Channel) -> None:
        messages = hub.receive()
        self._hub_heard = self._now
        for message in messages or []:
            if "verdict" in message:
                self._obey(Verdict(**message["verdict"]))
            if "end" in message:
                self._hurry()
        if messages is None:
            self._selector.unregister(hub)
            hub.close()
            self._hub = None
            self._lose_hub("rank 0 is gone, and its watch with it")

    def _lose_hub(self, text: str) -> None:
        """Nobody is left to give a verdict, or the word to end."""
        self._obey(Verdict(0, "died", text))
        self._hurry()

    def _hurry(self) -> None:
        """End the rank now, if it is to be ended at all."""
        if self._tell_at < inf:
            self._tell_at = self._now

    def _obey(self, verdict: Verdict) -> None:
        """End the rank, or let it end, and prepare what is to be said; the first verdict counts."""
        if self._verdict is not None:
            return
        self._verdict = verdict
        is_ours, now = verdict.rank == self._rank, self._now
        if verdict.kind == "over" or (verdict.kind == "failed" and is_ours):
            self._link.send(yours=True)
            self._line, self._kill_at = verdict.text, now + _OWN_S
        elif verdict.kind == "asked" and (is_ours or self._kind == "asked"):
            self._kill_at = now + _TIDY_S
        elif is_ours:
            self._line, self._kill_at = verdict.text, now
        else:
            self._line = f"rank {self._rank} ends, because {verdict.text}"
            self._tell_at = now + (_ASKED_S if verdict.kind == "asked" else _OWN_S)

    def _say(self) -> None:
        if self._line:
            with suppress(OSError):
                os.write(2, f"hoptrain: {self._line}\n".encode())
            self._line = ""


def _crash_of(report: int) -> tuple[str, str]:
    """What a process wrote when it crashed, and where it was; empty if it did not."""
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
