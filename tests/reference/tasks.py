"""Tasks for the worker pool, importable by worker processes."""

import os
import signal
import sys
import time

import numpy as np

from hoptrain.engine import InputError


class Numbers:
    """Batch (epoch, step) holds 100 * epoch + step, ``size(step)`` times; ``actions`` lets steps misbehave."""

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
        return {"pid": os.getpid(), "heavy": heavy, "shared": shared}


class Unloadable:
    """Pickles, but cannot be unpickled."""

    def __reduce__(self):
        return (_fail, ())


def _fail():
    raise ImportError("no such sampler here")
