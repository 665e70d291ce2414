"""Alias tables of a graph's edge weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.graph import PartialGraph
from hoptrain.kernels.cpu import alias as kernels
from hoptrain.kernels.cpu.nodewise.weighted import count_positive

TABLES_BYTES = 8
"""Of an edge."""
_PIECE = 1 << 16
"""Weights that are looked at together: nearly always the first ones say it, and of a file no more is read."""


class AliasTables(NamedTuple):
    """One table for each column, see ``hoptrain.kernels.cpu.alias``; 8 bytes an edge."""

    threshold: Array
    """(E,) uint32."""
    alias: Array
    """(E,) int32, offset within the column; -1 in a column without any weight."""


NO_TABLES = AliasTables(np.zeros(0, np.uint32), np.zeros(0, np.int32))


def build_alias_tables(graph: RelationColumns) -> AliasTables:
    """Alias tables of ``graph.weights``.

    Raises:
        InputError: the graph has no weights, or has edges and all their weights are 0, and is no part of one.
    """
    return tables_of(graph.indptr, drawable_weights(graph))


def drawable_weights(graph: RelationColumns) -> Array:
    """``graph.weights``, of which some are not 0.

    Raises:
        InputError: as ``build_alias_tables``.
    """
    weights = weights_of(graph)
    some = isinstance(graph, PartialGraph) or any(weights[i : i + _PIECE].any() for i in range(0, len(weights), _PIECE))
    if graph.num_edges and not some:
        raise no_weight(graph.num_edges)
    return weights


def no_weight(num_edges: int) -> InputError:
    """What a weighted sampler says of a graph all of whose weights are 0."""
    return InputError(f"weighted=True, but the weights of all {num_edges:,} edges are 0: no edge can be drawn; correct them")


def weights_of(graph: RelationColumns) -> Array:
    """``graph.weights``.

    Raises:
        InputError: the graph has none.
    """
    if graph.weights is None:
        raise InputError("weighted=True, but the graph has no weights: give them to Graph or Graph.from_edges, or sample unweighted")
    return graph.weights


def tables_of(indptr: Array, weights: Array) -> AliasTables:
    """A table for each column of ``weights`` (E,), which begin where ``indptr`` says."""
    tables = AliasTables(np.empty(len(weights), np.uint32), np.empty(len(weights), np.int32))
    kernels.build_alias(indptr, weights, *tables)
    return tables


def positive_of(graph: RelationColumns) -> Array:
    """(V,) int32, each column's edges of positive weight."""
    positive = np.empty(graph.num_nodes, np.int32)
    count_positive(graph.indptr, graph.weights, positive)
    return positive
