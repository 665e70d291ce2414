"""A rank ends with torchrun, which has started it: killed by SIGKILL, that can end no rank itself."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from select import POLLIN, poll

from hoptrain.trainers.watchdog.sight import Sight

_MARK = b"\0TORCHELASTIC_USE_AGENT_STORE=True\0"
_LOOK_S = 1.0  # where the kernel has no descriptors of processes
_CONNECT_S = 5.0
_THREAD = "hoptrain-launcher"


def end_with_launcher() -> None:
    """Let this process end when torchrun has ended, if it was started by that. Nothing happens in other processes, or the second time.

    Raises:
        RuntimeError: torchrun has ended already.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or any(thread.name == _THREAD for thread in threading.enumerate()):
        return
    launcher = Sight(_launcher())
    _check_store()  # after the look: if torchrun had ended before it, the process that was seen is another
    threading.Thread(target=_end_with, args=(launcher,), name=_THREAD, daemon=True).start()


def _launcher() -> int:
    """Return the process id of torchrun: the nearest process above without the variable that it sets, since a script may stand between."""
    pid = os.getppid()
    while pid > 1 and _MARK in b"\0" + _read(f"/proc/{pid}/environ"):
        pid = int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    return pid


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _check_store() -> None:
    """Raise if torchrun's store is gone, which is there before any rank.

    Raises:
        RuntimeError: nothing listens where it was.
    """
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        with suppress(TimeoutError, socket.gaierror):
            socket.create_connection(address, _CONNECT_S).close()
    except ConnectionRefusedError:
        raise RuntimeError(f"torchrun has ended: nothing listens at {address[0]}:{address[1]}, where its store was") from None


def _end_with(launcher: Sight) -> None:
    waiting = poll()
    if launcher.end is not None:
        waiting.register(launcher.end, POLLIN)
    while not launcher.is_gone:
        if launcher.end is None:
            time.sleep(_LOOK_S)
        else:
            waiting.poll()
        launcher.look()
    with suppress(OSError):
        os.write(2, b"hoptrain: this rank ends, because torchrun has ended\n")
    os._exit(1)
