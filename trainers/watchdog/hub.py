"""Which failure was the first: what the watches of all ranks report, and the verdict. Knows no sockets and no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SILENCE_S = 10.0
"""A machine that was not heard of for so long is taken for cut off, a rank that is stopped for so long, alone, for lost."""
STILL_S = 12.0
"""A rank that does nothing for so long in its constructors, while another waits for it, will not arrive."""
ARRIVAL_S = 120.0
"""A rank that was not heard of at all for so long was never started."""
WINDOW_S = 1.5
"""An exception may be the consequence of another's end, which is known by then."""

_RANKING = ["failed", "left", "lost"]


@dataclass(frozen=True)
class Verdict:
    """Who ends the run: ``kind`` is "died", "failed", "asked" (to end, by a signal) or "over" (all ended by themselves); ``text`` names the rank."""

    rank: int
    kind: str
    text: str


@dataclass
class _Member:
    heard: float | None = None
    state: str = ""
    place: str = ""
    has_arrived: bool = False
    is_done: bool = False
    kind: str = ""  # of its end, once it was reported
    stopped_s: float = 0.0
    still_s: float = 0.0


class Hub:
    """The ranks as their watches describe them.

    A watch's messages have some of: ``state`` ("stopped", "still", or "") and ``place`` every second, ``arrived`` once the rank goes to meet the
    others, ``done``, and ``kind`` with ``text`` when the rank ends: "died" (seen by the watch), "failed" (an exception of its own), "lost" (an
    exception since a connection broke, most likely another's fault), "left" (exit code 0), "asked" (by a signal).
    """

    def __init__(self, world_size: int) -> None:
        """Nobody was heard of yet."""
        self.members = [_Member() for _ in range(world_size)]
        self.verdict: Verdict | None = None
        self._reports: list[tuple[float, Verdict]] = []
        self._now = 0.0

    def take(self, rank: int, message: dict[str, Any], now: float) -> None:
        """Hear a rank's watch, at ``now`` on a clock that begins with 0 and stands while the job is suspended."""
        member = self.members[rank]
        member.heard = now
        member.state = message.get("state", member.state)
        member.place = message.get("place") or member.place
        member.has_arrived = member.has_arrived or "arrived" in message
        member.is_done = member.is_done or "done" in message
        if "kind" in message and not member.kind and not member.is_done:
            member.kind = message["kind"]
            self._reports.append((now, Verdict(rank, member.kind, f"rank {rank} {message['text']}")))

    def decide(self, now: float) -> Verdict | None:
        """The verdict, if there is one yet; to be asked several times a second."""
        self.verdict = self.verdict or self._reported(now) or self._seen(now)
        self._now = now
        return self.verdict

    def _reported(self, now: float) -> Verdict | None:
        """A death counts at once, an exception when its window is over, one that tells of a lost connection only if there is no other.

        Exit code 0 is a failure if the others do not follow: ``--help`` ends all ranks so.
        """
        for _, report in self._reports:
            if report.kind in ("died", "asked"):
                return report
        if self._reports and all(member.kind == "left" or member.is_done for member in self.members):
            return Verdict(self._reports[0][1].rank, "over", "")
        due = [now >= heard + (SILENCE_S if report.kind == "left" else WINDOW_S) for heard, report in self._reports]
        if not any(due):
            return None
        first = min(self._reports, key=lambda report: _RANKING.index(report[1].kind))[1]  # min keeps the order of equals
        return Verdict(first.rank, "failed", first.text)

    def _seen(self, now: float) -> Verdict | None:
        """What a rank cannot report itself."""
        running = [member for member in self.members if not member.is_done]
        for rank, member in enumerate(self.members):
            if member.is_done:
                continue
            what, heard = "", member.heard
            others = [other for other in running if other is not member and other.heard is not None]
            alone_stopped = member.state == "stopped" and any(other.state != "stopped" for other in others)
            late = member.state == "still" and not member.has_arrived and any(other.has_arrived for other in others)
            member.stopped_s = member.stopped_s + now - self._now if alone_stopped else 0.0
            member.still_s = member.still_s + now - self._now if late else 0.0
            if heard is None and now > ARRIVAL_S:
                what = f"has not arrived: nothing was heard of it for {ARRIVAL_S:.0f} s"
            elif heard is not None and now > heard + SILENCE_S:
                what = f"is cut off: nothing was heard from its machine for {SILENCE_S:.0f} s"
            elif member.stopped_s > SILENCE_S:
                what = f"was stopped (SIGSTOP) and did not go on for {SILENCE_S:.0f} s"
            elif member.still_s > STILL_S:
                what = f"has not arrived: it does nothing for {STILL_S:.0f} s while another waits for it"
            if what:
                return Verdict(rank, "died", f"rank {rank} {what}{last_seen(member.place)}")
        return None


def last_seen(place: str) -> str:
    """Where a rank was, in words for the end of a message."""
    return f" (last seen at {place})" if place else ""
