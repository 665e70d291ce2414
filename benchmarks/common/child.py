"""An object in a process of its own, commanded over a socket.

What is measured there disturbs nobody else's threads, memory or allocator, can have an environment of its own, and can be given up when it
hangs.
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
"""How long a process that has closed its socket may take to end."""


class ChildError(RuntimeError):
    """The process failed, died, or did not answer in time; it is gone. The message says which."""


class Child:
    """One process, started when it is first called; after a failure the next call starts it anew."""

    def __init__(
        self, make: Callable[..., object], *args: Any, environment: Mapping[str, str] | None = None, patience: float = 300.0
    ) -> None:
        """Start nothing yet.

        Args:
            make: from ``args`` to the object, called in the process. It is pickled, so it is found by its name there.
            args: for ``make``.
            environment: variables beside those of this process.
            patience: seconds that an answer may take.
        """
        self._order = (make, args)
        self._environment = dict(environment or {})
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None

    def call(self, method: str, *args: Any) -> Any:
        """Call the object's method and return its result.

        Raises:
            InputError: the object, or its maker, raised it.
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
        """CPU time that the process and all that it has started have used so far, as far as they are alive."""
        return cpu_seconds(family(self._process.pid)) if self._process else 0.0

    def close(self) -> None:
        """End the process and what it has started; may be called again, and the object called again."""
        self._end()

    def _end(self, patience: float = 0.0) -> str:
        """Kill, or wait for a process that is ending by itself; returns how it ended, in words."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if process is None or connection is None:
            return "did not start"
        connection.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also the processes that it forked
        code = process.wait()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def main() -> None:
    """Entry of the process: make the object, then call its methods until the socket ends; ``argv`` holds the socket's descriptor."""
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
    os._exit(0)  # whatever the object has started is killed by who started us; nothing here needs an orderly end
