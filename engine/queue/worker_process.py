"""``WorkerProcess``: the trainer's side of one worker: its socket, its slots, its missing batches, and its replacement when it dies.

The state for a restart is here: the task (an anonymous file), the slots that the trainer does not hold, and the steps whose batches have not arrived.
Sampling is a pure function of (seed, epoch, batch), so a replacement makes the same batches.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import WorkerError, explain_hint
from hoptrain.engine.queue.ring import Lease, Slot, Spec, carve, total_bytes
from hoptrain.engine.queue.shared_memory import anonymous_file
from hoptrain.kernels.child_process import import_path, python
from hoptrain.kernels.machine_code import CACHE_ROOT, CACHE_ROOT_VARIABLE

_STACK_S = 1.0  # time for a process to write its stack
_KILL_S = 5.0  # time for the kernel to end a process, which may hang in a system call
_LOOK_S = 0.005  # interval of checks for the end of a process
_MESSAGE_S = 5.0  # time to send or receive a message; only a stopped process needs long
_LIMITS = (
    "'ulimit -a' shows the limits of this process; raise the one that is reached, or use fewer num_workers or less prefetch_factor"
    + explain_hint("workers")
)

Notice = tuple[int, int, list[Spec], dict[str, Any]]
"""A worker's message about a batch: step, slot, specs of the arrays in the slot, and header."""


