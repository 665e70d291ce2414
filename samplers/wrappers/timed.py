"""Wrapper of temporal samplers whose loader items are nodes at given times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hoptrain.engine import Address, Dataset, HeteroDataset
from hoptrain.engine.arrays import Array
from hoptrain.samplers.base import HopSampler, Sampler
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.nodewise.temporal import HeteroTemporalSampler, TemporalSampler


class TimedSeeds(Sampler[Any, Any]):
    """A temporal sampler of nodes at given times: the items of a batch are B seeds and then the time of each, (2 B,) integers."""

    by_seeds = False
    distinct_nodes = False

    def __init__(self, sampler: TemporalSampler | HeteroTemporalSampler) -> None:
        """Wrap a temporal sampler."""
        self.sampler = sampler

    @property
    def num_hops(self) -> int:
        """Number of hops of the wrapped sampler."""
        return self.sampler.num_hops

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Raise ``InputError`` if the wrapped sampler cannot sample the data set."""
        self.sampler.check_data(data)

    def prepare(self, graph: Any, seeds: Array) -> TimedSeeds:
        """Return this sampler with the wrapped sampler prepared."""
        self.sampler.prepare(graph, seeds)
        return self

    def sample_on_cpu(self, graph: Any, seeds: Array, address: Address, workspace: Workspace) -> Any:
        """Sample one mini-batch for the items ``seeds`` (2 B,); see ``Sampler.sample_on_cpu``."""
        half = len(seeds) // 2
        return self.sampler.sample_on_cpu(graph, seeds[:half], address, workspace, times=seeds[half:])

    @property
    def hop_sampler(self) -> HopSampler[Any, Any] | None:
        """The ``hop_sampler`` of the wrapped sampler."""
        return self.sampler.hop_sampler

    @property
    def device_sampler(self) -> Sampler[Any, Any]:
        """The wrapped sampler, which takes the times as an option."""
        return self.sampler

    def start_bulk(
        self, graph: Any, seeds: Sequence[Array], *, seed: int, epoch: int, first_batch: int, workspace: Workspace, **options: Any
    ) -> Callable[[], Sequence[Any]]:
        """Queue a bulk of batches, with the times split from the seeds; see ``Sampler.start_bulk``."""
        halves = [len(items) // 2 for items in seeds]
        options["times"] = [items[half:] for items, half in zip(seeds, halves, strict=True)]
        which = [items[:half] for items, half in zip(seeds, halves, strict=True)]
        return self.sampler.start_bulk(graph, which, seed=seed, epoch=epoch, first_batch=first_batch, workspace=workspace, **options)
