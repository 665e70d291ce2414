"""CUDA driver of samplers that draw their seeds by weight or by gradient norms: the host draws, the device samples the neighbourhoods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from hoptrain.engine import Address, Graph, HeteroGraph
from hoptrain.engine.arrays import Array
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_bulk_address
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import DeviceSampler, Upload
from hoptrain.samplers.wrappers.mvs import MVSSampler
from hoptrain.samplers.wrappers.weighted import WeightedSeedSampler, with_seed_weights


class CudaDrawnSeeds:
    """The driver of ``MVSSampler`` and ``WeightedSeedSampler``, which wraps the driver of the wrapped sampler."""

    def __init__(
        self, graph: Graph | HeteroGraph, sampler: MVSSampler | WeightedSeedSampler, workspace: Workspace, inner: DeviceSampler[Any]
    ) -> None:
        """Keep the driver ``inner`` of the wrapped sampler."""
        self.graph: Any = graph
        self.sampler, self.stream, self.inner = sampler, workspace.stream, inner

    def double_buffer(self) -> CudaDrawnSeeds:
        """Return a second driver for double buffering; see ``DeviceSampler.double_buffer``."""
        other = copy(self)
        other.inner = self.inner.double_buffer()
        return other

    def start(self, seeds: Sequence[Array], *, seed: int, epoch: int, first_batch: int) -> Callable[[], Bulk[Any]]:
        """Draw the seeds, and queue a bulk; see ``Sampler.start_bulk``."""
        check_bulk_address(seed, epoch, first_batch, len(seeds))
        drawn = [self.sampler.draw(self.graph, some, Address(seed, epoch, first_batch + i)) for i, some in enumerate(seeds)]
        further = {"seed_weights": Upload([own for _, own in drawn], np.float32)}
        finish = self.inner.start([chosen for chosen, _ in drawn], seed=seed, epoch=epoch, first_batch=first_batch, further=further)

        def finished() -> Bulk[Any]:
            batches = finish()
            rows = self.stream.result(self.inner.brought["seed_weights"])
            return batches.map(lambda b, batch: with_seed_weights(batch, rows[b, : batch.num_seeds]))

        return finished
