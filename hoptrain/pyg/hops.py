"""Loaders whose batches PyG's own code asks of a sampler.

An epoch goes over that code twice. Before it, for what each batch asks of the sampler: its seeds, after PyG has drawn negatives and made times
of it. And batch by batch as they arrive, for what becomes of the sample. Both times torch's generator starts at the batch's address.
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
        return self.hops.sampler, self.hops.graph

    def asked(self, index: list[int], state: int) -> Array:
        """Seeds, and their times where there are some."""

        def ask(items: Array) -> MiniBatch:
            raise _Asked(items)

        try:
            self._collated(index, state, ask)
        except _Asked as asked:
            return asked.items
        return np.empty(0, np.int64)

    def _collated(self, index: list[int], state: int, source: Callable[[Array], MiniBatch]) -> Any:
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

    def assembled(self, index: list[int], batch: MiniBatch, state: int) -> Any:
        """By PyG's ``collate_fn`` and ``filter_fn``."""
        loader: Any = self
        out = self._collated(index, state, lambda _: batch)
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


class _Asked(Exception):
    """What a batch asks of the sampler."""

    def __init__(self, items: Array) -> None:
        """Note the items."""
        super().__init__()
        self.items = items
