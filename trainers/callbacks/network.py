"""Check the network settings for the rendezvous of ranks before any process starts, and use only the loopback interface if all ranks are on one machine."""

from __future__ import annotations

import os
import resource
import socket

from pytorch_lightning import Trainer

from hoptrain.engine import InputError

_INTERFACES = "GLOO_SOCKET_IFNAME"
_LOOPBACK = "lo"
_FILES = 64  # files that a rank opens for itself: logs, checkpoints, libraries
_FILES_OF_RANK = 4  # files that a rank opens for each other rank: connections of the process groups


def is_one_machine(trainer: Trainer) -> bool:
    """Return whether all ranks are on this machine.

    ``num_nodes`` is not enough: launchers that start all ranks, such as Ray, leave it at 1. They set LOCAL_WORLD_SIZE, so this function checks it too.
    """
    return trainer.num_nodes == 1 and int(os.environ.get("LOCAL_WORLD_SIZE", trainer.world_size)) == trainer.world_size


def prepare_network(trainer: Trainer) -> None:
    """Check the network settings. If all ranks are on this machine, make torch's store and gloo listen on the loopback interface alone.

    Raises:
        InputError: MASTER_PORT is not a port, GLOO_SOCKET_IFNAME names an unknown interface, or the limit on open files is too low.
    """
    check_port(os.environ.get("MASTER_PORT"))
    check_interfaces(os.environ.get(_INTERFACES))
    check_files(trainer.world_size)
    if is_one_machine(trainer):
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        if _LOOPBACK in _names():
            os.environ.setdefault(_INTERFACES, _LOOPBACK)


def check_port(port: str | None) -> None:
    """Check the value of MASTER_PORT, which may be None.

    Raises:
        InputError: ``port`` is not an integer in [1, 65535].
    """
    if port is not None and not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535):
        raise InputError(
            f"MASTER_PORT is {port!r}: it must be a port in [1, 65535]; give one that is free, or unset it if all ranks are on one machine"
        )


def check_interfaces(value: str | None) -> None:
    """Check the value of GLOO_SOCKET_IFNAME: names of network interfaces, separated by commas, or None.

    Raises:
        InputError: this machine has no network interface of one of the names.
    """
    names = _names()
    for name in (value or "").split(",") if value else []:
        if name not in names:
            raise InputError(
                f"{_INTERFACES} is {value!r}: it must name network interfaces of this machine, which has {', '.join(names)}; give one of them, or unset it"
            )


def check_files(world_size: int) -> None:
    """Check that this process may open enough files for the connections between ranks.

    Raises:
        InputError: the limit on open files is too low.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _FILES_OF_RANK * world_size
    if limit < needed:
        raise InputError(
            f"the limit on open files is {limit}: each of {world_size} ranks needs {needed}; raise it with 'ulimit -n {needed}'"
        )


def _names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]
