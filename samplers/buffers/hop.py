"""One hop on the CPU, or those of several relations beside each other, by one thread or by several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.nodewise import shares, weighted
from hoptrain.kernels.shared.draws import ALL
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.workspace import Workspace

EXACT_COUNT = 1 << 22
"""Where a hop could have more edges than this, they are counted first, so that no memory is asked for that low degrees leave unused."""

_PARTS = 8
"""Parts of what is shared, for each thread, at most: the last ones to finish keep nobody waiting for long."""
PART_EDGES = 1 << 14
"""Of a part, about, at least: to hand one out, draw it and take it costs some tens of microseconds besides what its edges cost."""
WORTH_SHARING = 1 << 15
"""Edges from which threads share."""


class Hop(NamedTuple):
    """What there is before a hop."""

    workspace: Workspace
    columns: kernels.Columns | weighted.WeightedColumns
    nodes: Array
    """The nodes so far of the destinations' type."""
    first: int
    """The destinations are ``nodes[first:last]``."""
    last: int
    rule: kernels.Rule
    address: HopAddress
    edges: kernels.Edges
    num_edges: int
    """Edges that stand in ``edges`` already."""
    is_loop: bool = False
    """Whether sources are nodes of the destinations' type, so that one kernel draws and relabels."""


def sample_hops(hops: Sequence[Hop], sources: Sequence[Frontier]) -> list[int]:
    """Draw the edges of several hops, none of which waits for another, and relabel their sources; the threads of the workspace share the work.

    Args:
        hops: with the same workspace.
        sources: nodes that each hop's sources are among, or become.

    Returns:
        The number of edges after each hop.
    """
    if _is_shared(hops):
        return _draw_shared(hops, lambda number, first, last: sources[number].relabel(hops[number].edges.indices[first:last]))
    return list(map(_sample, hops, sources))


def _sample(hop: Hop, sources: Frontier) -> int:
    room = _room(hop)
    if not room:
        return hop.num_edges
    scratch = scratch_for(hop.workspace, hop.rule)
    if hop.is_loop and not is_distinct_by_weight(hop.rule) and not _is_share(hop.rule):
        nodes, number, table = sources.make_room(room), sources.num_nodes, sources.table.view()
        of_hop = hop.first, hop.last, hop.rule, hop.address, table, scratch, hop.edges, hop.num_edges
        sampled: tuple[int, int] = kernels.sample_hop(hop.columns, nodes, number, *of_hop)
        sources.num_nodes, total = sampled
    else:
        total = _draw_part(hop, hop.first, hop.last, hop.workspace, hop.num_edges)
        sources.relabel(hop.edges.indices[hop.num_edges : total])
    return total


def draw_places(hop: Hop) -> int:
    """Draw the edge ids of a hop alone, uniformly. Returns the number of edges after the hop."""
    if not _room(hop):
        return hop.num_edges
    draw, scratch = (shares if _is_share(hop.rule) else kernels).draw_places, scratch_for(hop.workspace, hop.rule)
    total: int = draw(hop.columns, hop.nodes, hop.first, hop.last, hop.rule, hop.address, scratch, hop.edges, hop.num_edges)
    return total


def is_distinct_by_weight(rule: kernels.Rule) -> bool:
    """Whether a hop takes distinct edges that have weight, some or all: ``hoptrain.kernels.cpu.nodewise.weighted`` does it, from ``WeightedColumns``."""
    return bool(rule.weighted and (rule.fanout == ALL or not rule.replace))


def _is_share(rule: kernels.Rule) -> bool:
    """Whether nodes give a share of their edges, one after the other: ``hoptrain.kernels.cpu.nodewise.shares``."""
    return rule.fanout < ALL and not is_distinct_by_weight(rule)


def count_edges(columns: kernels.Columns | weighted.WeightedColumns, nodes: Array, first: int, last: int, rule: kernels.Rule) -> int:
    """How many edges the destinations ``nodes[first:last]`` give together."""
    counted: int = (weighted if is_distinct_by_weight(rule) else kernels).count_edges(columns, nodes, first, last, rule)
    return counted


def draw_hop(
    columns: kernels.Columns | weighted.WeightedColumns,
    nodes: Array,
    first: int,
    last: int,
    rule: kernels.Rule,
    address: HopAddress,
    scratch: kernels.Scratch,
    edges: kernels.Edges,
    num_edges: int,
) -> int:
    """Draw edges into the destinations ``nodes[first:last]``, with global ids; ``edges`` holds ``num_edges``. Returns the number of edges."""
    draw = weighted.draw_hop if is_distinct_by_weight(rule) else shares.draw_hop if _is_share(rule) else kernels.draw_hop
    total: int = draw(columns, nodes, first, last, rule, address, scratch, edges, num_edges)
    return total


