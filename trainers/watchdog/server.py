"""The hub's sockets, in the watch of rank 0: every watch is connected, rank 0's own as well."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import selectors
import socket
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from hoptrain.trainers.watchdog.channel import Channel
from hoptrain.trainers.watchdog.hub import Hub
from hoptrain.trainers.watchdog.sight import Sight

_BEAT_S = 1.0
_LINGER_S = 10.0
"""How long the hub stays after a verdict: those that are being started have to hear it too."""
_GREETING_S = 10.0  # within which a connection has to send the key; a watch sends it at once
MOST_STRANGERS = 64  # connections without the key that are kept: each is an open file


class Server:
    """Listens; hears the watches and tells them the verdict.

    Attributes:
        address: for the watches: host, port and a key that tells them from strangers.
    """

    def __init__(self, selector: selectors.BaseSelector, host: str, world_size: int) -> None:
        """Begin to listen; on this machine alone, if that is where all ranks are."""
        self._hub = Hub(world_size)
        self._selector = selector
        self._strangers: dict[Channel, float] = {}  # and until when each may stay
        self._peers: dict[Channel, int] = {}
        self._launched: dict[int, Sight] = {}
        self._key = secrets.token_hex(16)
        self._now = self._due = 0.0
        self._told_at: float | None = None
        self._ended: set[int] = set()
        self._socket = listen(host)
        self._socket.setblocking(False)
        self.address = f"{host} {self._socket.getsockname()[1]} {self._key}"
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        try:
            channel = Channel(self._socket.accept()[0], self._key)
        except OSError:  # it has gone again
            return
        if len(self._strangers) >= MOST_STRANGERS:
            self._drop(next(iter(self._strangers)))
        self._strangers[channel] = self._now + _GREETING_S
        self._selector.register(channel, selectors.EVENT_READ, partial(self._hear, channel))

    def _hear(self, channel: Channel) -> None:
        if channel not in self._strangers and channel not in self._peers:  # dropped since the selector saw it
            return
        messages = channel.receive()
        for message in messages or []:
            if channel not in self._peers and not self._greet(channel, message):
                messages = None
                break
            self._hub.take(self._peers[channel], message, self._now)
        if messages is None:
            self._drop(channel)
            if channel in self._peers:
                self._hub.take(self._peers.pop(channel), {"kind": "died", "text": "is gone, and its watch with it"}, self._now)

    def _drop(self, channel: Channel) -> None:
        self._strangers.pop(channel, None)
        self._selector.unregister(channel)
        channel.close()

    def _greet(self, channel: Channel, message: dict[str, Any]) -> bool:
        rank = message.get("rank")
        if not isinstance(rank, int) or not 0 <= rank < len(self._hub.members):
            return False
        del self._strangers[channel]
        self._peers[channel] = rank
        if self._hub.verdict is not None:
            channel.send(verdict=asdict(self._hub.verdict))
        return True

    def launched(self, pids: list[list[int]]) -> None:
        """Look at these processes until their own watches do: rank and process id."""
        self._launched = {rank: Sight(pid) for rank, pid in pids}

    def tick(self, now: float) -> None:
        """Decide, and let the watches hear that the hub is there; ``now`` as the hub has it."""
        self._now = now
        while self._strangers and now > (first := next(iter(self._strangers.items())))[1]:
            self._drop(first[0])
        for rank, sight in self._launched.items():
            if self._hub.members[rank].heard is None:
                sight.look()
                if sight.is_gone:
                    self._hub.take(rank, {"kind": "died", "text": sight.how_it_ended()}, now)
        verdict = self._hub.decide(now)
        if verdict is not None and self._told_at is None:
            self._told_at = now
            for channel in self._peers:
                channel.send(verdict=asdict(verdict))
        if verdict is not None and verdict.kind in ("died", "failed"):
            self._give_turns(verdict.rank)
        if now >= self._due:
            self._due = now + _BEAT_S
            for channel in self._peers:
                channel.send(beat=True)

    def _give_turns(self, cause: int) -> None:
        """Let the ranks end in order: first the one that failed, which tells its error, and last rank 0, since a shell goes on when that has ended."""
        working = self._working()
        others = working - {0}
        turn = set() if cause in working else others or working
        for channel, rank in self._peers.items():
            if rank in turn - self._ended:
                channel.send(end=True)
        self._ended |= turn

    def _working(self) -> set[int]:
        """Ranks whose watches are there and well."""
        return {rank for rank in self._peers.values() if self._now < (self._hub.members[rank].heard or 0.0) + 2 * _BEAT_S}

    @property
    def ranks(self) -> set[int]:
        """Ranks whose watches are connected."""
        return set(self._peers.values())

    @property
    def is_needed(self) -> bool:
        """Whether a watch is still to be heard or told."""
        members = self._hub.members
        if self._told_at is None:
            return not all(member.is_done for member in members)
        is_complete = not self._working() and all(member.heard is not None for member in members)
        return not is_complete and self._now < self._told_at + _LINGER_S


def listen(host: str, port: int = 0) -> socket.socket:
    """Listen where ``host`` leads to, on that network alone.

    A name may lead to this machine's loopback here and to its network elsewhere, as Debian's ``/etc/hosts`` has it, or to an address that another machine
    translates: then listen on all networks.

    Args:
        host: a name or an address of this machine.
        port: where to listen; 0 lets the system choose.

    Raises:
        OSError: the port is in use, or reserved.
    """
    found = []
    with suppress(OSError):
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, _, _, _, address in found:
        if not ipaddress.ip_address(address[0]).is_loopback or _is_loopback(host):
            try:
                return socket.create_server((str(address[0]), port), family=family, backlog=1024)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
