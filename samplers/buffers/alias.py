"""Alias tables for draws by the edge weights of a graph, and checks of these weights."""

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
"""Bytes that the alias tables take for each edge."""
_PIECE = 1 << 16
"""Number of weights that are checked at a time for a value above 0. The first of these blocks usually has one, so no further block is read from a file."""


class AliasTables(NamedTuple):
    """The alias tables of all columns of a graph, which take 8 bytes per edge; see ``hoptrain.kernels.cpu.alias``."""

    threshold: Array
    """(E,) uint32 thresholds. A drawn edge is kept with probability threshold / 2**32; otherwise its alias is taken."""
    alias: Array
    """(E,) int32 offset within the column of each edge's alias; -1 in a column without positive weight."""


NO_TABLES = AliasTables(np.zeros(0, np.uint32), np.zeros(0, np.int32))


def build_alias_tables(graph: RelationColumns) -> AliasTables:
    """Return the alias tables of ``graph.weights``.

    Raises:
        InputError: the graph has no weights, or all weights of its edges are 0.
    """
    return tables_of(graph.indptr, drawable_weights(graph))


def drawable_weights(graph: RelationColumns) -> Array:
    """Return ``graph.weights``, checked to contain a weight above 0. The weights of a graph's partition may all be 0.

    Raises:
        InputError: the graph has no weights, or all weights of its edges are 0.
    """
    weights = weights_of(graph)
    some = isinstance(graph, PartialGraph) or any(weights[i : i + _PIECE].any() for i in range(0, len(weights), _PIECE))
    if graph.num_edges and not some:
        raise no_weight(graph.num_edges)
    return weights


def no_weight(num_edges: int) -> InputError:
    """Return the error of a weighted sampler on a graph whose weights are all 0."""
    return InputError(
        f"weighted=True, but the weights of all {num_edges:,} edges are 0: no edge can be drawn; give some edges a weight above 0"
    )


def weights_of(graph: RelationColumns) -> Array:
    """Return ``graph.weights``.

    Raises:
        InputError: the graph has no weights.
    """
    if graph.weights is None:
        raise InputError("weighted=True, but the graph has no weights: give them to Graph or Graph.from_edges, or sample unweighted")
    return graph.weights


def tables_of(indptr: Array, weights: Array) -> AliasTables:
    """Return the alias tables of the columns of ``weights`` (E,), whose offsets are ``indptr``."""
    tables = AliasTables(np.empty(len(weights), np.uint32), np.empty(len(weights), np.int32))
    kernels.build_alias(indptr, weights, *tables)
    return tables


def count_positive_weights(graph: RelationColumns) -> Array:
    """Return the number (V,) int32 of edges of positive weight of each column."""
    positive = np.empty(graph.num_nodes, np.int32)
    count_positive(graph.indptr, graph.weights, positive)
    return positive
