"""Minimal variance sampling on a CUDA device: the host draws the seeds, the device samples their neighbourhoods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from hoptrain.engine import Address, Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.checks import check_bulk_address
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import DeviceSampler, Upload
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.seeds.mvs import MVSSampler


class CudaMVS:
    """Samples one graph by one sampler."""

    def __init__(self, graph: Graph, sampler: MVSSampler, workspace: Workspace, inner: DeviceSampler[MiniBatch]) -> None:
        """Take what samples for the sampler within."""
        self.graph, self.sampler, self.stream, self.inner = graph, sampler, workspace.stream, inner

    def twin(self) -> CudaMVS:
        """See ``DeviceSampler.twin``."""
        other = copy(self)
        other.inner = self.inner.twin()
        return other

    def start(self, seeds: Sequence[Array], *, seed: int, epoch: int, first_batch: int) -> Callable[[], Bulk[MiniBatch]]:
        """Draw, and queue a bulk; see ``Sampler.start_bulk``."""
        check_bulk_address(seed, epoch, first_batch, len(seeds))
        drawn = [self.sampler.draw(self.graph, some, Address(seed, epoch, first_batch + i)) for i, some in enumerate(seeds)]
        beside = {"seed_weights": Upload([own for _, own in drawn], np.float32)}
        finish = self.inner.start([chosen for chosen, _ in drawn], seed=seed, epoch=epoch, first_batch=first_batch, beside=beside)

        def finished() -> Bulk[MiniBatch]:
            batches = finish()
            rows = self.stream.result(self.inner.brought["seed_weights"])
            return batches.map(lambda b, batch: replace(batch, seed_weights=rows[b, : batch.num_seeds]))

        return finished