def most_edges(num_dst: int, fanout: int, count: Callable[[], int]) -> int:
    """How many edges ``num_dst`` destinations may give; ``count`` tells it exactly, and is asked where the bound is no good."""
    most = num_dst * fanout
    return count() if fanout < 0 or most > EXACT_COUNT else most


def draw_edges(hop: Hop) -> int:
    """Draw the edges of a hop, with global ids; the threads of the workspace share the work. Returns the number of edges after the hop."""
    if _is_shared([hop]):
        return _draw_shared([hop], lambda *_: None)[0]
    return _draw_part(hop, hop.first, hop.last, hop.workspace, hop.num_edges) if _room(hop) else hop.num_edges


def _room(hop: Hop) -> int:
    """For how many edges there is memory."""
    return len(hop.edges.edge_ids) - hop.num_edges


def _is_shared(hops: Sequence[Hop]) -> bool:
    """By about how many edges there will be, which are fewer than there is memory for where degrees are low."""
    if hops[0].workspace.threads == 1:
        return False
    return sum(min(_room(hop), (hop.last - hop.first) * _mean_degree(hop)) for hop in hops) >= WORTH_SHARING


def _mean_degree(hop: Hop) -> float:
    return len(hop.columns.indices) / max(1, len(hop.columns.indptr) - 1)


def _draw_part(hop: Hop, first: int, last: int, workspace: Workspace, num_edges: int) -> int:
    """Into some of the destinations, with the scratch of ``workspace``."""
    return draw_hop(hop.columns, hop.nodes, first, last, hop.rule, hop.address, scratch_for(workspace, hop.rule), hop.edges, num_edges)


def _draw_shared(hops: Sequence[Hop], take: Callable[[int, int, int], None]) -> list[int]:
    """All threads draw, each the next part that nobody has; this one also takes, part by part in order, whatever is drawn."""
    workspace = hops[0].workspace
    threads = workspace.threads
    parts = _parts(hops, _PARTS * threads)
    starts: list[int] = []
    totals = [hop.num_edges for hop in hops]
    drawn: list[Future[int]] = [Future() for _ in parts]
    turn = Lock()

    def draw_next(own: Workspace) -> bool:
        with turn:  # who takes a part counts its edges, which tells where those of the next one begin
            p = len(starts)
            if p == len(parts):
                return False
            number, first, last = parts[p]
            columns, nodes, rule = hops[number].columns, hops[number].nodes, hops[number].rule
            starts.append(totals[number])
            totals[number] += count_edges(columns, nodes, first, last, rule)
        try:
            drawn[p].set_result(_draw_part(hops[number], first, last, own, starts[p]))
        except BaseException as error:
            drawn[p].set_exception(error)
        return True

    def draw_some(thread: int) -> None:
        own = workspace.part(thread)
        while draw_next(own):
            pass

    def draw_and_take() -> None:
        for p, (number, _, _) in enumerate(parts):
            while not drawn[p].done() and draw_next(workspace):
                pass
            take(number, starts[p], drawn[p].result())

    workspace.run([draw_and_take, *(partial(draw_some, thread) for thread in range(1, threads))])
    return totals


def _parts(hops: Sequence[Hop], most: int) -> list[tuple[int, int, int]]:
    """Hops' numbers with the first and last of some destinations: about ``most`` in all or fewer, with about as many edges each."""
    total = sum(map(_room, hops))
    wanted = min(most, -(-total // PART_EDGES))
    parts = []
    for number, hop in enumerate(hops):
        own = -(-_room(hop) * wanted // total)
        bounds = [hop.first + (hop.last - hop.first) * p // own for p in range(own + 1)] if own else []
        parts += [(number, *ends) for ends in pairwise(bounds)]
    return parts


def scratch_for(workspace: Workspace, rule: kernels.Rule) -> kernels.Scratch:
    """Return memory for a chunk of a hop, which the workspace keeps."""
    draws = weighted.lane_attempts(rule.fanout) if is_distinct_by_weight(rule) else rule.fanout
    key = draws, rule.weighted
    if key not in workspace.scratch:
        words, offsets = kernels.scratch_shapes(*key)
        chunk = offsets[1]
        lanes, found = np.empty((5, chunk), np.int64), np.empty(chunk, np.int32)
        workspace.scratch[key] = kernels.Scratch(np.empty(words, np.uint32), np.empty(offsets, np.int32), lanes, found)
    return workspace.scratch[key]
