"""Samplers that fail, importable by worker processes and by the command line."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from hoptrain.samplers import NeighborSampler


class Failing(NeighborSampler):
    """A sampler that fails at the batch with index ``batch`` of ``epoch``."""

    def __init__(self, fanouts: list[int], epoch: int = 0, batch: int = 0):
        super().__init__(fanouts)
        self.epoch, self.batch = epoch, batch

    def sample(self, graph, seeds, **address):
        if (address["epoch"], address["batch"]) == (self.epoch, self.batch):
            self.fail()
        return super().sample(graph, seeds, **address)

    def fail(self):
        raise RuntimeError(f"this sampler fails at batch {self.batch}")


class KillingItsRank(Failing):
    """A sampler that kills its rank once, and creates the file ``done`` to record it."""

    def __init__(self, fanouts: list[int], done: str, epoch: int = 0, batch: int = 0):
        super().__init__(fanouts, epoch, batch)
        self.done = done

    def fail(self):
        if not Path(self.done).exists():
            Path(self.done).touch()
            os.kill(os.getppid(), signal.SIGKILL)


class Hanging(KillingItsRank):
    """A sampler that creates the file ``done`` and then hangs."""

    def fail(self):
        Path(self.done).touch()
        time.sleep(1000)


class Floating(NeighborSampler):
    """A sampler whose node ids are floats from the batch with index ``batch`` on."""

    def __init__(self, fanouts: list[int], batch: int = 0):
        super().__init__(fanouts)
        self.batch = batch

    def sample_on_cpu(self, graph, seeds, address, workspace):
        batch = super().sample_on_cpu(graph, seeds, address, workspace)
        return batch if address.batch < self.batch else replace(batch, node_ids=batch.node_ids.astype(np.float64))
