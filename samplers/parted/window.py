"""The batches of a window of steps, sampled hop by hop (or walked step by step) by several machines together, each with the columns of its own vertices.

A draw's address is (seed, epoch, batch, hop, vertex, draw), so the owner of a vertex draws for it, with the same bits whoever asks. A hop of all batches
of the window takes two rounds: the vertices go to their owners, and the draws come back. These are put into the order of the vertices that asked, so nodes
get the local ids that they have on one machine, and batches are equal to the bit to those of ``Sampler.sample`` there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hoptrain.engine import Address
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.partition.exchange import Exchange
from hoptrain.engine.partition.topology.columns import OwnColumns
from hoptrain.engine.partition.topology.trade import packed, trade, unpacked
from hoptrain.kernels.cpu.columns import copy_columns
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, batch_of_hops, nested_blocks
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.parted.draws import Asked, Drawn, check_alone, draw, has_weights
from hoptrain.samplers.parted.walks import walk_window
from hoptrain.samplers.programs.walks import RandomWalk
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.workspace import Workspace

_HEAD = 4
"""Numbers that tell of which batch, and how many, vertices are asked for: seed, epoch, batch, number."""


@dataclass(eq=False, slots=True)
class _Growing:
    """A batch in the making: its nodes, its edges with local sources hop by hop, and the node from which on the next hop expands."""

    address: Address
    frontier: Frontier
    num_seeds: int
    first: int = 0
    hops: list[Drawn] = field(default_factory=list)
    num_src: list[int] = field(default_factory=list)


def sample_window(
    sampler: Any, columns: OwnColumns, batches: Sequence[tuple[Array, Address]], exchange: Exchange, workspace: Workspace | None = None
) -> list[MiniBatch]:
    """Sample batches; all machines call this together, for as many batches as each has, none too.

    Args:
        sampler: the same on all machines.
        columns: what this machine has of the graph.
        batches: seeds (B,) of each batch, distinct vertices anywhere in the graph, with its address.
        exchange: among the machines, whose numbers are those of the parts.
        workspace: scratch memory, and threads for what this machine draws.

    Returns:
        The batches, whose arrays are their own; edges are named by their places in the whole graph.

    Raises:
        InputError: a sampler of which owners cannot draw alone; as ``Sampler.sample``, and as ``Exchange``.
    """
    check_alone(sampler)
    workspace = workspace or Workspace()
    if isinstance(sampler, RandomWalk):
        return walk_window(sampler, columns, batches, exchange, workspace)
    growing = [_started(columns, seeds, address, workspace, f"nodes{k}") for k, (seeds, address) in enumerate(batches)]
    for hop in range(sampler.num_hops):
        drawn = _draws_of_all(sampler, hop, columns, growing, exchange, workspace)
        for batch, own in zip(growing, drawn, strict=True):
            _grow(batch, own, sampler.expand)
    return [sampler.addressed(_finished(batch, sampler.expand), batch.address) for batch in growing]


def _started(columns: OwnColumns, seeds: Array, address: Address, workspace: Workspace, name: str) -> _Growing:
    seeds = check_seeds(columns.graph, seeds)
    frontier = Frontier(workspace, workspace.table, columns.graph.num_nodes, columns.graph.indices.dtype, name)
    frontier.enter_seeds(seeds)
    return _Growing(address, frontier, len(seeds))


def _draws_of_all(
    sampler: Any, hop: int, columns: OwnColumns, growing: Sequence[_Growing], exchange: Exchange, workspace: Workspace
) -> Iterator[Drawn]:
    """What the vertices that each batch expands have drawn, in their order, with places in the whole graph."""
    dtype = columns.graph.indices.dtype
    wanted = [batch.frontier.nodes()[batch.first :] for batch in growing]
    ends = np.cumsum([0, *map(len, wanted)])
    nodes = np.concatenate([np.empty(0, dtype), *wanted])
    owners = columns.owner(nodes)
    order = np.argsort(owners, kind="stable")  # within an owner batch after batch
    bounds = np.searchsorted(owners[order], np.arange(exchange.size + 1))
    questions = []
    for first, last in pairwise(bounds):
        numbers = np.diff(np.searchsorted(order[first:last], ends))
        heads = np.array([[*batch.address, n] for batch, n in zip(growing, numbers, strict=True)], np.uint64)
        questions.append(packed(heads.reshape(-1), nodes[order[first:last]]))
    came = trade(exchange, questions, lambda question: _answer(sampler, hop, columns, question, workspace))
    drawn = _in_order_of(order, _joined([_unpacked(answer, columns) for answer in came], has_weights(sampler)))
    for first, last in pairwise(ends):
        begin, end = drawn.indptr[first], drawn.indptr[last]
        weights = None if drawn.weights is None else drawn.weights[begin:end]
        yield Drawn(drawn.indptr[first : last + 1] - begin, drawn.edge_ids[begin:end], drawn.sources[begin:end], weights)


def _answer(sampler: Any, hop: int, columns: OwnColumns, question: Array, workspace: Workspace) -> Array:
    """The draws of this machine's vertices for another's batches: how many each has, then the edges of all."""
    dtype = columns.graph.indices.dtype
    heads, nodes = unpacked(question, np.uint64, dtype)
    heads = heads.reshape(-1, _HEAD)
    parts = []
    for (*address, _), (first, last) in zip(heads.tolist(), pairwise(accumulate(heads[:, -1].tolist(), initial=0)), strict=True):
        own = nodes[first:last]
        drawn = draw(columns.graph, Asked(sampler, own, Address(*address), hop), workspace)
        weights = np.empty(0, np.float32) if drawn.weights is None else drawn.weights.copy()
        counts = np.diff(drawn.indptr).astype(np.int32)
        parts.append((counts, columns.places(own, drawn.indptr, drawn.edge_ids), drawn.sources.copy(), weights))
    none = np.empty(0, np.int32), np.empty(0, id_dtype(columns.num_edges)), np.empty(0, dtype), np.empty(0, np.float32)
    return packed(*(np.concatenate(arrays) for arrays in zip(none, *parts, strict=True)))


def _unpacked(answer: Array, columns: OwnColumns) -> tuple[Array, ...]:
    return tuple(unpacked(answer, np.int32, id_dtype(columns.num_edges), columns.graph.indices.dtype, np.float32))


def _joined(answers: Sequence[tuple[Array, ...]], with_weights: bool) -> Drawn:
    """The draws of all owners, one owner behind another."""
    counts, edge_ids, sources, weights = (np.concatenate(arrays) for arrays in zip(*answers, strict=True))
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return Drawn(indptr, edge_ids, sources, weights if with_weights else None)


def _in_order_of(order: Array, drawn: Drawn) -> Drawn:
    """The columns of ``drawn``, of which the i-th belongs to the vertex ``order[i]``, by ascending vertex."""
    column = np.empty(len(order), np.int64)
    column[order] = np.arange(len(order))
    indptr = np.empty(len(order) + 1, np.int64)

    def taken(array: Array) -> Array:
        out = np.empty(len(array), array.dtype)
        copy_columns(drawn.indptr, array, column, len(column), indptr, out)
        return out

    return Drawn(indptr, taken(drawn.edge_ids), taken(drawn.sources), None if drawn.weights is None else taken(drawn.weights))


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
