"""Seeds that stand in a batch several times: other libraries' loaders ask for such, where ranks are padded or seeds drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.samplers.batch.minibatch import Block, MiniBatch


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
    values, first, place = np.unique(seeds, return_index=True, return_inverse=True)
    if len(values) == len(seeds):
        return seeds, None
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return values[order], Copies(rank[place], first[order])


def with_copies(batch: MiniBatch, copies: Copies) -> MiniBatch:
    """With every seed as often as it was asked for: each copy has the edges of the first one, which alone is a source."""
    place, first = copies
    old_of = np.concatenate([place, np.arange(len(first), len(batch.node_ids))])
    new_of = np.concatenate([first, np.arange(len(place), len(old_of))])
    more = len(place) - len(first)
    return replace(
        batch,
        node_ids=batch.node_ids[old_of],
        x=None if batch.x is None else batch.x[old_of],
        blocks=tuple(_rows(block, old_of[: block.num_dst + more], new_of) for block in batch.blocks),
        num_seeds=len(place),
        nested=False,
    )


def _rows(block: Block, old_of: Array, new_of: Array) -> Block:
    """The rows ``old_of`` (N,) of a block, with ``new_of`` each source in its place."""
    begins, degrees = block.indptr[:-1][old_of].astype(np.int64), np.diff(block.indptr)[old_of]
    ends = np.cumsum(degrees, dtype=np.int64)
    edges = np.arange(degrees.sum()) + np.repeat(begins - (ends - degrees), degrees)
    return Block(
        indptr=np.concatenate([[0], ends]),
        indices=new_of[block.indices[edges]],
        edge_ids=block.edge_ids[edges],
        num_src=block.num_src + len(old_of) - block.num_dst,
        weights=None if block.weights is None else block.weights[edges],
    )
