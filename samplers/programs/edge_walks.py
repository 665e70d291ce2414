"""Random walks that return the edges they took, for metapaths and by weight."""

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
    """The nodes and edges of random walks; entries after the end of a walk are -1."""

    vertices: Array
    """(W, L + 1) visited nodes, the root first."""
    places: Array
    """(W, L) int64 CSC positions of the edges that the walks took, in the columns of the step's relation."""


class Steps(NamedTuple):
    """A number of consecutive steps of a walk along one relation, each to the source of an in-edge."""

    columns: RelationColumns
    """Columns whose edges are followed; the sources may be of another node type."""
    number: int = 1
    """Number of steps."""
    tables: AliasTables = NO_TABLES
    """Alias tables for draws by weight, from ``build_alias_tables(columns)``; with ``NO_TABLES`` all edges are equally likely."""


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
    """Return random walks of up to L steps. A step leads from a node to the source of one of its in-edges.

    Args:
        path: steps of the walks, L in all.
        roots: (W,) node ids, which may repeat: walk w depends only on w and its root.
        ends: probability that a walk ends before a step, or (L,) one for each step.
        seed: random seed, which with epoch and batch addresses all draws.
        epoch: number of the epoch in the address of the draws.
        batch: number of the batch in the address of the draws.
        workspace: workspace whose threads divide the walks; by default a new one with one thread.

    Raises:
        InputError: a root is outside the graph, or a number is out of range.
    """
    check_address(seed, epoch, batch)
    roots, most, length = check_nodes(np.asarray(roots), path[0].columns.num_nodes), _MOST_STEPS, sum(steps.number for steps in path)
    if not 0 < length < most or len(roots) >= MAX_VERTEX:
        raise InputError(f"length is {length}: a walk has 1 to {most - 1:,} steps; give a length in this range")
    wanted = np.asarray(ends, np.float64)
    if wanted.shape not in ((), (length,)) or not ((wanted >= 0) & (wanted <= 1)).all():
        raise InputError(f"ends is {ends}: a walk of {length} steps needs one probability, or {length}, in [0, 1]; give for instance 0.1")
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
