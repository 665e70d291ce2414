"""Nodes at times as what a loader deals out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hoptrain.engine import Address, Dataset, HeteroDataset
from hoptrain.engine.arrays import Array
from hoptrain.samplers.base import HopSampler, Sampler
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.nodewise.temporal import HeteroTemporalSampler, TemporalSampler


class TimedSeeds(Sampler[Any, Any]):
    """``TemporalSampler``, or ``HeteroTemporalSampler``, for nodes at given times: items are B seeds and then the time of each, (2 B,) integers."""

    by_seeds = False
    distinct_nodes = False

    def __init__(self, sampler: TemporalSampler | HeteroTemporalSampler) -> None:
        """State the sampler."""
        self.sampler = sampler

    @property
    def num_hops(self) -> int:
        """Those of the sampler."""
        return self.sampler.num_hops

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """What the sampler refuses."""
        self.sampler.check_data(data)

    def prepare(self, graph: Any, seeds: Array) -> TimedSeeds:
        """With the graph's columns in the order of time."""
        self.sampler.prepare(graph, seeds)
        return self

    def sample_on_cpu(self, graph: Any, seeds: Array, address: Address, workspace: Workspace) -> Any:
        """Sample one mini-batch for the items ``seeds`` (2 B,); see ``Sampler.sample_on_cpu``."""
        half = len(seeds) // 2
        return self.sampler.sample_on_cpu(graph, seeds[:half], address, workspace, times=seeds[half:])

    @property
    def hop_sampler(self) -> HopSampler[Any, Any] | None:
        """The one of the sampler within."""
        return self.sampler.hop_sampler

    @property
    def device_sampler(self) -> Sampler[Any, Any]:
        """The sampler, which takes the times beside the seeds."""
        return self.sampler

    def start_bulk(
        self, graph: Any, seeds: Sequence[Array], *, seed: int, epoch: int, first_batch: int, workspace: Workspace, **options: Any
    ) -> Callable[[], Sequence[Any]]:
        """See ``Sampler.start_bulk``."""
        halves = [len(items) // 2 for items in seeds]
        options["times"] = [items[half:] for items, half in zip(seeds, halves, strict=True)]
        which = [items[:half] for items, half in zip(seeds, halves, strict=True)]
        return self.sampler.start_bulk(graph, which, seed=seed, epoch=epoch, first_batch=first_batch, workspace=workspace, **options)
