"""The batches of some steps, grown in lockstep: each hop's nodes of all of them are asked for at once, and what they drew becomes edges and new nodes.

A draw's address is (seed, epoch, batch, hop, node, draw), so a node's draws have the same bits wherever its column is. They are put into the order of
the nodes that asked, so nodes get the local ids that they have where one process samples, and batches are bit-identical to those of ``Sampler.sample``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hoptrain.engine import Address, Graph, HeteroGraph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.hetero_graph import Relation
from hoptrain.samplers.base import HopSampler
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.hops import Drawn, Draws, GrowingBatch, Request, Step

Answers: TypeAlias = Callable[[int, Sequence[Request]], Sequence[Drawn]]
"""Returns what the requests of some batches, none too, drew at a hop, each for its nodes in their order; the arrays are their own."""


def grow_together(
    sampler: HopSampler[Any, Any],
    graph: Graph | HeteroGraph,
    batches: Sequence[tuple[Array, Address, Array | None]],
    answers: Mapping[Relation, Answers],
    workspace: Workspace,
) -> list[Any]:
    """Sample batches.

    Args:
        sampler: a ``Sampler.hop_sampler``.
        graph: of which nothing is looked at but how many nodes there are, and of what dtype ids are.
        batches: seeds (B,) of each batch, as of ``Sampler.sample``, with its address, and of samplers with times the seeds' times (B,) or None.
        answers: of each relation what is asked once for each hop, for all batches.
        workspace: scratch memory.

    Returns:
        The batches, whose arrays are their own; edges are named as ``answers`` does.

    Raises:
        InputError: as ``Sampler.sample``, and as ``answers``.
    """
    along, growing = sampler.along(graph), list[GrowingBatch]()
    for number, (seeds, address, times) in enumerate(batches):
        options = {"times": times} if sampler.is_timed else {}
        roots = sampler.roots(graph, seeds, **options)
        growing.append(GrowingBatch.begin(graph, roots, address, workspace, sampler.expand == "new", f"{number}"))
    loops = [batch.grow(along, sampler.num_hops) for batch in growing]
    asked = [next(loop) for loop in loops]
    for hop in range(sampler.num_hops):
        drawn: list[list[Drawn]] = [[] for _ in growing]
        for place, relation in enumerate(along):
            steps = [of_batch[place] for of_batch in asked]
            found = answers[relation](hop, list(map(_request, growing, steps)))
            for of_batch, taken in zip(drawn, map(_take, growing, steps, found), strict=True):
                of_batch.append(taken)
        asked = [loop.send(of_batch) for loop, of_batch in zip(loops, drawn, strict=True)]
    made = []
    for batch in growing:
        batch.workspace = Workspace()  # what is made of the arrays is the batch's own
        nodes = {kind: ids.copy() for kind, ids in batch.nodes().items()}
        made.append(sampler.addressed(sampler.finished(graph, batch, nodes), batch.address))
    return made


def _request(batch: GrowingBatch, step: Step[Draws]) -> Request:
    nodes = batch.frontiers[step.relation[2]].nodes()[step.first : step.last]
    return Request(nodes, batch.at(step), step.first, batch.times)


def _take(batch: GrowingBatch, step: Step[Draws], drawn: Drawn) -> Drawn:
    """Turn the sources of what a step drew into nodes of the batch; where hops share a block, its edges follow those of earlier hops."""
    sources = batch.frontiers[step.relation[0]]
    sources.forget(sources.num_nodes)  # the batches of a window share a table
    sources.relabel(drawn.sources)
    indptr, edge_ids, indices, weights = drawn
    if step.num_edges:
        before = batch.hops[-1][step.relation]
        indptr = np.concatenate([before.indptr, step.num_edges + indptr[1:]])
        edge_ids, indices = np.concatenate([before.edge_ids, edge_ids]), np.concatenate([before.sources, indices])
    elif step.first:
        indptr = np.concatenate([np.zeros(step.first, indptr.dtype), indptr])
    return Drawn(indptr.astype(id_dtype(len(indices) + 1)), edge_ids, indices, weights)
