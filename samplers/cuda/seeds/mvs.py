"""Minimal variance sampling on a CUDA device: the host draws the seeds, the device samples their neighbourhoods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hoptrain.engine import Address, Graph
from hoptrain.engine.arrays import Array
from hoptrain.engine.device_store import to_device
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.checks import check_bulk_address
from hoptrain.samplers.scratch.workspace import Driver, Workspace
from hoptrain.samplers.seeds.mvs import MVSSampler


class CudaMVS:
    """Samples one graph by one sampler."""

    def __init__(self, graph: Graph, sampler: MVSSampler, workspace: Workspace, inner: Driver) -> None:
        """Take what samples for the sampler within."""
        self.graph, self.sampler, self.stream, self.inner = graph, sampler, workspace.stream, inner

    def start(self, seeds: Sequence[Array], *, seed: int, epoch: int, first_batch: int) -> Callable[[], list[MiniBatch]]:
        """Draw, and queue a bulk; see ``Sampler.start_bulk``."""
        check_bulk_address(seed, epoch, first_batch, len(seeds))
        drawn = [self.sampler.draw(self.graph, some, Address(seed, epoch, first_batch + i)) for i, some in enumerate(seeds)]
        finish = self.inner.start([chosen for chosen, _ in drawn], seed=seed, epoch=epoch, first_batch=first_batch)

        def with_weights(batch: MiniBatch, weights: Array) -> MiniBatch:
            return replace(batch, seed_weights=self.stream.result(to_device(weights, "device", self.stream)))

        return lambda: [with_weights(batch, weights) for batch, (_, weights) in zip(finish(), drawn, strict=True)]
