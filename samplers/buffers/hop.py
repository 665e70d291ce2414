"""Draws of one hop on the CPU, or of the hops of several relations together, by one or several threads."""

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
"""Number of edges. If the upper bound of a hop's edges exceeds it, the edges are counted first, so that nodes of low degree need no unused memory."""

_PARTS = 8
"""Maximum number of parts per thread into which a hop is divided. With small parts, threads finish at about the same time."""
PART_EDGES = 1 << 14
"""Approximate minimum number of edges of a part of a hop, since each part has an overhead of some tens of microseconds."""
WORTH_SHARING = 1 << 15
"""Minimum estimated number of edges for which a hop is divided among threads."""


class Hop(NamedTuple):
    """The inputs of a hop's draws along one relation."""

    workspace: Workspace
    columns: kernels.CscColumns | weighted.WeightedColumns
    nodes: Array
    """Nodes of the destination type that were found so far."""
    first: int
    """Index of the first destination; the destinations are ``nodes[first:last]``."""
    last: int
    rule: kernels.DrawOptions
    address: HopAddress
    edges: kernels.HopEdges
    num_edges: int
    """Number of edges of earlier hops at the beginning of ``edges``."""
    is_loop: bool = False
    """True if sources and destinations have the same node type, so that one kernel can draw and relabel."""


def sample_hops(hops: Sequence[Hop], sources: Sequence[Frontier]) -> list[int]:
    """Draw the edges of several independent hops and relabel their sources. The threads of the workspace divide the work.

    Args:
        hops: hops of several relations, with the same workspace.
        sources: nodes of each hop's source type, to which new sources are added.

    Returns:
        The number of edges in the arrays of each hop afterwards.
    """
    if _is_shared(hops):
        return _draw_shared(hops, lambda number, first, last: sources[number].relabel(hops[number].edges.indices[first:last]))
    return list(map(_sample, hops, sources))


def _sample(hop: Hop, sources: Frontier) -> int:
    capacity = _capacity(hop)
    if not capacity:
        return hop.num_edges
    scratch = scratch_for(hop.workspace, hop.rule)
    if hop.is_loop and not is_distinct_by_weight(hop.rule) and not _is_share(hop.rule):
        nodes, number, table = sources.reserve(capacity), sources.num_nodes, sources.table.view()
        of_hop = hop.first, hop.last, hop.rule, hop.address, table, scratch, hop.edges, hop.num_edges
        sampled: tuple[int, int] = kernels.sample_hop(hop.columns, nodes, number, *of_hop)
        sources.num_nodes, total = sampled
    else:
        total = _draw_part(hop, hop.first, hop.last, hop.workspace, hop.num_edges)
        sources.relabel(hop.edges.indices[hop.num_edges : total])
    return total


def draw_places(hop: Hop) -> int:
    """Draw only the CSC positions of a hop's edges, uniformly. Return the number of edges in ``edges``, with those of earlier hops."""
    if not _capacity(hop):
        return hop.num_edges
    draw, scratch = (shares if _is_share(hop.rule) else kernels).draw_places, scratch_for(hop.workspace, hop.rule)
    total: int = draw(hop.columns, hop.nodes, hop.first, hop.last, hop.rule, hop.address, scratch, hop.edges, hop.num_edges)
    return total


def is_distinct_by_weight(rule: kernels.DrawOptions) -> bool:
    """Return whether a hop takes distinct edges by weight, or all edges of positive weight, for which ``kernels.cpu.nodewise.weighted`` is used."""
    return bool(rule.weighted and (rule.fanout == ALL or not rule.replace))


def _is_share(rule: kernels.DrawOptions) -> bool:
    """Return whether a hop takes a share of each node's edges, for which ``hoptrain.kernels.cpu.nodewise.shares`` is used."""
    return rule.fanout < ALL and not is_distinct_by_weight(rule)


def count_edges(
    columns: kernels.CscColumns | weighted.WeightedColumns, nodes: Array, first: int, last: int, rule: kernels.DrawOptions
) -> int:
    """Return the number of edges that the destinations ``nodes[first:last]`` draw together."""
    counted: int = (weighted if is_distinct_by_weight(rule) else kernels).count_edges(columns, nodes, first, last, rule)
    return counted


