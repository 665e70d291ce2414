"""The batches of some steps, grown together: each hop's vertices of all of them are asked for at once, and what they drew becomes edges and new nodes.

A draw's address is (seed, epoch, batch, hop, vertex, draw), so a vertex's draws have the same bits wherever its column is. They are put into the order of
the vertices that asked, so nodes get the local ids that they have where one process samples, and batches are equal to the bit to those of ``Sampler.sample``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from hoptrain.engine import Address, Graph, HeteroGraph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.hetero_graph import Relation
from hoptrain.samplers.ahead.draws import Asked, Drawn, Draws
from hoptrain.samplers.ahead.relations import ONLY, along, types_of
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch, nested_hops
from hoptrain.samplers.batch.minibatch import Block, MiniBatch
from hoptrain.samplers.checks import check_seeds
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
        hops: what each hop drew, by relation, with local sources.
    """

    address: Address
    seeds: TypedSeeds
    frontiers: Mapping[str, Frontier]
    counts: list[dict[str, int]]
    hops: list[dict[Relation, Drawn]] = field(default_factory=list)

    def expanded(self, kind: str, expand: str) -> Array:
        """The nodes of a type that a hop expands."""
        first = self.counts[-2][kind] if expand == "new" and len(self.counts) > 1 else 0
        return self.frontiers[kind].nodes()[first : self.counts[-1][kind]]

    def take(self, relation: Relation, drawn: Drawn) -> None:
        """Take a hop's draws along a relation; their sources become nodes."""
        frontier = self.frontiers[relation[0]]
        frontier.forget(frontier.num_nodes)  # the batches of a window share a table
        frontier.relabel(drawn.sources)
        self.hops[-1][relation] = drawn

    def count(self) -> None:
        """A hop ends."""
        self.counts.append({kind: frontier.num_nodes for kind, frontier in self.frontiers.items()})

    def blocks(self, expand: str) -> tuple[dict[Relation, Block], ...]:
        """Those of each hop, as a batch has them; where hops expand new vertices alone, their columns go on one behind another in a single one."""
        if expand == "new":
            joined = {relation: _joined([hop[relation] for hop in self.hops]) for relation in self.hops[0]}
            return nested_hops(_blocks(joined, self.counts[-1]), self.counts)
        return tuple(map(_blocks, self.hops, self.counts[1:]))[::-1]


def grow_together(
    sampler: Any,
    graph: Graph | HeteroGraph,
    batches: Sequence[tuple[Array, Address]],
    draws: Mapping[Relation, Draws],
    workspace: Workspace,
) -> list[Any]:
    """Sample batches.

    Args:
        sampler: one with ``can_be_grown``.
        graph: of which nothing is looked at but how many vertices there are, and of what dtype ids are.
        batches: seeds (B,) of each batch, distinct vertices of the graph, with its address.
        draws: of each relation, in their order, what is asked once for each hop, for all batches; of a plain graph that of ``ONLY``.
        workspace: scratch memory.

    Returns:
        The batches, whose arrays are their own; edges are named as ``draws`` does.

    Raises:
        InputError: as ``Sampler.sample``, and as ``draws``.
    """
    samplers, expand = along(sampler, graph), sampler.expand
    growing = [_started(sampler, graph, seeds, address, workspace, k) for k, (seeds, address) in enumerate(batches)]
    for hop in range(sampler.num_hops):
        for batch in growing:
            batch.hops.append({})
        for number, (relation, own) in enumerate(samplers.items()):
            asked = [Asked(own, batch.expanded(relation[2], expand), batch.address, hop, number) for batch in growing]
            for batch, drawn in zip(growing, draws[relation](hop, asked), strict=True):
                batch.take(relation, drawn)
        for batch in growing:
            batch.count()
    return [sampler.addressed(_finished(batch, graph, expand), batch.address) for batch in growing]


def _started(sampler: Any, graph: Graph | HeteroGraph, seeds: Array, address: Address, workspace: Workspace, number: int) -> _Growing:
    if isinstance(graph, HeteroGraph):
        asked = sampler.seeds_of(graph, seeds)
    else:
        checked = check_seeds(graph, seeds)
        asked = TypedSeeds("", {"": (checked, checked)}, len(checked))
    frontiers = {}
    for kind, layout in types_of(graph).items():
        table = workspace.table_of(kind) if isinstance(graph, HeteroGraph) else workspace.table
        frontiers[kind] = frontier = Frontier(workspace, table, *layout, f"nodes{number}.{kind}")
        frontier.enter_seeds(asked.by_type[kind][0] if kind in asked.by_type else np.zeros(0, np.int64))
    batch = _Growing(address, asked, frontiers, [])
    batch.count()
    return batch


def _finished(batch: _Growing, graph: Graph | HeteroGraph, expand: str) -> MiniBatch | HeteroMiniBatch:
    nodes = {kind: frontier.nodes().copy() for kind, frontier in batch.frontiers.items()}
    blocks, nested, num_seeds = batch.blocks(expand), expand == "new", batch.seeds.number
    if isinstance(graph, HeteroGraph):
        counts, kind = batch.counts[0], batch.seeds.kind
        return HeteroMiniBatch(node_ids=nodes, blocks=blocks, seed_counts=counts, seed_type=kind, num_seeds=num_seeds, nested=nested)
    return MiniBatch(node_ids=nodes[""], blocks=tuple(hop[ONLY] for hop in blocks), num_seeds=num_seeds, nested=nested)


def _joined(hops: Sequence[Drawn]) -> Drawn:
    """The columns of each hop behind those of the one before."""
    starts = accumulate((hop.indptr[-1] for hop in hops), initial=0)
    return Drawn(
        np.concatenate([[0], *(start + hop.indptr[1:] for start, hop in zip(starts, hops, strict=False))]),
        np.concatenate([hop.edge_ids for hop in hops]),
        np.concatenate([hop.sources for hop in hops]),
    )


def _blocks(hop: Mapping[Relation, Drawn], num_nodes: Mapping[str, int]) -> dict[Relation, Block]:
    """Of what was drawn, with so many nodes of each type."""
    made = {}
    for (source, name, kind), own in hop.items():
        indptr, num_src = own.indptr.astype(id_dtype(len(own.sources) + 1)), num_nodes[source]
        made[source, name, kind] = Block(indptr=indptr, indices=own.sources, edge_ids=own.edge_ids, num_src=num_src, weights=own.weights)
    return made