class WorkerProcess:
    """A worker process and its successors, as the trainer sees them.

    Attributes:
        index: number within the pool.
        process: the current process.
        failures: processes that ended or were replaced since the last batch arrived.
        is_ready: whether the current process has imported and unpickled what it needs.
    """

    def __init__(
        self,
        index: int,
        num_slots: int,
        batch_bytes: int,
        job: int,
        descriptors: Sequence[int],
        on_map: Callable[[Array], None] | None = None,
        buffer_dir: str | None = None,
    ) -> None:
        """Start the process without waiting until it is ready.

        Args:
            index: number within the pool.
            num_slots: number of slots in the worker's ring.
            batch_bytes: number of bytes that the worker reserves for each slot.
            job: descriptor of the file with the pickled task.
            descriptors: descriptors of the task's shared arrays, which the process inherits.
            on_map: called with each mapping of a slot in this process, (bytes,) uint8.
            buffer_dir: folder of the slots' files; None for shared memory.

        Raises:
            InputError: ``buffer_dir`` cannot hold files.
            WorkerError: the process cannot be started.
        """
        self.index = index
        self.slots: list[Slot] = []
        self.failures = 0
        self._batch_bytes = batch_bytes
        self._job, self._descriptors = job, descriptors
        self._stack = anonymous_file(f"hoptrain-stack-{index}")
        self._held: set[int] = set()  # slots that are lent to this process, or hold a batch of it that has arrived
        self._num_lent = 0
        self._returned: deque[int] = deque()
        self._run: tuple[int, int] | None = None  # generation and epoch of the current run
        self._owed = range(0)
        self._notices: deque[Notice] = deque()
        self._error: tuple[int, str, str] | None = None
        self._lifeline: int | None = None
        try:
            for i in range(num_slots):
                self.slots.append(Slot(anonymous_file(f"hoptrain-slot-{index}-{i}", buffer_dir), on_map))
            self._start()
        except BaseException:
            self._cut_lifeline()
            self.close_files()
            raise

    def _start(self) -> None:
        """Start a process, and send it the free slots and the steps of missing batches.

        Raises:
            WorkerError: the system cannot start the process. This object can then be closed, or ``replace`` called again.
        """
        try:
            self._launch()
        except OSError as error:
            self._cut_lifeline()
            raise WorkerError(f"worker {self.index} cannot be started ({error.strerror}): {_LIMITS}") from error
        for slot in range(len(self.slots)):
            if slot not in self._held:
                self._send(("free", slot))
        if self._owed and self._run:
            self._send(("run", *self._run, self._owed))

    def _launch(self) -> None:
        self.is_ready = False
        ours, theirs = socket.socketpair()
        with ours, theirs:
            read_end, self._lifeline = os.pipe()
            _LIFELINES.add(self._lifeline)
            slots = [slot.fd for slot in self.slots]
            inherited = [theirs.fileno(), read_end, self._job, self._stack]
            try:
                self.process = subprocess.Popen(
                    python(
                        "-c",
                        "import gc; gc.disable(); from hoptrain.engine.queue.worker import main; main()",
                        *[self._batch_bytes, *inherited, *slots],
                    ),
                    pass_fds=[*inherited, *slots, *self._descriptors],
                    env=_environment(),
                    # Ctrl-C in the terminal reaches the trainer alone; processes that a sampler starts join the worker's group
                    process_group=0,
                )
            finally:
                os.close(read_end)
            for direction in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                ours.setsockopt(socket.SOL_SOCKET, direction, _MESSAGE_TIMEOUT)
            # made once, since Connection.poll makes a selector at each call, which takes longer than to receive a message
            self._arrivals = select.poll()
            self._arrivals.register(ours, select.POLLIN)
            self.connection: Connection[Any, Any] = Connection(ours.detach())

    def begin(self, generation: int, epoch: int, steps: range) -> None:
        """Let the process make the batches of ``steps``, and drop batches of earlier steps that are still missing."""
        self._run, self._owed, self._error = (generation, epoch), steps, None
        for _, slot, _, _ in self._notices:
            self._free(slot)
        self._notices.clear()
        if self.is_alive():
            self._send(("run", generation, epoch, steps))
        else:
            self.replace()

    def extend(self, stop: int) -> None:
        """Append steps up to ``stop``, exclusive, to the steps that ``begin`` set."""
        if self._run is not None:
            self._owed = range(self._owed.start, stop, self._owed.step)
            self._send(("extend", self._run[0], stop))

    def is_alive(self) -> bool:
        """Return whether the process runs or is stopped. If it has ended, end the processes that it started."""
        if self.process.returncode is None:
            with suppress(ChildProcessError):  # raised if other code has already waited for the process
                if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    return True
                self._kill_group()
        return self.process.poll() is None

    def owes(self) -> bool:
        """Return whether batches of the current steps are missing."""
        return len(self._owed) > 0

    def wait(self, timeout: float) -> None:
        """Wait until a message arrives, the process ends, or ``timeout`` seconds have passed."""
        self._arrivals.poll(1000 * timeout)

    def collect(self) -> None:
        """Handle all messages that have arrived, including those of a dead process."""
        try:
            while self._arrivals.poll(0):
                self._take(self.connection.recv())
        except BlockingIOError:  # only half a message came: its writer was stopped, and the rest is lost
            self.kill()
        except (EOFError, OSError):  # the connection was reset or closed
            pass

    def _take(self, message: tuple[Any, ...]) -> None:
        kind, generation, step, *rest = message
        if kind == "ready":
            self.is_ready = True
            return
        is_current = self._run is not None and generation == self._run[0]
        if kind == "batch":
            slot, specs, facts = rest
            self._held.add(slot)
            if not is_current:
                self._free(slot)
                return
            self._notices.append((step, slot, specs, facts))
            self._owed = self._owed[1:]
            self.failures = 0
        elif is_current or generation < 0:
            self._error = (step, *rest)

    def notice(self) -> Notice | None:
        """Return the notice of the next batch, or None if it has not arrived."""
        return self._notices.popleft() if self._notices else None

    def num_notices(self) -> int:
        """Return the number of batches that have arrived."""
        return len(self._notices)

    def error(self) -> tuple[int, str, str] | None:
        """Return the error that the process sent instead of its next batch, as (step, kind, text), with step -1 for its start; None without an error."""
        return self._error

    def lend(self, slot: int, specs: list[Spec]) -> dict[str, Array]:
        """Return the arrays of a slot: views that hold it, or copies if the worker would have no slot left.

        Raises:
            WorkerError: the slot has grown and cannot be mapped.
        """
        try:
            buffer = self.slots[slot].view(total_bytes(specs))
        except OSError as error:
            self._free(slot)
            raise WorkerError(f"a batch of worker {self.index} cannot be mapped ({error.strerror}): {_LIMITS}") from error
        if self._num_lent >= len(self.slots) - 1:
            arrays = {name: view.copy() for name, view in carve(buffer, specs).items()}
            self._free(slot)
            return arrays
        self._num_lent += 1
        return carve(np.asarray(Lease(buffer, partial(self._returned.append, slot))), specs)

    def free_returned_slots(self) -> None:
        """Return slots whose last view is gone to the worker."""
        while self._returned:
            self._num_lent -= 1
            self._free(self._returned.popleft())

    def _free(self, slot: int) -> None:
        self._held.discard(slot)
        self._send(("free", slot))

    def _send(self, message: tuple[Any, ...]) -> None:
        # Errors are ignored: the code that waits for a batch detects a dead or stopped process, and its replacement receives all messages again.
        with suppress(OSError):
            self.connection.send(message)

    def replace(self) -> None:
        """Kill the process if it still runs, and start a successor, which makes the missing batches."""
        self.kill()
        self.collect()
        self.disconnect()
        self._start()

    def disconnect(self) -> None:
        """Close the socket; a healthy process then ends."""
        with suppress(OSError):
            self.connection.close()

    def kill(self) -> None:
        """Kill the process if it still runs. The process executes nothing after this call, even if the kernel takes long to end it."""
        self._kill_group()
        self._cut_lifeline()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_KILL_S)

    def _kill_group(self) -> None:
        """Kill the process group. The id of the group is not reused before this class has waited for the process."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _cut_lifeline(self) -> None:
        """Close the pipe, so that the kernel ends the process that holds its other end; a process that has just started may not hold it yet."""
        if self._lifeline is not None:
            _LIFELINES.discard(self._lifeline)
            os.close(self._lifeline)
            self._lifeline = None

    def close_files(self) -> None:
        """Close the descriptors that successors would inherit."""
        for fd in (self._stack, *(slot.fd for slot in self.slots)):
            os.close(fd)

    def how_it_ended(self) -> str:
        """Return a description of the exit code or of the signal that ended the process."""
        code = self.process.wait()
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"

    def stack(self) -> str:
        """Return the process's Python stack, or the reason why there is none."""
        if _is_stopped(self.process.pid):
            return "the process is stopped (SIGSTOP, or a debugger)"
        os.ftruncate(self._stack, 0)
        os.lseek(self._stack, 0, os.SEEK_SET)  # resets the file offset, which earlier processes of this worker have moved
        if self.is_alive():
            os.kill(self.process.pid, signal.SIGUSR1)  # faulthandler writes the stack, also during compiled code
        deadline = time.monotonic() + _STACK_S
        size = 0
        while time.monotonic() < deadline:
            time.sleep(0.05)
            before, size = size, os.fstat(self._stack).st_size
            if size and size == before:
                break
        return os.pread(self._stack, size, 0).decode(errors="replace").rstrip() or "it wrote no stack"


_MESSAGE_TIMEOUT = np.array([int(_MESSAGE_S), 0], np.int64).tobytes()  # the layout of struct timeval
_LIFELINES: set[int] = set()
"""Write ends of the workers' pipes. When this process ends for any reason, the kernel closes the pipes and ends each worker."""


def _close_lifelines() -> None:
    """Close the write ends in a fork of this process, which does not own the workers and must not keep them alive."""
    for fd in _LIFELINES:
        os.close(fd)
    _LIFELINES.clear()


os.register_at_fork(after_in_child=_close_lifelines)


def _is_stopped(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state in "Tt"


def _environment() -> dict[str, str]:
    """Return the trainer's environment with its import path and kernel cache, and one thread for OpenMP and Numba, since processes share the cores."""
    own = {CACHE_ROOT_VARIABLE: str(CACHE_ROOT), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    return {**os.environ, **import_path(), **own}


def close_all(workers: Sequence[WorkerProcess], patience: float) -> None:
    """Disconnect all workers, so that they end at the same time; after ``patience`` seconds, kill the workers that still run."""
    for worker in workers:
        worker.disconnect()
    deadline = time.monotonic() + patience
    for worker in workers:
        while worker.is_alive() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        worker.kill()
        worker.close_files()
