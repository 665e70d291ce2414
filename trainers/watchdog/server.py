"""The coordinator's connections to all watchdogs. It runs in the watchdog of rank 0, which connects to it like the others."""

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
from hoptrain.trainers.watchdog.coordinator import Coordinator
from hoptrain.trainers.watchdog.process_probe import ProcessProbe

_BEAT_S = 1.0
_LINGER_S = 10.0
"""Seconds that the server keeps running after a failure, to inform ranks that are still starting."""
_GREETING_S = 10.0  # seconds within which a new connection must send the key; a watchdog sends it at once
MOST_UNAUTHENTICATED = 64  # maximum number of connections that have not sent the key, since each is an open file


class Server:
    """A server that passes messages of watchdogs to the coordinator, and sends its decision to all of them.

    Attributes:
        address: address for the watchdogs: host, port, and a key without which a connection is refused.
    """

    def __init__(self, selector: selectors.BaseSelector, host: str, world_size: int) -> None:
        """Listen on the address of ``host``: only on this machine if that is a loopback address."""
        self._coordinator = Coordinator(world_size)
        self._selector = selector
        self._unauthenticated: dict[Channel, float] = {}  # connection -> time at which it is closed
        self._peers: dict[Channel, int] = {}
        self._launched: dict[int, ProcessProbe] = {}
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
        except OSError:  # the other end has already closed the connection
            return
        if len(self._unauthenticated) >= MOST_UNAUTHENTICATED:
            self._drop(next(iter(self._unauthenticated)))
        self._unauthenticated[channel] = self._now + _GREETING_S
        self._selector.register(channel, selectors.EVENT_READ, partial(self._hear, channel))

    def _hear(self, channel: Channel) -> None:
        if channel not in self._unauthenticated and channel not in self._peers:  # the channel was closed after the selector reported it
            return
        messages = channel.receive()
        for message in messages or []:
            if channel not in self._peers and not self._authenticate(channel, message):
                messages = None
                break
            self._coordinator.update(self._peers[channel], message, self._now)
        if messages is None:
            self._drop(channel)
            if channel in self._peers:
                self._coordinator.update(
                    self._peers.pop(channel), {"kind": "died", "text": "has ended, and so has its watchdog"}, self._now
                )

    def _drop(self, channel: Channel) -> None:
        self._unauthenticated.pop(channel, None)
        self._selector.unregister(channel)
        channel.close()

    def _authenticate(self, channel: Channel, message: dict[str, Any]) -> bool:
        rank = message.get("rank")
        if not isinstance(rank, int) or not 0 <= rank < len(self._coordinator.ranks):
            return False
        del self._unauthenticated[channel]
        self._peers[channel] = rank
        if self._coordinator.failure is not None:
            channel.send(failure=asdict(self._coordinator.failure))
        return True

    def launched(self, pids: list[list[int]]) -> None:
        """Observe launched processes, given as (rank, process id), until their own watchdogs observe them."""
        self._launched = {rank: ProcessProbe(pid) for rank, pid in pids}

    def tick(self, now: float) -> None:
        """Ask the coordinator for a decision, and send heartbeats to the watchdogs. ``now`` is the time of ``Coordinator.update``."""
        self._now = now
        while self._unauthenticated and now > (first := next(iter(self._unauthenticated.items())))[1]:
            self._drop(first[0])
        for rank, probe in self._launched.items():
            if self._coordinator.ranks[rank].heard is None:
                probe.look()
                if probe.is_gone:
                    self._coordinator.update(rank, {"kind": "died", "text": probe.how_it_ended()}, now)
        failure = self._coordinator.decide(now)
        if failure is not None and self._told_at is None:
            self._told_at = now
            for channel in self._peers:
                channel.send(failure=asdict(failure))
        if failure is not None and failure.kind in ("died", "failed"):
            self._end_in_order(failure.rank)
        if now >= self._due:
            self._due = now + _BEAT_S
            for channel in self._peers:
                channel.send(beat=True)

    def _end_in_order(self, cause: int) -> None:
        """End the ranks in order: first the failed one, which prints its error, and last rank 0, since the shell continues when rank 0 has ended."""
        working = self._working()
        others = working - {0}
        turn = set() if cause in working else others or working
        for channel, rank in self._peers.items():
            if rank in turn - self._ended:
                channel.send(end=True)
        self._ended |= turn

    def _working(self) -> set[int]:
        """Return the ranks whose watchdogs are connected and sent a message within two heartbeats."""
        return {rank for rank in self._peers.values() if self._now < (self._coordinator.ranks[rank].heard or 0.0) + 2 * _BEAT_S}

    @property
    def ranks(self) -> set[int]:
        """Ranks whose watchdogs are connected."""
        return set(self._peers.values())

    @property
    def is_needed(self) -> bool:
        """True while a watchdog still has to report, or to be informed of the failure."""
        ranks = self._coordinator.ranks
        if self._told_at is None:
            return not all(state.is_done for state in ranks)
        is_complete = not self._working() and all(state.heard is not None for state in ranks)
        return not is_complete and self._now < self._told_at + _LINGER_S


def listen(host: str, port: int = 0) -> socket.socket:
    """Return a socket that listens only on the address of ``host``.

    It listens on all interfaces in two cases: ``host`` resolves to the loopback interface on this machine but to another address elsewhere, as with
    Debian's ``/etc/hosts``; or its address is not one of this machine, because another machine forwards to it (NAT).

    Args:
        host: name or address of this machine.
        port: port to listen at; 0 lets the system choose one.

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
