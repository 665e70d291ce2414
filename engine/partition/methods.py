"""Who owns which node: three ways to part a graph, each the same on every call."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.graph import Graph
from hoptrain.engine.partition.columns import Columns, contract, loads_of
from hoptrain.kernels.cpu.partition.count import ONE, count_requests
from hoptrain.kernels.cpu.partition.propagate import propagate

METHODS = ("stream", "metis", "range")
ROWS_SLACK, REQUESTS_SLACK = 1.05, 1.10
"""What a part may have of rows and of expected requests, as multiples of an even share."""
EXPECTED_FANOUT = 10
ROUNDS = 8
SMALL_ENOUGH = 1 << 22
"""Entries of a clusters' graph that METIS is given."""
CLUSTERS_A_PART = 500


def assign(graph: Graph, num_parts: int, method: str = "stream") -> Array:
    """The part of each node, (V,) int32 in [0, num_parts).

    Args:
        graph: V nodes; edges are read in their order, several times.
        num_parts: P, from 1 to V.
        method: ``stream`` joins nodes to clusters by label propagation, gives the small graph of clusters to METIS, and lets nodes change
            over the borders: memory of about 60 bytes a node, and what the clusters' graph takes. ``metis`` gives METIS the whole graph, about
            100 bytes an edge. ``range`` cuts the ids in ranges of as many expected requests, whatever the edges.

    Raises:
        InputError: parts that cannot be had, an unknown method, or no pymetis.
    """
    check_method(graph, num_parts, method)
    sizes = vertex_sizes(graph)
    if num_parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    if method == "range":
        return _by_range(sizes, num_parts)
    columns = Columns(graph.indptr, graph.indices, np.empty(0, np.int32), sizes)
    return _by_stream(columns, num_parts) if method == "stream" else _by_metis(columns, num_parts)


def check_method(graph: Graph, num_parts: int, method: str) -> None:
    """Whether ``assign`` takes its arguments.

    Raises:
        InputError: parts that cannot be had, or an unknown method.
    """
    if not 1 <= num_parts <= max(1, graph.num_nodes):
        raise InputError(f"parts is {num_parts}: a graph of {graph.num_nodes:,} nodes has 1 to {max(1, graph.num_nodes)} parts; correct it")
    if method not in METHODS:
        raise InputError(f"method is {method!r}: a graph is parted by {', '.join(METHODS)}; choose one")


def vertex_sizes(graph: Graph) -> Array:
    """What each node costs its owner, (V, 2) int64: one row; and the requests of an epoch with fan-out 10, in parts of ``ONE``."""
    requests = np.full(graph.num_nodes, ONE, np.int64)  # as a seed
    count_requests(graph.indptr, graph.indices, EXPECTED_FANOUT, requests)
    return np.stack([np.ones(graph.num_nodes, np.int64), requests], axis=1)


def metis(columns: Columns, num_parts: int, weights: Array | None = None) -> Array:
    """The part of each node, (V,) int64, by METIS (Karypis & Kumar 1998). Each edge has to be there in both directions, and no loop.

    Raises:
        InputError: pymetis is not installed.
    """
    if find_spec("pymetis") is None:
        raise InputError("METIS parts the graph, but pymetis is not installed: 'pip install hoptrain[cluster]'")
    pymetis = import_module("pymetis")
    sizes = columns.edge_sizes if len(columns.edge_sizes) else None
    adjacency = pymetis.CSRAdjacency(columns.indptr, columns.indices)
    _, found = pymetis.part_graph(num_parts, adjacency, vweights=weights, eweights=sizes)
    return np.array(found, np.int64)


def _by_range(sizes: Array, num_parts: int) -> Array:
    """Ranges of ids: an even share of rows and requests together."""
    ends = np.cumsum(_joint(sizes))
    parts: Array = (ends * num_parts // (int(ends[-1]) + 1)).astype(np.int32)
    return parts


def _by_metis(columns: Columns, num_parts: int) -> Array:
    """METIS on the whole graph: every node a cluster."""
    whole = contract(columns, np.arange(columns.num_nodes, dtype=np.int32), columns.num_nodes)
    labels = metis(whole, num_parts, _joint(columns.sizes)).astype(np.int32)
    return _refined(columns, labels, num_parts)


def _by_stream(columns: Columns, num_parts: int) -> Array:
    """Clusters, clusters of clusters until METIS can take them, their parts, and nodes that change over the borders."""
    levels: list[tuple[Columns, Array]] = []
    level, share = columns, CLUSTERS_A_PART * num_parts
    while not levels or len(level.indices) > SMALL_ENOUGH:
        labels = _clustered(level, share)
        smaller = contract(level, labels, int(labels.max(initial=-1)) + 1)
        levels.append((level, labels))
        if smaller.num_nodes > 0.9 * level.num_nodes:
            share //= 4
        level = smaller
        if share < 4 * num_parts:
            break
    parts = metis(level, num_parts, _joint(level.sizes)).astype(np.int32)
    for finer, labels in reversed(levels):
        parts = _refined(finer, parts[labels], num_parts)
    return parts


def _clustered(columns: Columns, share: int) -> Array:
    """Labels (V,) int32, numbered without gaps, of clusters that have at most one ``share``-th of each size (or one node)."""
    labels = np.arange(columns.num_nodes, dtype=np.int32)
    limits = np.maximum(columns.sizes.sum(0) // share, 1)
    _propagate(columns, labels, columns.sizes.copy(), limits)
    is_used = np.zeros(columns.num_nodes, bool)
    is_used[labels] = True
    return (np.cumsum(is_used, dtype=np.int32) - 1)[labels]


def _refined(columns: Columns, parts: Array, num_parts: int) -> Array:
    """Parts (V,) after nodes have gone where most of their neighbours are, as far as the loads permit."""
    loads = loads_of(columns.sizes, parts, num_parts)
    limits = (columns.sizes.sum(0) * (ROWS_SLACK, REQUESTS_SLACK) / num_parts).astype(np.int64)
    _propagate(columns, parts, loads, limits)
    return parts


def _propagate(columns: Columns, labels: Array, loads: Array, limits: Array) -> None:
    """Passes until nothing changes, ``ROUNDS`` at most."""
    gains = np.zeros(len(loads), np.int64)
    seen = np.empty(int(np.diff(columns.indptr).max(initial=0)), np.int32)
    for _ in range(ROUNDS):
        if propagate(*columns[:3], columns.sizes, labels, loads, limits, gains, seen) * 1000 < len(labels):
            break


def _joint(sizes: Array) -> Array:
    """One weight for rows and requests, (V,) int64: of each kind an even part, a thousand for the mean of both."""
    means = sizes.sum(0) / max(1, len(sizes))
    joint: Array = np.maximum((sizes * (500 / means)).sum(1), 1).astype(np.int64)
    return joint
