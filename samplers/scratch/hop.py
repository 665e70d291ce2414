"""One hop on the CPU, by one thread or by several."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import accumulate, count
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.nodewise import weighted
from hoptrain.kernels.cpu.relabel import relabel
from hoptrain.samplers.scratch.workspace import Workspace

EXACT_COUNT = 1 << 22
"""Where a hop could have more edges than this, they are counted first, so that no memory is asked for that low degrees leave unused."""

_PARTS = 8
"""Parts of a shared hop for each thread: the last ones to finish keep nobody waiting for long."""
_WORTH_SHARING = 1 << 15
"""Edges from which a hop is shared: handing it out costs some tens of microseconds a part."""


class Hop(NamedTuple):
    """What there is before a hop."""

    workspace: Workspace
    columns: kernels.Columns | weighted.WeightedColumns
    nodes: Array
    """The nodes so far, with room for new ones."""
    first: int
    """The destinations are ``nodes[first:last]``; ``last`` nodes are known."""
    last: int
    rule: kernels.Rule
    address: HopAddress
    edges: kernels.Edges
    num_edges: int
    """Edges that stand in ``edges`` already."""


def sample_hop(hop: Hop) -> tuple[int, int]:
    """Sample the in-neighbours of the destinations and relabel them; the threads of the workspace share the work.

    Returns the numbers of nodes and edges after the hop.
    """
    workspace, columns, nodes, first, last, rule, address, edges, num_edges = hop
    if workspace.threads > 1 and len(edges.edge_ids) - num_edges >= _WORTH_SHARING:
        return _sample_shared(hop)
    table, scratch = workspace.table.view(), scratch_for(workspace, rule)
    if is_distinct_by_weight(rule):
        total = draw_hop(columns, nodes, first, last, rule, address, scratch, edges, num_edges)
        return relabel(edges.indices, num_edges, total, table, nodes, last), total
    num_nodes, total = kernels.sample_hop(columns, nodes, last, first, last, rule, address, table, scratch, edges, num_edges)
    return num_nodes, total


def is_distinct_by_weight(rule: kernels.Rule) -> bool:
    """Whether a hop takes distinct edges that have weight, some or all: ``hoptrain.kernels.cpu.nodewise.weighted`` does it, from ``WeightedColumns``."""
    return bool(rule.weighted and (rule.fanout < 0 or not rule.replace))


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
    draw = weighted.draw_hop if is_distinct_by_weight(rule) else kernels.draw_hop
    total: int = draw(columns, nodes, first, last, rule, address, scratch, edges, num_edges)
    return total


def most_edges(num_dst: int, fanout: int, count: Callable[[], int]) -> int:
    """How many edges ``num_dst`` destinations may give; ``count`` tells it exactly, and is asked where the bound is no good."""
    most = num_dst * fanout
    return count() if fanout < 0 or most > EXACT_COUNT else most


def _sample_shared(hop: Hop) -> tuple[int, int]:
    """All threads draw, each the next part that nobody has; this one also relabels, part by part in order, whatever is drawn."""
    workspace, columns, nodes, first, last, rule, address, edges, num_edges = hop
    threads, num_parts = workspace.threads, _PARTS * workspace.threads
    bounds = [first + (last - first) * p // num_parts for p in range(num_parts + 1)]
    counts = [0] * num_parts

    def count_some(thread: int) -> None:
        for p in range(thread, num_parts, threads):
            counts[p] = count_edges(columns, nodes, bounds[p], bounds[p + 1], rule)

    workspace.run([partial(count_some, thread) for thread in range(threads)])
    starts = list(accumulate(counts, initial=num_edges))
    drawn: list[Future[int]] = [Future() for _ in range(num_parts)]
    tickets = count()

    def draw_next(scratch: kernels.Scratch) -> bool:
        p = next(tickets)
        if p >= num_parts:
            return False
        try:
            drawn[p].set_result(draw_hop(columns, nodes, bounds[p], bounds[p + 1], rule, address, scratch, edges, starts[p]))
        except BaseException as error:
            drawn[p].set_exception(error)
        return True

    def draw_some(thread: int) -> None:
        scratch = scratch_for(workspace.part(thread), rule)
        while draw_next(scratch):
            pass

    num_nodes = last

    def draw_and_relabel() -> None:
        nonlocal num_nodes
        scratch, table = scratch_for(workspace, rule), workspace.table.view()
        for p in range(num_parts):
            while not drawn[p].done() and draw_next(scratch):
                pass
            drawn[p].result()
            num_nodes = relabel(edges.indices, starts[p], starts[p + 1], table, nodes, num_nodes)

    workspace.run([draw_and_relabel, *(partial(draw_some, thread) for thread in range(1, threads))])
    return num_nodes, starts[-1]


def scratch_for(workspace: Workspace, rule: kernels.Rule) -> kernels.Scratch:
    """Memory for a chunk of a hop, of the workspace."""
    draws = weighted.lane_attempts(rule.fanout) if is_distinct_by_weight(rule) else rule.fanout
    words, offsets = kernels.scratch_shapes(draws, rule.weighted)
    chunk = offsets[1]
    return kernels.Scratch(
        words=workspace.array("words", words[0] * words[1], np.uint32).reshape(words),
        offsets=workspace.array("offsets", offsets[0] * offsets[1], np.int32).reshape(offsets),
        lanes=workspace.array("lanes", 5 * chunk, np.int64).reshape(5, chunk),
        found=workspace.array("found", chunk, np.int32),
    )
