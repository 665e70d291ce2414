"""Loaders whose batches PyG's own code asks of a sampler.

With workers a batch goes over that code twice. Some steps before, for what it asks of the sampler: its seeds, after PyG has drawn negatives and made
times of it. And as it arrives, for what becomes of the sample. Both times torch's generator starts at the batch's address.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

import numpy as np
import torch

from hoptrain.pyg.features import put, without
from hoptrain.pyg.feed import Fed
from hoptrain.samplers import Sampler
from hoptrain.samplers.feed.given_feed import Source


class Hops(Protocol):
    """What PyG's code asks for samples."""

    graph: Any
    """What is sampled."""
    source: Source | None
    """In place of sampling here and now."""

    @property
    def sampler(self) -> Sampler[Any, Any]:
        """Hoptrain's algorithm."""


def _without_meaning(name: str) -> Any:
    """In place of one of PyG's contexts for its worker processes."""

    @contextmanager
    def nothing(self: Any, *_: Any, **__: Any) -> Iterator[None]:
        """Nothing: hoptrain's workers run no torch, and the system chooses their cores; a warning says so."""
        warnings.warn(f"without meaning here: {name}; hoptrain's workers run no torch, and the system chooses their cores", stacklevel=3)
        yield

    return nothing


class HopFed(Fed):
    """A PyG loader, by inheritance, with a sampler: its ``hops``."""

    transform: Callable[[Any], Any] | None
    enable_cpu_affinity: Any = _without_meaning("enable_cpu_affinity")
    enable_multithreading: Any = _without_meaning("enable_multithreading")
    enable_memory_log: Any = _without_meaning("enable_memory_log")

    @property
    def hops(self) -> Hops:
        """The sampler."""
        raise NotImplementedError

    @property
    def sampler_and_graph(self) -> tuple[Sampler[Any, Any], Any]:
        """What is sampled by what."""
        graph = self.hops.graph
        return self.hops.sampler.prepare(graph, np.empty(0, np.int64)), graph

    def _collated(self, index: list[int], state: int, source: Source) -> Any:
        """PyG's ``collate_fn``, with what it draws by torch's generator at ``state``, and what it samples from ``source``."""
        hops, loader = self.hops, cast(Any, self)
        hops.source = source
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(state)
                return loader.collate_fn(index)
        finally:
            hops.source = None

    def features(self) -> dict[str, Any]:
        """See ``Fed.features``; none where the user's code may choose other vertices than those that were sampled."""
        return super().features() if cast(Any, self).transform_sampler_output is None else {}

    def assembled(self, index: list[int], source: Source, state: int) -> Any:
        """By PyG's ``collate_fn`` and ``filter_fn``, from seeds, and their times where there are some."""
        loader: Any = self
        out = self._collated(index, state, source)
        if source.batch is None:
            return out  # which nobody sampled: the feed says so
        if not source.names or _numbers(out.node) != _numbers(source.batch.node_ids):  # some seeds stand there several times
            return loader.filter_fn(out)
        whole, transform = self.data, self.transform
        self.data, self.transform = without(whole, source.names), None
        try:
            made = loader.filter_fn(out)
        finally:
            self.data: Any = whole
            self.transform = transform
        put(made, whole, source.rows())
        return made if transform is None else transform(made)


def _numbers(nodes: Any) -> Any:
    """How many nodes there are, of each type where these have types."""
    return {kind: len(ids) for kind, ids in nodes.items()} if isinstance(nodes, dict) else len(nodes)
