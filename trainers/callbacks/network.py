"""What a run's ranks meet by: checked before any process is started, and kept on this machine where all ranks are here."""

from __future__ import annotations

import os
import resource
import socket

from pytorch_lightning import Trainer

from hoptrain.engine import InputError

_INTERFACES = "GLOO_SOCKET_IFNAME"
_LOOPBACK = "lo"
_FILES = 64  # that a rank opens for itself: logs, checkpoints, libraries
_FILES_OF_RANK = 4  # that it opens for each other one: connections of the process groups


def is_one_machine(trainer: Trainer) -> bool:
    """Return whether all ranks are on this machine. Launchers that start all ranks, as Ray does, leave ``num_nodes`` at 1 and set the environment variable."""
    return trainer.num_nodes == 1 and int(os.environ.get("LOCAL_WORLD_SIZE", trainer.world_size)) == trainer.world_size


def prepare_network(trainer: Trainer) -> None:
    """Check what the ranks meet by; where all are on this machine, let torch's store and gloo listen on its loopback interface alone.

    Raises:
        InputError: MASTER_PORT is no port, GLOO_SOCKET_IFNAME names no interface, or this process may open too few files.
    """
    check_port(os.environ.get("MASTER_PORT"))
    check_interfaces(os.environ.get(_INTERFACES))
    check_files(trainer.world_size)
    if is_one_machine(trainer):
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        if _LOOPBACK in _names():
            os.environ.setdefault(_INTERFACES, _LOOPBACK)


def check_port(port: str | None) -> None:
    """Raise if the value of MASTER_PORT is no port.

    Raises:
        InputError: it is not in [1, 65535].
    """
    if port is not None and not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535):
        raise InputError(f"MASTER_PORT is {port!r}: it must be a number in [1, 65535]; give one that is free, or unset it on one machine")


def check_interfaces(value: str | None) -> None:
    """Raise if GLOO_SOCKET_IFNAME names an interface that this machine does not have.

    Raises:
        InputError: one of the names, separated by commas, is of no interface.
    """
    names = _names()
    for name in (value or "").split(",") if value else []:
        if name not in names:
            raise InputError(
                f"{_INTERFACES} is {value!r}: it must name network interfaces of this machine, which has {', '.join(names)}; give one of them, or unset it"
            )


def check_files(world_size: int) -> None:
    """Raise if this process may open too few files for the connections between ranks.

    Raises:
        InputError: the limit is too low.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _FILES_OF_RANK * world_size
    if limit < needed:
        raise InputError(
            f"this process may open {limit} files: each of {world_size} ranks needs {needed}; raise the limit with 'ulimit -n {needed}'"
        )


def _names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]
