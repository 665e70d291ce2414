"""Sampling of several batches in lockstep: for each hop, the nodes of all batches are requested at once, and the drawn edges are added to each batch.

The address of a draw is (seed, epoch, batch, hop, node, draw), so a node draws the same edges wherever its column is. Edges are put into the order of the
requesting nodes, so nodes get the same local ids as in one process, and batches are bit-identical to those of ``Sampler.sample``.
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
"""Type of a function of a hop and its requests. It returns, for each request, the edges that the nodes draw, in new arrays."""


def grow_together(
    sampler: HopSampler[Any, Any],
    graph: Graph | HeteroGraph,
    batches: Sequence[tuple[Array, Address, Array | None]],
    answers: Mapping[Relation, Answers],
    workspace: Workspace,
) -> list[Any]:
    """Sample several batches together.

    Args:
        sampler: the ``hop_sampler`` of a sampler.
        graph: the graph, of which only the number of nodes and the id dtype are used.
        batches: seeds (B,), address, and for temporal samplers times of the seeds (B,) or None, of each batch.
        answers: for each relation the function that draws the edges of a hop for all batches.
        workspace: scratch memory.

    Returns:
        The batches, with arrays of their own; edge ids are those of ``answers``.

    Raises:
        InputError: ``Sampler.sample`` or a function of ``answers`` raises it.
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
        batch.workspace = Workspace()  # arrays allocated from now on belong to the batch
        nodes = {kind: ids.copy() for kind, ids in batch.nodes().items()}
        made.append(sampler.addressed(sampler.finished(graph, batch, nodes), batch.address))
    return made


def _request(batch: GrowingBatch, step: Step[Draws]) -> Request:
    nodes = batch.frontiers[step.relation[2]].nodes()[step.first : step.last]
    return Request(nodes, batch.at(step), step.first, batch.times)


def _take(batch: GrowingBatch, step: Step[Draws], drawn: Drawn) -> Drawn:
    """Turn the sources of drawn edges into local ids; in a block that several hops share, append them to the edges of earlier hops."""
    sources = batch.frontiers[step.relation[0]]
    sources.forget(sources.num_nodes)  # the batches of a window share one relabelling table, which this restores for this batch
    sources.relabel(drawn.sources)
    indptr, edge_ids, indices, weights = drawn
    if step.num_edges:
        before = batch.hops[-1][step.relation]
        indptr = np.concatenate([before.indptr, step.num_edges + indptr[1:]])
        edge_ids, indices = np.concatenate([before.edge_ids, edge_ids]), np.concatenate([before.sources, indices])
    elif step.first:
        indptr = np.concatenate([np.zeros(step.first, indptr.dtype), indptr])
    return Drawn(indptr.astype(id_dtype(len(indices) + 1)), edge_ids, indices, weights)
