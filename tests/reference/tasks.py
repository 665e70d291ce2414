"""Tasks for the worker pool, importable by worker processes."""

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from hoptrain.engine import InputError
from hoptrain.kernels.machine_code import CACHE_ROOT


class Numbers:
    """A task whose batch (epoch, step) holds 100 * epoch + step, ``sizes[step]`` times; ``actions`` maps steps to faults."""

    def __init__(self, sizes=(10,), actions=None, shared=None):
        self.sizes = sizes
        self.actions = actions or {}
        self.shared = shared

    def make_batch(self, epoch, step, allocate):
        action = self.actions.get(step)
        if action == "raise":
            raise RuntimeError(f"broken at {step}")
        if action == "input":
            raise InputError(f"seed {step} is bad: rule; remedy")
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "hang":
            time.sleep(1000)
        out = allocate([("values", np.dtype(np.int64), (self.sizes[step % len(self.sizes)],)), ("step", np.dtype(np.int32), (1,))])
        out["values"][:] = 100 * epoch + step
        out["step"][:] = step
        heavy = sorted({"torch", "pytorch_lightning", "dgl", "cupy", "torch_geometric"} & set(sys.modules))
        shared = None if self.shared is None else (float(self.shared.sum()), bool(self.shared.flags.writeable))
        return {"pid": os.getpid(), "heavy": heavy, "shared": shared, "cache": str(CACHE_ROOT)}


class Faulty:
    """A task whose batch (epoch, step) holds 100 * epoch + step; ``faults`` maps steps to (state, action) of a worker, once.

    States: "sampling" is before memory is requested, "writing" half-way through it, "written" before the batch is announced. Files in
    ``folder`` record past faults across processes. With ``again`` a fault occurs every time.
    """

    def __init__(self, folder, faults, size=1000, again=False):
        self.folder, self.faults, self.size, self.again = folder, faults, size, again

    def make_batch(self, epoch, step, allocate):
        self._act(epoch, step, "sampling")
        values = allocate([("values", np.dtype(np.int64), (self.size,))])["values"]
        values[: self.size // 2] = 100 * epoch + step
        self._act(epoch, step, "writing")
        values[self.size // 2 :] = 100 * epoch + step
        self._act(epoch, step, "written")
        return {"pid": os.getpid()}

    def _act(self, epoch, step, state):
        at, action = self.faults.get(step, (None, None))
        if at == state and (self.again or _first_time(f"{self.folder}/{epoch}-{step}")):
            ACTIONS[action](self.folder)


def _first_time(path):
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _spin(folder):
    while True:
        pass


def _raise(folder):
    raise RuntimeError("broken once")


def _write_half(folder):
    """Send an incomplete message to the trainer, whose socket is the second argument of the process, and stop."""
    os.write(int(sys.argv[2]), struct.pack("!i", 100) + b"the rest is missing")
    os.kill(os.getpid(), signal.SIGSTOP)


def _start(folder):
    """Start a program and a fork that keep running, and write their ids into the folder."""
    program, fork = subprocess.Popen(["sleep", "300"]), os.fork()
    if fork == 0:
        time.sleep(300)
        os._exit(0)
    unready = Path(folder) / f"unready-{os.getpid()}"
    unready.write_text(f"{program.pid} {fork}")
    unready.rename(unready.with_name(f"started-{os.getpid()}"))


ACTIONS = {
    "half": _write_half,
    "start": _start,
    "kill": lambda folder: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda folder: os.kill(os.getpid(), signal.SIGSEGV),
    "stop": lambda folder: os.kill(os.getpid(), signal.SIGSTOP),
    "exit": lambda folder: os._exit(0),
    "spin": _spin,
    "raise": _raise,
    "sleep": lambda folder: time.sleep(0.05),
}


class Unloadable:
    """An object that can be pickled but not unpickled."""

    def __reduce__(self):
        return (_fail, ())


def _fail():
    raise ImportError("no such sampler here")
