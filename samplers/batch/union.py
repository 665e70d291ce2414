"""Conversion of the blocks of a mini-batch into one graph, in torch tensors on any device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from hoptrain.engine import InputError

if TYPE_CHECKING:
    import torch


class Union(NamedTuple):
    """The union of the edges of all hops, hop after hop from the seeds outward, as ``hoptrain.samplers.batch.convert.to_pyg`` defines it."""

    edge_index: torch.Tensor
    """(2, M) int64 local ids, sources above destinations."""
    places: torch.Tensor
    """(M,) int64 CSC positions of the edges in the graph's ``indices``."""
    weights: torch.Tensor | None
    """(M,) float32 weights of the edges, or None."""
    counts: list[int]
    """For each hop, the number of edges of the union that it adds to those of the previous hops."""
    edge_attr: torch.Tensor | None
    """(M, D) edge features, or None."""


def union_of(batch: Any, relation: tuple[str, str, str]) -> Union:
    """Return the union of the edges of a relation over all hops of a batch of tensors.

    Raises:
        InputError: only some of the blocks have weights, or pairs of nodes are not edges of the graph.
    """
    import torch

    blocks, node_ids, nested = [hop[relation] for hop in reversed(batch.hops)], batch.nodes[relation[2]], batch.nested
    counts = [block.num_edges for block in blocks]
    blocks = blocks[-1:] if nested else blocks
    none = torch.zeros((2, 0), dtype=torch.int64, device=node_ids.device)
    edge_index = torch.cat([none, *(block.edge_index() for block in blocks)], dim=1)
    places = torch.cat([none[0], *(block.edge_ids.long() for block in blocks)])
    if (places < 0).any():
        raise InputError(
            "the batch's pairs are not edges of the graph (their edge ids are -1): PyG's Data needs edge ids to tell pairs apart; use the blocks"
        )
    weights = _weights(len(node_ids), blocks, edge_index[1])
    edge_attr = torch.cat([block.edge_attr for block in blocks]) if blocks and blocks[0].edge_attr is not None else None
    if nested or len(blocks) < 2 or batch.repeats_edges:
        return Union(edge_index, places, weights, [counts[0], *(b - a for a, b in pairwise(counts))] if nested else counts, edge_attr)
    of_hop = torch.tensor([block.num_edges for block in blocks], device=places.device)
    hops = torch.repeat_interleave(torch.arange(len(blocks), device=places.device), of_hop, output_size=len(places))
    # If seeds have trees of their own, an edge of the graph may connect several pairs of nodes.
    first, edge_of = _distinct(places * len(node_ids) + edge_index[1], hops)
    if weights is not None:
        weights = weights.new_zeros(len(first)).index_add_(0, edge_of, weights)
    counts = torch.bincount(hops[first], minlength=len(blocks)).tolist()
    return Union(edge_index[:, first], places[first], weights, counts, None if edge_attr is None else edge_attr[first])


def _weights(num_nodes: int, blocks: Sequence[Any], destinations: torch.Tensor) -> torch.Tensor | None:
    """Return the weights (M,) of the edges of all hops, divided by the number of hops that expanded the destination of the edge; None without weights."""
    import torch

    has_weights = {block.weights is not None for block in blocks}
    if len(has_weights) == 2:
        raise InputError(
            "some of the batch's blocks have weights and some have none: one graph needs weights for all its edges or none; use the blocks"
        )
    if has_weights != {True}:
        return None
    weights = torch.cat([block.weights for block in blocks])
    if len(blocks) == 1:
        return weights
    expanded = weights.new_zeros(num_nodes)
    for block in blocks:
        expanded[: block.num_dst] += 1
    return weights / expanded[destinations]


def _distinct(pairs: torch.Tensor, hops: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the union of the draws of all hops; repeated draws within a hop stay separate edges.

    Args:
        pairs: (N,) int64 keys of the draws, equal for draws of the same edge.
        hops: (N,) hop of each draw, ascending.

    Returns:
        (M,) the first draw of each edge of the union, ascending, and (N,) the edge of each draw.
    """
    import torch

    order = torch.argsort(pairs, stable=True)
    pair, hop = pairs[order], hops[order]
    places = torch.arange(len(pairs), device=pairs.device)
    is_new = torch.ones_like(pair, dtype=torch.bool)
    is_new[1:] = (pair[1:] != pair[:-1]) | (hop[1:] != hop[:-1])
    number = places - torch.where(is_new, places, 0).cummax(0).values  # index of each draw among the draws of the same pair in the same hop
    is_new[1:] = pair[1:] != pair[:-1]
    _, edge = torch.unique((is_new.cumsum(0) - 1) * (len(pairs) + 1) + number, return_inverse=True)
    edge_of = torch.empty_like(edge).scatter_(0, order, edge)
    first = torch.full_like(places[: int(edge.max()) + 1 if len(edge) else 0], len(pairs)).scatter_reduce_(0, edge_of, places, "amin")
    first, by_first = first.sort()
    rank = torch.empty_like(by_first).scatter_(0, by_first, torch.arange(len(first), device=pairs.device))
    return first, rank[edge_of]
