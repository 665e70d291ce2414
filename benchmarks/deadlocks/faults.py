"""Faults that occur in a worker. This module does not import torch, since hoptrain's workers import it and run without torch."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.queue.ring import Allocate
from hoptrain.samplers import MiniBatch, NeighborSampler

FANOUTS = [10, 10]
_SENT_S = 0.3  # seconds after which the previous batch has been sent and received
_STRIKE_AT = 4  # a fault occurs at this batch of a process, counted from 1


class Fault:
    """A fault that occurs once, in the first process that makes its fourth batch. A file in ``folder`` records that it occurred."""

    def __init__(self, action: str, folder: str) -> None:
        """Create a fault with an action, a key of ``ACTIONS``."""
        self._act = ACTIONS[action]
        self._mark = Path(folder) / "struck"
        self._calls = 0

    def __call__(self, *_: object) -> None:
        """Count the batch, and run the action at the fourth batch."""
        self._calls += 1
        if self._calls == _STRIKE_AT:
            with suppress(FileExistsError):
                self._mark.touch(exist_ok=False)  # only one process can create the file, so the fault occurs once
                self._act()


def die() -> None:
    """Kill this process with SIGKILL, as Linux does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    """Stop this process with SIGSTOP."""
    os.kill(os.getpid(), signal.SIGSTOP)


def _spin() -> None:
    while True:
        pass


def _raise() -> None:
    raise RuntimeError("simulated failure of the sampler")


def _die_holding(name: str, lock: str) -> None:
    """Acquire the lock ``lock`` of the variable ``name`` in torch's worker loop, and kill this process.

    PyG's and DGL's workers run the same loop.
    """
    time.sleep(_SENT_S)
    frame = sys._getframe()
    while frame.f_code.co_name != "_worker_loop":
        if frame.f_back is None:
            raise RuntimeError(f"{name} is a variable of torch's worker loop, but this process does not run that loop")
        frame = frame.f_back
    getattr(frame.f_locals[name], lock).acquire()
    die()


def two_threads() -> float:
    """Run a parallel region of torch on two OpenMP threads."""
    import torch  # imported here, since hoptrain's workers run without torch

    torch.set_num_threads(2)
    return float((torch.ones(4_000_000) * 2 + 1).sum())


ACTIONS: Mapping[str, Callable[[], object]] = {
    "kill": die,
    "stop": stop,
    "spin": _spin,
    "raise": _raise,
    "event": partial(_die_holding, "done_event", "_cond"),
    "queue": partial(_die_holding, "data_queue", "_wlock"),
    "threads": two_threads,
}


class FaultySampler(NeighborSampler):
    """A neighbour sampler that calls a ``Fault`` before each batch."""

    def __init__(self, action: str, folder: str) -> None:
        """Create a sampler with a fault of this action."""
        super().__init__(FANOUTS)
        self.fault = Fault(action, folder)

    def sample_on_cpu(self, *batch: Any) -> MiniBatch:
        """Call the fault, then sample."""
        self.fault()
        return super().sample_on_cpu(*batch)


class Numbers:
    """A task of ``WorkerPool`` whose batches are plain numbers, and whose process dies once.

    The batch of step s holds the number s a thousand times. The first process that makes the batch of step 7 dies at the moment that ``state`` names.
    """

    def __init__(self, state: str, scratch: Path) -> None:
        """Choose when the process dies: while it is "writing" its slot, or after the slot is "written". A file in ``scratch`` records the death."""
        self.state, self.mark = state, scratch / "died"

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> dict[str, Any]:
        """Write the batch's number into the slot, in two halves."""
        values = allocate([("values", np.dtype(np.int64), (1000,))])["values"]
        values[:500] = step
        self._die_in("writing", step)
        values[500:] = step
        self._die_in("written", step)
        return {}

    def _die_in(self, state: str, step: int) -> None:
        if state == self.state and step == 7 and not self.mark.exists():
            self.mark.touch()
            die()
