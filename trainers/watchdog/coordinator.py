"""The coordinator, which decides from the reports of all watchdogs which rank failed first. This module uses no sockets and no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SILENCE_S = 10.0
"""Seconds without a message after which a machine counts as disconnected. Also the seconds after which a stopped rank counts as lost if no other is stopped."""
STILL_S = 12.0
"""Seconds after which a rank counts as lost if it is idle before the rendezvous while another rank waits for it."""
ARRIVAL_S = 120.0
"""Seconds without any message after which a rank counts as never started."""
WINDOW_S = 1.5
"""Seconds to wait after a rank has reported an exception, since its cause may be the failure of another rank, which is not known yet."""

_RANKING = ["failed", "left", "lost"]
"""Kinds of failure reports, sorted by how likely the report is about the first failure; the most likely kind comes first."""


@dataclass(frozen=True)
class Failure:
    """The failure of a rank that ends the run, or the end of all ranks.

    Attributes:
        rank: the rank that failed first.
        kind: "died", "failed", "asked" (to end, by a signal) or "over" (all ranks ended by themselves).
        text: the cause, as a clause whose subject is the rank.
    """

    rank: int
    kind: str
    text: str


@dataclass
class _RankState:
    heard: float | None = None
    activity: str = ""
    position: str = ""
    has_arrived: bool = False
    is_done: bool = False
    kind: str = ""  # how the rank ended; empty if that is not known yet
    stopped_s: float = 0.0
    still_s: float = 0.0


class Coordinator:
    """A coordinator that collects the reports of all watchdogs and decides which rank failed first.

    A message of a watchdog has some of these keys:

    * every second, ``state`` ("stopped", "still" for idle, or "") and ``place``, what the rank is doing;
    * ``arrived``, when the rank waits for the others at the rendezvous;
    * ``done``, when the rank has finished;
    * ``kind`` and ``text``, when the rank ends: "died" (seen by the watchdog), "failed" (an exception), "lost" (an exception since a connection
      broke, most likely because another rank failed), "left" (exit code 0) or "asked" (ended by a signal).
    """

    def __init__(self, world_size: int) -> None:
        """Create a coordinator of ``world_size`` ranks."""
        self.ranks = [_RankState() for _ in range(world_size)]
        self.failure: Failure | None = None
        self._reports: list[tuple[float, Failure]] = []
        self._now = 0.0

    def update(self, rank: int, message: dict[str, Any], now: float) -> None:
        """Process a message of a rank's watchdog. ``now`` is a time in seconds, which starts at 0 and does not advance while the job is suspended."""
        state = self.ranks[rank]
        state.heard = now
        state.activity = message.get("state", state.activity)
        state.position = message.get("place") or state.position
        state.has_arrived = state.has_arrived or "arrived" in message
        state.is_done = state.is_done or "done" in message
        if "kind" in message and not state.kind and not state.is_done:
            state.kind = message["kind"]
            self._reports.append((now, Failure(rank, state.kind, f"rank {rank} {message['text']}")))

    def decide(self, now: float) -> Failure | None:
        """Return the first failure, or None if no rank has failed yet. Call this several times a second."""
        self.failure = self.failure or self._reported(now) or self._seen(now)
        self._now = now
        return self.failure

    def _reported(self, now: float) -> Failure | None:
        """Return the first failure that a watchdog reported.

        The death of a process counts at once, an exception after ``WINDOW_S``. An exception about a lost connection counts only if there is no report of
        another kind. Exit code 0 is a failure only if other ranks do not end too, since ``--help`` ends all ranks with code 0.
        """
        for _, report in self._reports:
            if report.kind in ("died", "asked"):
                return report
        if self._reports and all(state.kind == "left" or state.is_done for state in self.ranks):
            return Failure(self._reports[0][1].rank, "over", "")
        due = [now >= heard + (SILENCE_S if report.kind == "left" else WINDOW_S) for heard, report in self._reports]
        if not any(due):
            return None
        # min returns the earliest of several reports of the same kind
        first = min(self._reports, key=lambda report: _RANKING.index(report[1].kind))[1]
        return Failure(first.rank, "failed", first.text)

    def _seen(self, now: float) -> Failure | None:
        """Return a failure that no watchdog has reported, detected because a rank is silent, stopped or idle for too long."""
        running = [state for state in self.ranks if not state.is_done]
        for rank, state in enumerate(self.ranks):
            if state.is_done:
                continue
            what, heard = "", state.heard
            others = [other for other in running if other is not state and other.heard is not None]
            alone_stopped = state.activity == "stopped" and any(other.activity != "stopped" for other in others)
            late = state.activity == "still" and not state.has_arrived and any(other.has_arrived for other in others)
            state.stopped_s = state.stopped_s + now - self._now if alone_stopped else 0.0
            state.still_s = state.still_s + now - self._now if late else 0.0
            if heard is None and now > ARRIVAL_S:
                what = f"has not arrived: no message came from it for {ARRIVAL_S:.0f} s"
            elif heard is not None and now > heard + SILENCE_S:
                what = f"is cut off: no message came from its machine for {SILENCE_S:.0f} s"
            elif state.stopped_s > SILENCE_S:
                what = f"was stopped (SIGSTOP) and not continued for {SILENCE_S:.0f} s"
            elif state.still_s > STILL_S:
                what = f"has not arrived: it was idle for {STILL_S:.0f} s while another rank waits for it"
            if what:
                return Failure(rank, "died", f"rank {rank} {what}{last_seen(state.position)}")
        return None


def last_seen(position: str) -> str:
    """Return the position of a rank in parentheses, for the end of a message; empty if it is unknown."""
    return f" (last seen at {position})" if position else ""
