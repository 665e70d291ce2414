"""An object that lives in another process, whose methods are called over a socket.

Measurements there do not interfere with the threads, memory or allocator of other systems. The process can have its own environment variables, and it can
be killed if it hangs.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from hoptrain.benchmarks.common.processes import cpu_seconds, family
from hoptrain.engine import InputError
from hoptrain.kernels.child_process import import_path, python

_GRACE_S = 5.0
"""Seconds that a process may take to end after it has closed its socket."""


class ChildError(RuntimeError):
    """An error for a child process that failed, died or did not answer in time; the message says which. The process no longer exists."""


class Child:
    """A process that is started by the first call. After a failure, the next call starts a new process."""

    def __init__(
        self, make: Callable[..., object], *args: Any, environment: Mapping[str, str] | None = None, patience: float = 300.0
    ) -> None:
        """Store the arguments. The first call starts the process.

        Args:
            make: function that returns the object. It is pickled, and called in the process with ``args``.
            args: arguments of ``make``.
            environment: environment variables to add to those of this process.
            patience: seconds to wait for an answer.
        """
        self._order = (make, args)
        self._environment = dict(environment or {})
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None

    def call(self, method: str, *args: Any) -> Any:
        """Call the object's method and return its result.

        Raises:
            InputError: the object's method, or ``make``, raised it.
            ChildError: anything else went wrong.
        """
        try:
            connection = self._connection or self._start()
            connection.send((method, args))
            if not connection.poll(self._patience):
                raise ChildError(f"no answer within {self._patience:g} s")
            kind, value = connection.recv()
        except (EOFError, OSError) as error:
            raise ChildError(f"the process {self._end(_GRACE_S)}") from error
        except ChildError:
            self._end()
            raise
        if kind == "value":
            return value
        self._end()
        raise (InputError if kind == "input" else ChildError)(value)

    def _start(self) -> Connection[Any, Any]:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                python("-c", "from hoptrain.benchmarks.common.child import main; main()", theirs.fileno()),
                pass_fds=[theirs.fileno()],
                env=os.environ | import_path() | self._environment,
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())
        self._connection.send(self._order)
        return self._connection

    def cpu_seconds(self) -> float:
        """Return the CPU seconds used so far by the process and its descendants that are still alive."""
        return cpu_seconds(family(self._process.pid)) if self._process else 0.0

    def close(self) -> None:
        """End the process and its descendants. Calling this twice is allowed, and a later ``call`` starts a new process."""
        self._end()

    def _end(self, patience: float = 0.0) -> str:
        """Wait up to ``patience`` seconds, then kill the process and its group. Return a text that says how the process ended."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if process is None or connection is None:
            return "did not start"
        connection.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # kills also the processes that the child forked
        code = process.wait()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def main() -> None:
    """Run in the process: create the object, then call its methods until the socket closes. ``argv[1]`` is the socket's file descriptor."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    served: object = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        make, args = connection.recv()
        while True:
            method, values = connection.recv()
            try:
                served = served or make(*args)
                answer = "value", getattr(served, method)(*values)
            except InputError as error:
                answer = "input", str(error)
            except Exception:
                answer = "failure", traceback.format_exc().rstrip()
            connection.send(answer)
    os._exit(0)  # skips slow clean-up; the parent kills all processes that the served object has started
