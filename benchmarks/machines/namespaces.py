"""Network namespaces of Linux that stand for machines: each has its own interface on a bridge, and a limit of its sending rate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

from hoptrain.engine import InputError

INTERFACE = "eth0"
"""Name of each machine's network interface; gloo reads it from ``GLOO_SOCKET_IFNAME``."""
_LEAST_BURST, _BURST_S, _LATENCY = 16 << 10, 0.002, "200ms"
"""Options of the rate limit: minimum bytes of a burst, seconds of a burst at the machine's rate, and longest queueing time of a packet.

A machine sends a burst without a limit after a pause, so longer bursts would exceed the rate.
"""
_numbers = count()


def lacking() -> str:
    """Return why network namespaces cannot be created here, or an empty string if they can."""
    if os.geteuid() != 0:
        return "this user is not root"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "the programs ip and tc are not installed (Debian's package iproute2)"
    name = f"hoptrain-{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
        _ip("netns", "delete", name)
    except InputError as error:
        return str(error)
    return ""


class Network:
    """A set of network namespaces that reach each other by IP address, and nothing else.

    Attributes:
        addresses: IP address of each machine.
    """

    def __init__(self, name: str, size: int) -> None:
        """Choose the names of the namespaces of ``size`` machines; ``make`` creates the namespaces."""
        self._switch, self._names = f"{name}-switch", [f"{name}-{machine}" for machine in range(size)]
        self.addresses = [f"10.83.0.{machine + 1}" for machine in range(size)]

    def inside(self, machine: int) -> list[str]:
        """Return the arguments to put before a command so that the command runs on the given machine."""
        return ["ip", "netns", "exec", self._names[machine]]

    def sent(self) -> list[int]:
        """Return the bytes that each machine's interface has sent so far, headers of Ethernet, IP and TCP included."""
        links = [json.loads(_ip("-n", name, "-s", "-j", "link", "show", INTERFACE)) for name in self._names]
        return [int(link["stats64"]["tx"]["bytes"]) for (link,) in links]

    def cut(self, machine: int) -> None:
        """Disconnect a machine from the network."""
        _ip("-n", self._switch, "link", "set", f"port{machine}", "down")

    def slow(self, machine: int, rate_kbit: int) -> None:
        """Limit the sending rate of a machine to ``rate_kbit`` kilobits a second."""
        command = ["tc", "-n", self._names[machine], "qdisc", "replace", "dev", INTERFACE, "root", "tbf"]
        burst = max(_LEAST_BURST, int(rate_kbit * 1000 / 8 * _BURST_S))
        _run([*command, "rate", f"{rate_kbit}kbit", "burst", f"{burst}b", "latency", _LATENCY])

    def make(self, rate_mbit: int) -> None:
        """Create the bridge and the namespaces, each limited to ``rate_mbit`` megabits a second.

        Raises:
            InputError: the system cannot create them.
        """
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "bridge", "up")
        for machine, name in enumerate(self._names):
            port = f"port{machine}"
            _ip("netns", "add", name)
            _ip("-n", name, "link", "add", INTERFACE, "type", "veth", "peer", "name", port, "netns", self._switch)
            _ip("-n", self._switch, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{self.addresses[machine]}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _ip("-n", name, "link", "set", interface, "up")
            self.slow(machine, 1000 * rate_mbit)

    def remove(self) -> None:
        """Remove the namespaces that exist; processes in them continue without a network."""
        for name in (*self._names, self._switch):
            with suppress(InputError):
                _ip("netns", "delete", name)


@contextmanager
def joined(size: int, rate_mbit: int = 1000) -> Iterator[Network]:
    """Create the namespaces of ``size`` machines, each of which sends at most ``rate_mbit`` megabits a second, for the duration of a ``with`` block.

    Raises:
        InputError: the system cannot create network namespaces.
    """
    network = Network(f"hoptrain-{os.getpid()}-{next(_numbers)}", size)
    try:
        network.make(rate_mbit)
        yield network
    finally:
        network.remove()


def _ip(*arguments: str) -> str:
    return _run(["ip", *arguments])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(
            f"'{' '.join(command)}' failed ({' '.join(done.stderr.split())}): network namespaces need root privileges; run as root"
        )
    return done.stdout
