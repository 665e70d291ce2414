"""Sampling of a window of steps by several machines together. Each machine holds the columns (in-edges) of its own nodes.

The owner of a node draws its edges for all machines. A hop (or a step of walks) of all batches takes two communication rounds: nodes go to their owners,
and drawn edges come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.partition.exchange import Exchange
from hoptrain.engine.partition.topology.columns import OwnColumns
from hoptrain.engine.partition.topology.graph import PartitionedGraph
from hoptrain.engine.partition.topology.trade import packed, trade, unpacked
from hoptrain.kernels.cpu.columns import copy_columns
from hoptrain.samplers.base import HopSampler, Sampler
from hoptrain.samplers.batch.minibatch import ONLY, MiniBatch
from hoptrain.samplers.buffers.alias import no_weight
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.distributed.walks import walk_window
from hoptrain.samplers.hops import MOST_HOPS, AloneDraws, Drawn, Request
from hoptrain.samplers.programs.walks import RandomWalk
from hoptrain.samplers.superbatch.window import grow_together

_HEAD = 4
"""Number of integers in the header of a request: seed, epoch, batch, and number of nodes."""


def sample_window(
    sampler: Sampler, columns: OwnColumns, batches: Sequence[tuple[Array, Address]], exchange: Exchange, workspace: Workspace | None = None
) -> list[MiniBatch]:
    """Sample batches of a partitioned graph. All machines must call this function together, each with any number of batches.

    Args:
        sampler: the sampler, equal on all machines.
        columns: this machine's partition of the graph.
        batches: seeds (B,) and address of each batch; seeds are distinct nodes anywhere in the graph.
        exchange: communication among the machines, whose numbers are those of the partitions.
        workspace: scratch memory, and threads for the draws of this machine.

    Returns:
        The batches, with arrays of their own; edge ids are CSC positions in the whole graph.

    Raises:
        InputError: the sampler needs more than each node's own edges; ``Sampler.sample`` or ``Exchange`` raises it.
    """
    workspace = workspace or Workspace()
    if type(sampler) is RandomWalk:
        return walk_window(sampler, columns, batches, exchange, workspace)
    hops, draws = _alone(sampler, columns.graph)
    owners = _Owners(draws, columns, exchange, workspace)
    return grow_together(hops, columns.graph, [(seeds, address, None) for seeds, address in batches], {ONLY: owners.draws}, workspace)


def check_alone(sampler: Sampler, graph: PartitionedGraph) -> None:
    """Check that a sampler can sample a partitioned graph.

    Raises:
        InputError: the sampler needs more of the graph than each node's own edges; or it draws by weight, and all weights are 0.
    """
    if type(sampler) is not RandomWalk and _alone(sampler, graph)[1].needs_weight and not graph.has_weight:
        raise no_weight(graph.num_edges)


def _alone(sampler: Sampler, graph: Graph) -> tuple[HopSampler, AloneDraws]:
    hops = sampler.hop_sampler
    draws = hops.draws_alone(graph) if hops is not None and hops is sampler else None
    if hops is None or draws is None:
        raise InputError(
            f"{type(sampler).__name__} on a partitioned graph: nodes must draw from their own edges, as with LaborSampler, NeighborSampler, RandomWalk; "
            "take one of these, or partition the features alone"
        )
    return hops, draws


@dataclass(eq=False, slots=True)
class _Owners:
    """A class that requests the draws of edges from the machines that own the nodes, this machine included."""

    own: AloneDraws
    columns: OwnColumns
    exchange: Exchange
    workspace: Workspace

    def draws(self, hop: int, asked: Sequence[Request]) -> list[Drawn]:
        """Return the edges that each batch's nodes draw, in the order of the nodes, with CSC positions in the whole graph.

        Machines without batches call this method too, to answer requests of other machines.
        """
        ends = np.cumsum([0, *(len(own.nodes) for own in asked)])
        nodes = np.concatenate([np.empty(0, self.columns.graph.indices.dtype), *(own.nodes for own in asked)])
        owners = self.columns.owner(nodes)
        order = np.argsort(owners, kind="stable")  # sorts nodes by owner; nodes of the same owner stay sorted by batch
        bounds = np.searchsorted(owners[order], np.arange(self.exchange.size + 1))
        questions = []
        for first, last in pairwise(bounds):
            numbers = np.diff(np.searchsorted(order[first:last], ends))
            heads = np.array([[*own.address[:3], n] for own, n in zip(asked, numbers, strict=True)], np.uint64)
            questions.append(packed(heads.reshape(-1), nodes[order[first:last]]))
        came = trade(self.exchange, questions, lambda question: self._answer(hop, question))
        drawn = _in_order_of(order, _joined([self._unpacked(answer) for answer in came], self.own.has_weights))
        return [_part(drawn, first, last) for first, last in pairwise(ends)]

    def _answer(self, hop: int, question: Array) -> Array:
        """Draw edges of this machine's nodes for another machine; return the number of edges of each node, then all edges."""
        columns, dtype = self.columns, self.columns.graph.indices.dtype
        heads, nodes = unpacked(question, np.uint64, dtype)
        heads = heads.reshape(-1, _HEAD)
        parts = []
        for (*address, _), (first, last) in zip(heads.tolist(), pairwise(accumulate(heads[:, -1].tolist(), initial=0)), strict=True):
            own = nodes[first:last]
            request = Request(own, Address(*address).at_hop(self.own.number * MOST_HOPS + hop))
            drawn = self.own.draw(columns.graph, hop, request, self.workspace)
            weights = np.empty(0, np.float32) if drawn.weights is None else drawn.weights.copy()
            counts = np.diff(drawn.indptr).astype(np.int32)
            parts.append((counts, columns.places(own, drawn.indptr, drawn.edge_ids), drawn.sources.copy(), weights))
        none = np.empty(0, np.int32), np.empty(0, id_dtype(columns.num_edges)), np.empty(0, dtype), np.empty(0, np.float32)
        return packed(*(np.concatenate(arrays) for arrays in zip(none, *parts, strict=True)))

    def _unpacked(self, answer: Array) -> tuple[Array, ...]:
        columns = self.columns
        return tuple(unpacked(answer, np.int32, id_dtype(columns.num_edges), columns.graph.indices.dtype, np.float32))


def _joined(answers: Sequence[tuple[Array, ...]], with_weights: bool) -> Drawn:
    """Concatenate the draws that the machines returned."""
    counts, edge_ids, sources, weights = (np.concatenate(arrays) for arrays in zip(*answers, strict=True))
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return Drawn(indptr, edge_ids, sources, weights if with_weights else None)


def _in_order_of(order: Array, drawn: Drawn) -> Drawn:
    """Sort the columns of ``drawn`` by node; column i belongs to the node with index ``order[i]``."""
    column = np.empty(len(order), np.int64)
    column[order] = np.arange(len(order))
    indptr = np.empty(len(order) + 1, np.int64)

    def taken(array: Array) -> Array:
        out = np.empty(len(array), array.dtype)
        copy_columns(drawn.indptr, array, column, len(column), indptr, out)
        return out

    return Drawn(indptr, taken(drawn.edge_ids), taken(drawn.sources), None if drawn.weights is None else taken(drawn.weights))


def _part(drawn: Drawn, first: int, last: int) -> Drawn:
    """Return the draws of the nodes from ``first`` to ``last``, exclusive."""
    begin, end = drawn.indptr[first], drawn.indptr[last]
    weights = None if drawn.weights is None else drawn.weights[begin:end]
    return Drawn(drawn.indptr[first : last + 1] - begin, drawn.edge_ids[begin:end], drawn.sources[begin:end], weights)
