"""The batches of some steps, grown together: each hop's vertices of all of them are asked for at once, and what they drew becomes edges and new nodes.

A draw's address is (seed, epoch, batch, hop, vertex, draw), so a vertex's draws have the same bits wherever its column is. They are put into the order of
the vertices that asked, so nodes get the local ids that they have where one process samples, and batches are equal to the bit to those of ``Sampler.sample``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from hoptrain.engine import Address, Graph, HeteroGraph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.hetero_graph import Relation
from hoptrain.kernels.cpu.nodewise.temporal import split_keys
from hoptrain.kernels.shared.temporal import TREE_SHIFT
from hoptrain.samplers.ahead.draws import Asked, Drawn, Draws
from hoptrain.samplers.ahead.relations import along, columns_of, is_timed, types_of
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch, nested_hops
from hoptrain.samplers.batch.minibatch import ONLY, Block, MiniBatch
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.nodewise.hetero_labor import OneLabor
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.typed import TypedSeeds


@dataclass(eq=False, slots=True)
class _Growing:
    """A batch in the making.

    Attributes:
        address: of its draws.
        seeds: the seeds by type.
        frontiers: the nodes of each type.
        counts: how many these were before each hop, and are.
        bounds: (B,) int64 of samplers of times: what bounds the edges of each seed's tree. The nodes are keys then.
        hops: what each hop drew, by relation, with local sources.
    """

    address: Address
    seeds: TypedSeeds
    frontiers: Mapping[str, Frontier]
    counts: list[dict[str, int]]
    bounds: Array | None = None
    hops: list[dict[Relation, Drawn]] = field(default_factory=list)

    def asks(self, own: Any, relation: Relation, number: int, hop: int, expand: str) -> Asked:
        """What a hop asks of the relation with a number, which ``own`` draws along."""
        kind = relation[2]
        first = self.counts[-2][kind] if expand == "new" and len(self.counts) > 1 else 0
        nodes = self.frontiers[kind].nodes()[first : self.counts[-1][kind]]
        return Asked(own, nodes, self.address, hop, own.number if isinstance(own, OneLabor) else number, first, self.bounds)

    def take(self, relation: Relation, drawn: Drawn) -> None:
        """Take a hop's draws along a relation; their sources become nodes."""
        frontier = self.frontiers[relation[0]]
        frontier.forget(frontier.num_nodes)  # the batches of a window share a table
        frontier.relabel(drawn.sources)
        self.hops[-1][relation] = drawn

    def count(self) -> None:
        """A hop ends."""
        self.counts.append({kind: frontier.num_nodes for kind, frontier in self.frontiers.items()})

    def blocks(self, graph: Graph | HeteroGraph, expand: str) -> tuple[dict[Relation, Block], ...]:
        """Those of each hop, as a batch has them; where hops expand new vertices alone, their columns go on one behind another in a single one."""
        if expand == "new":
            joined = {relation: _joined([hop[relation] for hop in self.hops]) for relation in self.hops[0]}
            return nested_hops(_blocks(graph, joined, self.counts[-1]), self.counts)
        return tuple(map(partial(_blocks, graph), self.hops, self.counts[1:]))[::-1]


def grow_together(
    sampler: Any,
    graph: Graph | HeteroGraph,
    batches: Sequence[tuple[Array, Address] | tuple[Array, Address, Array | None]],
    draws: Mapping[Relation, Draws],
    workspace: Workspace,
) -> list[Any]:
    """Sample batches.

    Args:
        sampler: one with ``can_be_grown``.
        graph: of which nothing is looked at but how many vertices there are, and of what dtype ids are.
        batches: seeds (B,) of each batch, as of ``Sampler.sample``, with its address, and of samplers of times maybe the seeds' times (B,).
        draws: of each relation, in their order, what is asked once for each hop, for all batches; of a plain graph that of ``ONLY``.
        workspace: scratch memory.

    Returns:
        The batches, whose arrays are their own; edges are named as ``draws`` does.

    Raises:
        InputError: as ``Sampler.sample``, and as ``draws``.
    """
    samplers, expand = along(sampler, graph), sampler.expand
    growing = [_started(sampler, graph, k, workspace, *batch) for k, batch in enumerate(batches)]
    for hop in range(sampler.num_hops):
        for batch in growing:
            batch.hops.append({})
        for number, (relation, own) in enumerate(samplers.items()):
            asked = [batch.asks(own, relation, number, hop, expand) for batch in growing]
            for batch, drawn in zip(growing, draws[relation](hop, asked), strict=True):
                batch.take(relation, drawn)
        for batch in growing:
            batch.count()
    return [sampler.addressed(_finished(batch, graph, expand), batch.address) for batch in growing]


