"""Methods that assign nodes to partitions. All are deterministic."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.graph import Graph
from hoptrain.engine.partition.columns import CoarseGraph, contract, loads_of
from hoptrain.kernels.cpu.partition.count import ONE, count_requests
from hoptrain.kernels.cpu.partition.propagate import propagate

METHODS = ("stream", "metis", "range")
ROWS_SLACK, REQUESTS_SLACK = 1.05, 1.10
"""Maximum number of rows and maximum number of expected requests of a partition, as multiples of the average partition's."""
EXPECTED_FANOUT = 10
ROUNDS = 8
SMALL_ENOUGH = 1 << 22
"""Maximum number of edges of a coarsened graph that is passed to METIS."""
CLUSTERS_A_PART = 500


def assign(graph: Graph, num_parts: int, method: str = "stream") -> Array:
    """Assign each node to a partition, (V,) int32 in [0, num_parts).

    Args:
        graph: graph with V nodes; its edges are read in order, several times.
        num_parts: number of partitions P, from 1 to V.
        method: ``stream`` clusters nodes by label propagation, gives the small cluster graph to METIS, and then moves nodes across borders. It needs
            about 60 bytes of memory per node, in addition to the cluster graph. ``metis`` gives METIS the whole graph, about 100 bytes per edge. ``range``
            cuts the ids into ranges with equal numbers of expected requests, whatever the edges.

    Raises:
        InputError: the number of partitions is out of range, the method is unknown, or pymetis is not installed.
    """
    check_method(graph, num_parts, method)
    sizes = vertex_sizes(graph)
    if num_parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    if method == "range":
        return _by_range(sizes, num_parts)
    columns = CoarseGraph(graph.indptr, graph.indices, np.empty(0, np.int32), sizes)
    return _by_stream(columns, num_parts) if method == "stream" else _by_metis(columns, num_parts)


def check_method(graph: Graph, num_parts: int, method: str) -> None:
    """Raise InputError if ``assign`` does not support the arguments.

    Raises:
        InputError: the number of partitions is out of range, or the method is unknown.
    """
    if not 1 <= num_parts <= max(1, graph.num_nodes):
        raise InputError(
            f"parts is {num_parts}: a graph of {graph.num_nodes:,} nodes can have 1 to {max(1, graph.num_nodes)} partitions; give a number in this range"
        )
    if method not in METHODS:
        raise InputError(f"method is {method!r}: it must be one of {', '.join(METHODS)}; choose one")


def vertex_sizes(graph: Graph) -> Array:
    """Return the load of each node, (V, 2) int64: 1 row, and its expected number of requests in an epoch with fanout 10, in units of 1 / ``ONE``."""
    requests = np.full(graph.num_nodes, ONE, np.int64)  # each node is requested once as a seed
    count_requests(graph.indptr, graph.indices, EXPECTED_FANOUT, requests)
    return np.stack([np.ones(graph.num_nodes, np.int64), requests], axis=1)


def metis(columns: CoarseGraph, num_parts: int, weights: Array | None = None) -> Array:
    """Partition a graph with METIS (Karypis & Kumar 1998), (V,) int64. It must have each edge in both directions and no self loops.

    Raises:
        InputError: pymetis is not installed.
    """
    if find_spec("pymetis") is None:
        raise InputError("pymetis is not installed: METIS needs it; 'pip install hoptrain[cluster]'")
    pymetis = import_module("pymetis")
    sizes = columns.edge_sizes if len(columns.edge_sizes) else None
    adjacency = pymetis.CSRAdjacency(columns.indptr, columns.indices)
    _, found = pymetis.part_graph(num_parts, adjacency, vweights=weights, eweights=sizes)
    return np.array(found, np.int64)


def _by_range(sizes: Array, num_parts: int) -> Array:
    """Partition into ranges of ids with equal loads, where a load combines rows and requests."""
    ends = np.cumsum(_joint(sizes))
    parts: Array = (ends * num_parts // (int(ends[-1]) + 1)).astype(np.int32)
    return parts


def _by_metis(columns: CoarseGraph, num_parts: int) -> Array:
    """Partition the whole graph with METIS, without clustering."""
    whole = contract(columns, np.arange(columns.num_nodes, dtype=np.int32), columns.num_nodes)
    labels = metis(whole, num_parts, _joint(columns.sizes)).astype(np.int32)
    return _refined(columns, labels, num_parts)


def _by_stream(columns: CoarseGraph, num_parts: int) -> Array:
    """Cluster repeatedly until METIS can partition the cluster graph, then refine the partitions at each level."""
    levels: list[tuple[CoarseGraph, Array]] = []
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


def _clustered(columns: CoarseGraph, share: int) -> Array:
    """Return cluster labels (V,) int32 without gaps. Each cluster has at most 1 / ``share`` of all rows and of all requests, or is a single node."""
    labels = np.arange(columns.num_nodes, dtype=np.int32)
    limits = np.maximum(columns.sizes.sum(0) // share, 1)
    _propagate(columns, labels, columns.sizes.copy(), limits)
    is_used = np.zeros(columns.num_nodes, bool)
    is_used[labels] = True
    return (np.cumsum(is_used, dtype=np.int32) - 1)[labels]


def _refined(columns: CoarseGraph, parts: Array, num_parts: int) -> Array:
    """Return the partition (V,) of each node after moving nodes to the partition of most of their neighbours, within the load limits."""
    loads = loads_of(columns.sizes, parts, num_parts)
    limits = (columns.sizes.sum(0) * (ROWS_SLACK, REQUESTS_SLACK) / num_parts).astype(np.int64)
    _propagate(columns, parts, loads, limits)
    return parts


def _propagate(columns: CoarseGraph, labels: Array, loads: Array, limits: Array) -> None:
    """Run label propagation until few labels change, at most ``ROUNDS`` times."""
    gains = np.zeros(len(loads), np.int64)
    seen = np.empty(int(np.diff(columns.indptr).max(initial=0)), np.int32)
    for _ in range(ROUNDS):
        if propagate(*columns[:3], columns.sizes, labels, loads, limits, gains, seen) * 1000 < len(labels):
            break


def _joint(sizes: Array) -> Array:
    """Combine rows and requests into one weight per node, (V,) int64. Rows and requests each contribute 500 on average."""
    means = sizes.sum(0) / max(1, len(sizes))
    joint: Array = np.maximum((sizes * (500 / means)).sum(1), 1).astype(np.int64)
    return joint
