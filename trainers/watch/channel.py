"""Messages between a rank, its watch and the hub: one JSON object to a line, over a stream socket. No call waits."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import Any

_LONGEST = 1 << 16  # bytes of a line; who sends more is none of us


class Channel:
    """One end."""

    def __init__(self, end: socket.socket) -> None:
        """Take over a connected socket."""
        end.setblocking(False)
        self._socket = end
        self._rest = b""
        self._lock = threading.Lock()  # in a rank two threads send

    def fileno(self) -> int:
        """The socket's descriptor, to wait for."""
        return self._socket.fileno()

    def send(self, **message: Any) -> None:
        """Send, or drop it: whoever takes nothing any more is found missing by his silence."""
        with self._lock, suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """What has arrived since the last time; None if nothing will any more."""
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data or len(self._rest) > _LONGEST:
            return None
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            return None
        return messages if all(isinstance(message, dict) for message in messages) else None

    def close(self) -> None:
        """Let go of the socket; what was sent still arrives."""
        self._socket.close()
