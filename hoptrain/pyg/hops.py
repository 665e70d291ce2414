"""Loaders that run PyG's ``collate_fn``, which calls a sampler.

The seeds of a node loader follow from the indices of a batch, so PyG's code runs once for each batch. In a link loader, that
code draws negatives and times. With workers it therefore runs twice for each batch: a few steps ahead, to find the seeds that the workers are to sample,
and again when the batch arrives. Before both runs torch's generator gets the same seed, which is derived from seed, epoch and batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler.base import SubgraphType

from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.pyg.features import edge_ids_in, feature_names, get_edge_ids, put, without
from hoptrain.pyg.feed import LoaderMixin
from hoptrain.pyg.outputs import put_blocks
from hoptrain.samplers import Sampler
from hoptrain.samplers.loader.external_seeds import BatchSource


class Hops(Protocol):
    """A sampler that PyG's loader code can call."""

    graph: Any
    """Converted graph that is sampled."""
    perm: Any
    """PyG edge id of each CSC position, or None if ids equal positions; for a heterogeneous graph a dict of these by PyG edge type."""
    source: BatchSource | None
    """Function from seeds to a mini-batch. If set, it is called instead of sampling in this process."""

    @property
    def sampler(self) -> Sampler[Any, Any]:
        """Sampler of hoptrain."""

    def graph_name(self, relation: Any) -> Any:
        """Return the edge type of the converted graph for a PyG edge type."""


def _ignored_context(name: str) -> Any:
    """Return a method that replaces one of PyG's context managers for worker processes. It does nothing except warn."""

    @contextmanager
    def ignored(self: Any, *_: Any, **__: Any) -> Iterator[None]:
        """Do nothing except warn: hoptrain's workers do not run torch, and the operating system chooses their cores."""
        warnings.warn(f"ignored: {name} (hoptrain's workers do not run torch, and the operating system chooses their cores)", stacklevel=3)
        yield

    return ignored


class HopLoaderMixin(LoaderMixin):
    """A mixin for PyG loaders whose ``collate_fn`` calls a sampler, ``hops``."""

    transform: Callable[[Any], Any] | None
    enable_cpu_affinity: Any = _ignored_context("enable_cpu_affinity")
    enable_multithreading: Any = _ignored_context("enable_multithreading")
    enable_memory_log: Any = _ignored_context("enable_memory_log")

    @property
    def hops(self) -> Hops:
        """Sampler that PyG's code calls."""
        raise NotImplementedError

    @property
    def knows_items(self) -> bool:
        """False, since PyG's or custom code chooses the seeds."""
        return False

    def items(self, index: list[int]) -> Array:
        """Never called, since ``knows_items`` is False."""
        raise NotImplementedError

    @property
    def sampler_and_graph(self) -> tuple[Sampler[Any, Any], Any]:
        """Prepared sampler, and the graph that it samples."""
        graph = self.hops.graph
        return self.hops.sampler.prepare(graph, np.empty(0, np.int64)), graph

    def _collate(self, index: list[int], state: int, source: BatchSource) -> Any:
        """Run PyG's ``collate_fn`` with torch's generator seeded by ``state`` and with ``source`` as sampler."""
        hops, loader = self.hops, cast(Any, self)
        hops.source = source
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(state)
                return loader.collate_fn(index)
        finally:
            hops.source = None

    def features(self) -> dict[str, Any]:
        """Return the features that workers gather; none with ``transform_sampler_output``, which may choose nodes that were not sampled."""
        return super().features() if cast(Any, self).transform_sampler_output is None else {}

    def edge_ids(self) -> dict[str, Tensor]:
        """Return the PyG edge ids that workers look up; none if a batch may have edges that were not sampled."""
        hops = self.hops
        if cast(Any, self).transform_sampler_output is not None or getattr(hops, "subgraph_type", None) == SubgraphType.bidirectional:
            return {}
        return get_edge_ids(hops.perm, hops.graph_name)

    def assembled(self, index: list[int], source: BatchSource, state: int) -> Any:
        """Return the batch that PyG's ``collate_fn`` and ``filter_fn`` make from the sampled mini-batch."""
        out = self._collate(index, state, source)
        if source.batch is None:
            return out  # without a sampled batch the caller raises an error
        feed, whole = source.on_device, self.data
        if _num_nodes(out.node) != _num_nodes(source.batch.node_ids):  # some seeds occur several times
            made = self._filter(out, whole, self.hops.perm)
            made = made if feed is None else made.to(feed.beside.torch_device)
            return made if self.transform is None else self.transform(made)
        names = feature_names(source.names)
        attributes = None if feed is None else self.attributes(feed, names)
        perm = self._set_edge_ids(out, source)
        made = self._filter(out, without(whole, names) if attributes is None else attributes.rest, perm)
        if attributes is None:
            put(made, whole, source.rows())
        else:
            made = attributes.put(made, out.node, out.edge, source)
        return made if self.transform is None else self.transform(made)

    def _set_edge_ids(self, out: Any, source: BatchSource) -> Any:
        """Replace the CSC positions in ``out.edge`` by PyG edge ids where workers looked them up. Return ``perm`` for the remaining edges."""
        perm, found = self.hops.perm, edge_ids_in(source)
        if not isinstance(perm, dict):
            out.edge = found.get("", out.edge)
            return None if found else perm
        by_type = {relation: relation_name(self.hops.graph_name(relation)) for relation in out.edge}
        out.edge = {relation: found.get(name, out.edge[relation]) for relation, name in by_type.items()}
        return {relation: None if by_type.get(relation) in found else own for relation, own in perm.items()}

    def _filter(self, out: Any, whole: Any, perm: Any) -> Any:
        """Run PyG's ``filter_fn`` on ``whole`` without the transform. ``perm`` maps ``out.edge`` to PyG edge ids."""
        kept = self.data, self.transform, self.hops.perm
        self.data, self.transform, self.hops.perm = whole, None, perm
        try:
            made = cast(Any, self).filter_fn(out)
        finally:
            self.data, self.transform, self.hops.perm = kept
        if cast(Any, self).transform_sampler_output is None:
            put_blocks(made, out)
        return made


class NodeLoaderMixin(HopLoaderMixin):
    """A mixin for PyG loaders whose seeds are nodes that the indices of a batch choose."""

    hops_type: type
    """Class that ``hops`` must have for its ``items_of`` to return the items that PyG's code would request."""

    @property
    def knows_items(self) -> bool:
        """True unless the user overrides the code that turns indices into seeds."""
        return type(self).collate_fn is NodeLoader.collate_fn and type(self.hops) is self.hops_type  # type: ignore[attr-defined]

    def items(self, index: list[int]) -> Array:
        """Return the items (B,) of the nodes that the indices choose."""
        inputs = cast(Any, self).input_data[index]
        found: Array = cast(Any, self.hops).items_of(inputs)
        return found


def _num_nodes(nodes: Any) -> Any:
    """Return the number of nodes, for heterogeneous graphs by node type."""
    return {kind: len(ids) for kind, ids in nodes.items()} if isinstance(nodes, dict) else len(nodes)
