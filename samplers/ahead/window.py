"""The batches of some steps, grown together: each hop's vertices of all of them are asked for at once, and what they drew becomes edges and new nodes.

A draw's address is (seed, epoch, batch, hop, vertex, draw), so a vertex's draws have the same bits wherever its column is. They are put into the order of
the vertices that asked, so nodes get the local ids that they have where one process samples, and batches are equal to the bit to those of ``Sampler.sample``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from hoptrain.engine import Address, Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.samplers.ahead.draws import Asked, Drawn, Draws
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, batch_of_hops, nested_blocks
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.workspace import Workspace


@dataclass(eq=False, slots=True)
class _Growing:
    """A batch in the making: its nodes, its edges with local sources hop by hop, and the node from which on the next hop expands."""

    address: Address
    frontier: Frontier
    num_seeds: int
    first: int = 0
    hops: list[Drawn] = field(default_factory=list)
    num_src: list[int] = field(default_factory=list)


def grow_together(
    sampler: Any, graph: Graph, batches: Sequence[tuple[Array, Address]], draws: Draws, workspace: Workspace
) -> list[MiniBatch]:
    """Sample batches.

    Args:
        sampler: one with ``can_be_drawn``.
        graph: of which nothing is looked at but how many vertices there are, and of what dtype ids are.
        batches: seeds (B,) of each batch, distinct vertices of the graph, with its address.
        draws: is asked once for each hop, for all batches.
        workspace: scratch memory.

    Returns:
        The batches, whose arrays are their own; edges are named as ``draws`` does.

    Raises:
        InputError: as ``Sampler.sample``, and as ``draws``.
    """
    growing = [_started(graph, seeds, address, workspace, f"nodes{k}") for k, (seeds, address) in enumerate(batches)]
    for hop in range(sampler.num_hops):
        drawn = draws(hop, [Asked(sampler, batch.frontier.nodes()[batch.first :], batch.address, hop) for batch in growing])
        for batch, own in zip(growing, drawn, strict=True):
            _grow(batch, own, sampler.expand)
    return [sampler.addressed(_finished(batch, sampler.expand), batch.address) for batch in growing]


def _started(graph: Graph, seeds: Array, address: Address, workspace: Workspace, name: str) -> _Growing:
    seeds = check_seeds(graph, seeds)
    frontier = Frontier(workspace, workspace.table, graph.num_nodes, graph.indices.dtype, name)
    frontier.enter_seeds(seeds)
    return _Growing(address, frontier, len(seeds))


def _grow(batch: _Growing, drawn: Drawn, expand: str) -> None:
    """Take a hop's draws; their sources become nodes."""
    known = batch.frontier.num_nodes
    batch.frontier.forget(known)  # the batches of a window share a table
    batch.frontier.relabel(drawn.sources)
    batch.hops.append(drawn)
    batch.num_src.append(batch.frontier.num_nodes)
    batch.first = known if expand == "new" else 0


def _finished(batch: _Growing, expand: str) -> MiniBatch:
    """A block for each hop; where hops expand new vertices alone, their columns go on one behind another in a single one."""
    nodes, hops = batch.frontier.nodes().copy(), batch.hops
    if expand == "all":
        return batch_of_hops(nodes, [_block(hop, n) for hop, n in zip(hops, batch.num_src, strict=True)], batch.num_seeds)
    starts = accumulate((hop.indptr[-1] for hop in hops), initial=0)
    whole = Drawn(
        np.concatenate([[0], *(start + hop.indptr[1:] for start, hop in zip(starts, hops, strict=False))]),
        np.concatenate([hop.edge_ids for hop in hops]),
        np.concatenate([hop.sources for hop in hops]),
    )
    blocks = nested_blocks(_block(whole, batch.num_src[-1]), batch.num_src[::-1], batch.num_seeds)
    return MiniBatch(node_ids=nodes, blocks=blocks, num_seeds=batch.num_seeds, nested=True)


def _block(hop: Drawn, num_src: int) -> Block:
    indptr = hop.indptr.astype(id_dtype(len(hop.sources) + 1))
    return Block(indptr=indptr, indices=hop.sources, edge_ids=hop.edge_ids, num_src=num_src, weights=hop.weights)
