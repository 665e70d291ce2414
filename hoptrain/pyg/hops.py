"""Loaders whose batches PyG's own code asks of a sampler.

With workers a batch goes over that code twice. Some steps before, for what it asks of the sampler: its seeds, after PyG has drawn negatives and made
times of it. And as it arrives, for what becomes of the sample. Both times torch's generator starts at the batch's address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.pyg.feed import Fed, without_features
from hoptrain.pyg.sampler import NeighborSampler
from hoptrain.samplers import MiniBatch, Sampler
from hoptrain.samplers.feed.given_feed import Source


class HopFed(Fed):
    """A PyG loader, by inheritance, with a sampler: its ``hops``."""

    transform: Callable[[Any], Any] | None

    @property
    def hops(self) -> NeighborSampler:
        """The sampler."""
        raise NotImplementedError

    @property
    def sampler_and_graph(self) -> tuple[Sampler, Graph]:
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

    def rows(self) -> Array | None:
        """See ``Fed.rows``; none where the user's code may choose other vertices than those that were sampled."""
        return super().rows() if cast(Any, self).transform_sampler_output is None else None

    def assembled(self, index: list[int], source: Source, state: int) -> Any:
        """By PyG's ``collate_fn`` and ``filter_fn``, from seeds, and their times where there are some."""
        loader: Any = self
        batches: list[MiniBatch] = []

        def noted(items: Array) -> MiniBatch:
            batches.append(source(items))
            return batches[-1]

        out = self._collated(index, state, noted)
        if not batches:
            return out  # which nobody sampled: the feed says so
        batch = batches[-1]
        if batch.x is None or len(out.node) != len(batch.node_ids):  # some seeds stand there several times
            return loader.filter_fn(out)
        whole, transform = self.data, self.transform
        self.data, self.transform = without_features(whole), None
        try:
            made = loader.filter_fn(out)
        finally:
            self.data, self.transform = whole, transform
        if "num_nodes" not in whole:
            del made["num_nodes"]
        made.x = batch.to("cpu").x
        return made if transform is None else transform(made)
