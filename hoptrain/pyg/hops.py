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
from torch import Tensor
from torch_geometric.sampler.base import SubgraphType

from hoptrain.engine.hetero_graph import relation_name
from hoptrain.pyg.features import names_of, numbers_in, numbers_of, put, without
from hoptrain.pyg.feed import Fed
from hoptrain.samplers import Sampler
from hoptrain.samplers.loader.given import Source


class Hops(Protocol):
    """What PyG's code asks for samples."""

    graph: Any
    """What is sampled."""
    perm: Any
    """The user's numbers of its edges, None where they are the same; or these by edge type."""
    source: Source | None
    """In place of sampling here and now."""

    @property
    def sampler(self) -> Sampler[Any, Any]:
        """Hoptrain's algorithm."""

    def own_name(self, relation: Any) -> Any:
        """What the graph calls one of the user's edge types."""


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
        """See ``Fed.features``; none where the user's code may choose other nodes than those that were sampled."""
        return super().features() if cast(Any, self).transform_sampler_output is None else {}

    def numbers(self) -> dict[str, Tensor]:
        """See ``Fed.numbers``; none where a batch has other edges than those that were sampled."""
        hops = self.hops
        if cast(Any, self).transform_sampler_output is not None or getattr(hops, "subgraph_type", None) == SubgraphType.bidirectional:
            return {}
        return numbers_of(hops.perm, hops.own_name)

    def assembled(self, index: list[int], source: Source, state: int) -> Any:
        """By PyG's ``collate_fn`` and ``filter_fn``, from seeds, and their times where there are some."""
        out = self._collated(index, state, source)
        if source.batch is None:
            return out  # which nobody sampled: the feed says so
        feed, whole = source.on_device, self.data
        if _numbers(out.node) != _numbers(source.batch.node_ids):  # some seeds stand there several times
            made = self._filtered(out, whole, self.hops.perm)
            made = made if feed is None else made.to(feed.beside.torch_device)
            return made if self.transform is None else self.transform(made)
        names = names_of(source.names)
        attributes = None if feed is None else self.attributes(feed, names)
        perm = self._numbered(out, source)
        made = self._filtered(out, without(whole, names) if attributes is None else attributes.rest, perm)
        if attributes is None:
            put(made, whole, source.rows())
        else:
            made = attributes.put(made, out.node, out.edge, source)
        return made if self.transform is None else self.transform(made)

    def _numbered(self, out: Any, source: Source) -> Any:
        """Give the edges the user's numbers where these were looked up; returns what is left to look up, as ``perm``."""
        perm, found = self.hops.perm, numbers_in(source)
        if not isinstance(perm, dict):
            out.edge = found.get("", out.edge)
            return None if found else perm
        by_type = {relation: relation_name(self.hops.own_name(relation)) for relation in out.edge}
        out.edge = {relation: found.get(name, out.edge[relation]) for relation, name in by_type.items()}
        return {relation: None if by_type.get(relation) in found else own for relation, own in perm.items()}

    def _filtered(self, out: Any, whole: Any, perm: Any) -> Any:
        """PyG's ``filter_fn`` without the transform: the batch of ``whole``, with the numbers of edges that ``perm`` says."""
        kept = self.data, self.transform, self.hops.perm
        self.data, self.transform, self.hops.perm = whole, None, perm
        try:
            return cast(Any, self).filter_fn(out)
        finally:
            self.data, self.transform, self.hops.perm = kept


def _numbers(nodes: Any) -> Any:
    """How many nodes there are, of each type where these have types."""
    return {kind: len(ids) for kind, ids in nodes.items()} if isinstance(nodes, dict) else len(nodes)
