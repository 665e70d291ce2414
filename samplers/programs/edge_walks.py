"""Random walks that tell the edges they took."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from hoptrain.engine import Address, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.columns import RelationColumns
from hoptrain.kernels.cpu.programs import edge_walk as kernels
from hoptrain.kernels.shared.philox import MAX_DRAWS, MAX_VERTEX
from hoptrain.samplers.buffers.alias import NO_TABLES, AliasTables
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_address, check_nodes

_MOST_STEPS = MAX_DRAWS // 4
_UNIT = 1 << 32


class EdgeWalks(NamedTuple):
    """Walks; -1 after an end."""

    vertices: Array
    """(W, L + 1), the root first."""
    places: Array
    """(W, L) int64, places in the ``indices`` of a step's columns of the edges that were taken."""


class Steps(NamedTuple):
    """Steps of a walk to sources of in-edges, one after another."""

    columns: RelationColumns
    """Whose edges are taken; those of a relation lead to nodes of another type."""
    number: int = 1
    tables: AliasTables = NO_TABLES
    """``build_alias_tables(columns)`` for edges by weight; else they are equally likely."""


def edge_walks(
    path: Sequence[Steps],
    roots: Array,
    ends: Array | float = 0.0,
    *,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    workspace: Workspace | None = None,
) -> EdgeWalks:
    """Walks of up to L steps, each to the source of an in-edge.

    Args:
        path: the steps, L in all.
        roots: (W,) node ids, any of them several times: walk w is a function of w and its root.
        ends: probability that a walk ends before a step, or (L,) one for each step.
        seed: with epoch and batch the address of all draws.
        epoch: see ``seed``.
        batch: see ``seed``.
        workspace: its threads share the walks.

    Raises:
        InputError: a root outside the graph, a number out of range.
    """
    check_address(seed, epoch, batch)
    roots, most, length = check_nodes(np.asarray(roots), path[0].columns.num_nodes), _MOST_STEPS, sum(steps.number for steps in path)
    if not 0 < length < most or len(roots) >= MAX_VERTEX:
        raise InputError(f"length is {length}: a walk has 1 to {most - 1:,} steps; correct it")
    wanted = np.asarray(ends, np.float64)
    if wanted.shape not in ((), (length,)) or not ((wanted >= 0) & (wanted <= 1)).all():
        raise InputError(f"ends are {ends}: a walk of {length} steps ends by one probability, or by {length}, from 0 to 1; correct them")
    dtype = max((steps.columns.indices.dtype for steps in path), key=lambda dtype: dtype.itemsize)
    walks, edges = np.empty((len(roots), length + 1), dtype), np.empty((len(roots), length), np.int64)
    walks[:, 0] = roots
    thresholds = np.broadcast_to((wanted * _UNIT).astype(np.uint64), (length,))
    workspace, words = workspace or Workspace(), tuple(map(np.uint64, Address(seed, epoch, batch)))
    bounds = [len(roots) * i // workspace.threads for i in range(workspace.threads + 1)]
    begin = 0
    for columns, number, tables in path:
        arguments = columns.indptr, columns.indices, *tables, np.ascontiguousarray(thresholds), words, (begin, begin + number)
        workspace.run(
            [partial(kernels.edge_walks, *arguments, *bounds[thread : thread + 2], walks, edges) for thread in range(workspace.threads)]
        )
        begin += number
    return EdgeWalks(walks, edges)