def _started(
    sampler: Any, graph: Graph | HeteroGraph, number: int, workspace: Workspace, seeds: Array, address: Address, times: Array | None = None
) -> _Growing:
    bounds = None
    if is_timed(sampler):
        seeds, bounds = sampler.seeds_and_bounds(graph, seeds, times)
    elif isinstance(graph, HeteroGraph):
        seeds = sampler.seeds_of(graph, seeds)
    else:
        seeds = check_seeds(graph, seeds)
    asked = seeds if isinstance(seeds, TypedSeeds) else TypedSeeds("", {"": (seeds, np.arange(len(seeds)))}, len(seeds))
    frontiers = {}
    for kind, layout in types_of(graph).items():
        table = workspace.table_of(kind) if isinstance(graph, HeteroGraph) else workspace.table
        ids, places = asked.by_type.get(kind, (np.zeros(0, np.int64),) * 2)
        if bounds is not None:
            ids, layout = (places.astype(np.int64) << TREE_SHIFT) | ids.astype(np.int64), (1 << 63, np.int64)
        frontiers[kind] = Frontier(workspace, table, *layout, f"nodes{number}.{kind}")
        frontiers[kind].enter_seeds(ids)
    batch = _Growing(address, asked, frontiers, [], bounds)
    batch.count()
    return batch


def _finished(batch: _Growing, graph: Graph | HeteroGraph, expand: str) -> MiniBatch | HeteroMiniBatch:
    nodes, extra = {kind: frontier.nodes().copy() for kind, frontier in batch.frontiers.items()}, dict[str, Array]()
    if batch.bounds is not None:
        for kind, (_, dtype) in types_of(graph).items():
            keys, trees = nodes[kind], np.empty(len(nodes[kind]), np.int32)
            nodes[kind] = np.empty(len(keys), dtype)
            split_keys(keys, nodes[kind], trees)
            extra[f"trees.{kind}" if kind else "trees"] = trees
        extra["seed_times"] = batch.bounds
    blocks = batch.blocks(graph, expand)
    own: dict[str, Any] = {"num_seeds": batch.seeds.number, "nested": expand == "new", "extra": extra}
    if isinstance(graph, HeteroGraph):
        return HeteroMiniBatch(node_ids=nodes, blocks=blocks, seed_counts=batch.counts[0], seed_type=batch.seeds.kind, **own)
    return MiniBatch(node_ids=nodes[""], blocks=tuple(hop[ONLY] for hop in blocks), **own)


def _joined(hops: Sequence[Drawn]) -> Drawn:
    """The columns of each hop behind those of the one before."""
    starts = accumulate((hop.indptr[-1] for hop in hops), initial=0)
    return Drawn(
        np.concatenate([[0], *(start + hop.indptr[1:] for start, hop in zip(starts, hops, strict=False))]),
        np.concatenate([hop.edge_ids for hop in hops]),
        np.concatenate([hop.sources for hop in hops]),
    )


def _blocks(graph: Graph | HeteroGraph, hop: Mapping[Relation, Drawn], num_nodes: Mapping[str, int]) -> dict[Relation, Block]:
    """Of what was drawn, with so many nodes of each type; sources that were keys become as narrow as ids."""
    made = {}
    for relation, columns in columns_of(graph).items():
        own, num_src = hop[relation], num_nodes[relation[0]]
        indptr, sources = own.indptr.astype(id_dtype(len(own.sources) + 1)), own.sources.astype(columns.indices.dtype, copy=False)
        made[relation] = Block(indptr=indptr, indices=sources, edge_ids=own.edge_ids, num_src=num_src, weights=own.weights)
    return made
