"""Messages between a rank, its watch and the hub: one JSON object to a line, over a stream socket. No call waits.

Where strangers can connect, the first line is a key. Nothing else is read, let alone parsed, before it was compared.
"""

from __future__ import annotations

import hmac
import json
import socket
import threading
from contextlib import suppress
from typing import Any

_LONGEST = 1 << 16  # bytes of a line; who sends more is none of us


class Channel:
    """One end."""

    def __init__(self, end: socket.socket, key: str = "") -> None:
        """Take over a connected socket; the other end has to send ``key`` before its first message, if there is one."""
        end.setblocking(False)
        self._socket = end
        self._awaited = f"{key}\n".encode() if key else b""
        self._rest = b""
        self._lock = threading.Lock()  # in a rank two threads send

    def fileno(self) -> int:
        """The socket's descriptor, to wait for."""
        return self._socket.fileno()

    def send_key(self, key: str) -> None:
        """Send the key that the other end awaits."""
        with self._lock, suppress(OSError):
            self._socket.sendall(f"{key}\n".encode())

    def send(self, **message: Any) -> None:
        """Send, or drop it: whoever takes nothing any more is found missing by his silence."""
        with self._lock, suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """What has arrived since the last time; None if nothing will any more."""
        try:
            data = self._socket.recv(len(self._awaited) - len(self._rest) if self._awaited else 1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if self._awaited:
            return self._compare(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data or len(self._rest) > _LONGEST:
            return None
        try:
            messages = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            return None
        return messages if all(isinstance(message, dict) for message in messages) else None

    def _compare(self, data: bytes) -> list[dict[str, Any]] | None:
        self._rest += data
        if b"\n" in data or len(self._rest) == len(self._awaited):
            if not hmac.compare_digest(self._rest, self._awaited):
                return None
            self._rest = self._awaited = b""
        return [] if data else None

    def close(self) -> None:
        """Let go of the socket; what was sent still arrives."""
        self._socket.close()
