"""Messages between a rank, its watchdog and the coordinator: one JSON object per line, over a stream socket. No call blocks.

On a socket that other programs can connect to, the first line must be a key. Nothing after the key is read before it has been compared.
"""

from __future__ import annotations

import hmac
import json
import socket
import threading
from contextlib import suppress
from typing import Any

_LONGEST = 1 << 16  # maximum number of bytes of a line; a longer line closes the channel


class Channel:
    """One end of a message connection."""

    def __init__(self, end: socket.socket, key: str = "") -> None:
        """Wrap a connected socket. If ``key`` is not empty, the other end must send it before its first message."""
        end.setblocking(False)
        self._socket = end
        self._expected = f"{key}\n".encode() if key else b""
        self._rest = b""
        self._lock = threading.Lock()  # needed because two threads of a rank send

    def fileno(self) -> int:
        """Return the file descriptor of the socket, for a selector."""
        return self._socket.fileno()

    def send_key(self, key: str) -> None:
        """Send the key that the other end expects."""
        with self._lock, suppress(OSError):
            self._socket.sendall(f"{key}\n".encode())

    def send(self, **message: Any) -> None:
        """Send a message, and ignore errors. Callers notice that a receiver has ended because it no longer sends messages."""
        with self._lock, suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the messages that have arrived since the last call; None if the connection has ended."""
        try:
            data = self._socket.recv(len(self._expected) - len(self._rest) if self._expected else 1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if self._expected:
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
        if b"\n" in data or len(self._rest) == len(self._expected):
            if not hmac.compare_digest(self._rest, self._expected):
                return None
            self._rest = self._expected = b""
        return [] if data else None

    def close(self) -> None:
        """Close the socket. Messages that were sent before still arrive."""
        self._socket.close()