def draw_hop(
    columns: kernels.CscColumns | weighted.WeightedColumns,
    nodes: Array,
    first: int,
    last: int,
    rule: kernels.DrawOptions,
    address: HopAddress,
    scratch: kernels.HopScratch,
    edges: kernels.HopEdges,
    num_edges: int,
) -> int:
    """Draw edges into ``nodes[first:last]``, with global ids of sources, after the first ``num_edges`` of ``edges``; return the new number of edges."""
    draw = weighted.draw_hop if is_distinct_by_weight(rule) else shares.draw_hop if _is_share(rule) else kernels.draw_hop
    total: int = draw(columns, nodes, first, last, rule, address, scratch, edges, num_edges)
    return total


def most_edges(num_dst: int, fanout: int, count: Callable[[], int]) -> int:
    """Return an upper bound of the edges that ``num_dst`` destinations draw: fanout * num_dst or, if that is unknown or large, the exact ``count()``."""
    most = num_dst * fanout
    return count() if fanout < 0 or most > EXACT_COUNT else most


def draw_edges(hop: Hop) -> int:
    """Draw the edges of a hop, with global ids of sources, by all threads of the workspace. Return the number of edges in ``edges``."""
    if _is_shared([hop]):
        return _draw_shared([hop], lambda *_: None)[0]
    return _draw_part(hop, hop.first, hop.last, hop.workspace, hop.num_edges) if _capacity(hop) else hop.num_edges


def _capacity(hop: Hop) -> int:
    """Return the number of edges for which the arrays of a hop have space left."""
    return len(hop.edges.edge_ids) - hop.num_edges


def _is_shared(hops: Sequence[Hop]) -> bool:
    """Return whether hops have so many edges, estimated from the mean degree, that threads should divide them."""
    if hops[0].workspace.threads == 1:
        return False
    return sum(min(_capacity(hop), (hop.last - hop.first) * _mean_degree(hop)) for hop in hops) >= WORTH_SHARING


def _mean_degree(hop: Hop) -> float:
    return len(hop.columns.indices) / max(1, len(hop.columns.indptr) - 1)


def _draw_part(hop: Hop, first: int, last: int, workspace: Workspace, num_edges: int) -> int:
    """Draw the edges of the destinations ``first`` to ``last``, with the scratch buffers of ``workspace``."""
    return draw_hop(hop.columns, hop.nodes, first, last, hop.rule, hop.address, scratch_for(workspace, hop.rule), hop.edges, num_edges)


def _draw_shared(hops: Sequence[Hop], take: Callable[[int, int, int], None]) -> list[int]:
    """Draw parts of the hops in all threads, and call ``take`` in this thread for each part, in order.

    Each thread repeatedly draws the next part that no thread has. Returns the number of edges of each hop.
    """
    workspace = hops[0].workspace
    threads = workspace.threads
    parts = _parts(hops, _PARTS * threads)
    starts: list[int] = []
    totals = [hop.num_edges for hop in hops]
    drawn: list[Future[int]] = [Future() for _ in parts]
    turn = Lock()

    def draw_next(own: Workspace) -> bool:
        with turn:  # the thread that takes a part counts its edges, so that the position of the next part is known
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
    """Divide hops into at most about ``most`` parts of similar size: (index of the hop, first destination, end of the destinations)."""
    total = sum(map(_capacity, hops))
    wanted = min(most, -(-total // PART_EDGES))
    parts = []
    for number, hop in enumerate(hops):
        own = -(-_capacity(hop) * wanted // total)
        bounds = [hop.first + (hop.last - hop.first) * p // own for p in range(own + 1)] if own else []
        parts += [(number, *ends) for ends in pairwise(bounds)]
    return parts


def scratch_for(workspace: Workspace, rule: kernels.DrawOptions) -> kernels.HopScratch:
    """Return the scratch buffers of a hop's kernels, which the workspace keeps."""
    draws = weighted.lane_attempts(rule.fanout) if is_distinct_by_weight(rule) else rule.fanout
    key = draws, rule.weighted
    if key not in workspace.scratch:
        words, offsets = kernels.scratch_shapes(*key)
        chunk = offsets[1]
        lanes, found = np.empty((5, chunk), np.int64), np.empty(chunk, np.int32)
        workspace.scratch[key] = kernels.HopScratch(np.empty(words, np.uint32), np.empty(offsets, np.int32), lanes, found)
    return workspace.scratch[key]
