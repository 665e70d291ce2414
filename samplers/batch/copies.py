"""Seeds that stand in a batch several times: other libraries' loaders ask for such, where ranks are padded or seeds drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.samplers.batch.minibatch import Block, HeteroMiniBatch, SampledBatch

SomeBatch = TypeVar("SomeBatch", bound=SampledBatch)


class Copies(NamedTuple):
    """Which seed is which.

    Attributes:
        place: (B,) int64, for each seed asked for its number among the distinct ones, which stand in order of first appearance.
        first: (D,) int64, for each distinct one where it stands first.
    """

    place: Array
    first: Array


def distinct(seeds: Array) -> tuple[Array, Copies | None]:
    """The distinct seeds in order of first appearance, and which is which; None where all are distinct."""
    in_order = np.sort(seeds)  # a fraction of the time of what follows
    if (in_order[1:] != in_order[:-1]).all():
        return seeds, None
    values, first, place = np.unique(seeds, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return values[order], Copies(rank[place], first[order])


def distinct_by_type(seeds: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Copies]]:
    """``distinct`` of each type, without those types whose seeds are distinct."""
    found = {kind: distinct(ids) for kind, ids in seeds.items()}
    return {kind: ids for kind, (ids, _) in found.items()}, {kind: copies for kind, (_, copies) in found.items() if copies is not None}


def with_copies(batch: SomeBatch, copies: Mapping[str, Copies]) -> SomeBatch:
    """Return a batch without rows with every seed as often as it was asked for.

    Each copy has the edges of the first one, which alone is a source. ``copies`` are by node type; a homogeneous graph has the type "".
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
    """What becomes of a batch's nodes.

    Attributes:
        old_of: (S + more,) which node each one is.
        new_of: (S,) where each node stands first.
        more: how many there are more.
    """

    old_of: Array
    new_of: Array
    more: int

    @classmethod
    def of(cls, number: int, copies: Copies | None) -> _Nodes:
        """Of ``number`` nodes, the first of which are the distinct seeds."""
        if copies is None:
            return cls(np.arange(number), np.arange(number), 0)
        place, first = copies
        old_of = np.concatenate([place, np.arange(len(first), number)])
        return cls(old_of, np.concatenate([first, np.arange(len(place), len(old_of))]), len(place) - len(first))


def _rows(block: Block, destinations: _Nodes, sources: _Nodes) -> Block:
    """A block with what became of both its sides."""
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
