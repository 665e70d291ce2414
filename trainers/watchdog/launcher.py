"""End a rank when the torchrun process that started it has ended. If torchrun is killed by SIGKILL, it cannot end its ranks itself."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from select import POLLIN, poll

from hoptrain.trainers.watchdog.process_probe import ProcessProbe

_MARK = b"\0TORCHELASTIC_USE_AGENT_STORE=True\0"
_LOOK_S = 1.0  # seconds between two polls of torchrun, if the kernel has no pidfd
_CONNECT_S = 5.0
_THREAD = "hoptrain-launcher"


def end_with_launcher() -> None:
    """End this process when torchrun ends, if torchrun started it. In processes of other launchers, and on a second call, do nothing.

    Raises:
        RuntimeError: torchrun has already ended.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or any(thread.name == _THREAD for thread in threading.enumerate()):
        return
    launcher = ProcessProbe(_launcher())
    # must follow the probe: if torchrun ended before the probe was made, the probe watches an unrelated process, and this check raises
    _check_store()
    threading.Thread(target=_end_with, args=(launcher,), name=_THREAD, daemon=True).start()


def _launcher() -> int:
    """Return the process id of torchrun: the nearest ancestor process without the environment variable that torchrun sets.

    Another process, such as a script, may run between torchrun and this process.
    """
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
    """Check that the store of torchrun, which starts before any rank, still listens.

    Raises:
        RuntimeError: nothing listens at its address.
    """
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        with suppress(TimeoutError, socket.gaierror):
            socket.create_connection(address, _CONNECT_S).close()
    except ConnectionRefusedError:
        raise RuntimeError(f"torchrun has ended: its store at {address[0]}:{address[1]} does not listen for connections any more") from None


def _end_with(launcher: ProcessProbe) -> None:
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
