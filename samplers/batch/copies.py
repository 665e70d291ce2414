"""Repeated seeds of a batch, as other libraries' loaders use them to pad ranks or to draw seeds with replacement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.samplers.batch.minibatch import Block, HeteroMiniBatch, SampledBatch

SomeBatch = TypeVar("SomeBatch", bound=SampledBatch)


class Copies(NamedTuple):
    """The mapping between the given seeds of a batch and its distinct seeds, which are in order of first appearance.

    Attributes:
        place: (B,) int64, for each given seed its index among the distinct seeds.
        first: (D,) int64, for each distinct seed the index of its first copy among the given seeds.
    """

    place: Array
    first: Array


def distinct(seeds: Array) -> tuple[Array, Copies | None]:
    """Return the distinct seeds in order of first appearance, and their mapping to the given ones, or None if all are distinct."""
    in_order = np.sort(seeds)  # a sort takes a fraction of the time of np.unique
    if (in_order[1:] != in_order[:-1]).all():
        return seeds, None
    values, first, place = np.unique(seeds, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return values[order], Copies(rank[place], first[order])


def distinct_by_type(seeds: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Copies]]:
    """Return the distinct seeds of each type, and the mappings of the types that have repeated seeds; see ``distinct``."""
    found = {kind: distinct(ids) for kind, ids in seeds.items()}
    return {kind: ids for kind, (ids, _) in found.items()}, {kind: copies for kind, (_, copies) in found.items() if copies is not None}


def with_copies(batch: SomeBatch, copies: Mapping[str, Copies]) -> SomeBatch:
    """Return a batch with every seed repeated as it was given. The batch must not have features or labels yet.

    All copies of a seed have the same edges, and only the first copy is a source. ``copies`` are by node type; a homogeneous graph has the type "".
    """
    nodes = {kind: _Nodes.of(len(ids), copies.get(kind)) for kind, ids in batch.nodes.items()}
    changed = replace(
        batch,
        node_ids=batch.joined({kind: ids[nodes[kind].old_of] for kind, ids in batch.nodes.items()}),
        blocks=tuple(batch.joined({r: _rows(block, nodes[r[2]], nodes[r[0]]) for r, block in hop.items()}) for hop in batch.hops),
        num_seeds=batch.num_seeds + sum(own.more for own in nodes.values()),
        nested=False,
    )
    if not isinstance(changed, HeteroMiniBatch):
        return changed
    return replace(changed, seed_counts={kind: number + nodes[kind].more for kind, number in changed.seed_counts.items()})


class _Nodes(NamedTuple):
    """A mapping from the old to the new local ids of a batch to which copies of seeds are added.

    Attributes:
        old_of: (S + more,) old local id of each node.
        new_of: (S,) new local id of the first copy of each node.
        more: number of added copies.
    """

    old_of: Array
    new_of: Array
    more: int

    @classmethod
    def of(cls, number: int, copies: Copies | None) -> _Nodes:
        """Return the mapping for a batch of ``number`` nodes that begins with its distinct seeds; the identity if ``copies`` is None."""
        if copies is None:
            return cls(np.arange(number), np.arange(number), 0)
        place, first = copies
        old_of = np.concatenate([place, np.arange(len(first), number)])
        return cls(old_of, np.concatenate([first, np.arange(len(place), len(old_of))]), len(place) - len(first))


def _rows(block: Block, destinations: _Nodes, sources: _Nodes) -> Block:
    """Return a block with the new local ids of its destinations and sources."""
    old_of = destinations.old_of[: block.num_dst + destinations.more]
    begins, degrees = block.indptr[:-1][old_of].astype(np.int64), np.diff(block.indptr)[old_of]
    ends = np.cumsum(degrees, dtype=np.int64)
    edges = np.arange(degrees.sum()) + np.repeat(begins - (ends - degrees), degrees)
    return Block(
        indptr=np.concatenate([[0], ends]),
        indices=sources.new_of[block.indices[edges]],
        edge_ids=block.edge_ids[edges],
        num_src=block.num_src + sources.more,
        weights=None if block.weights is None else block.weights[edges],
    )
