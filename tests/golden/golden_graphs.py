"""Graphs of the golden batches, computed by formulas, since NumPy may change its random streams."""

from functools import cache

import numpy as np

from hoptrain.engine import Graph, HeteroGraph

TRAIN = np.arange(0, 40, 3)
"""Training nodes of the small graph."""


def spread(number, salt):
    """Return irregular int64 in [0, 2**31) with shape (number,): splitmix64 of a counter that starts at ``salt``."""
    words = (np.arange(number, dtype=np.uint64) + np.uint64(salt << 32)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return (words >> np.uint64(33)).astype(np.int64)


def make_graph(num_nodes, num_edges, weights=np.float32):
    """Return a graph with hubs, nodes without in-edges, self loops, parallel and reverse edges, weights (some 0) and times."""
    src = spread(num_edges, 1) % num_nodes
    dst = np.minimum(spread(num_edges, 2) % (num_nodes - 4), spread(num_edges, 3) % (num_nodes - 4))  # low ids are hubs
    tenth = num_edges // 10
    src[:3] = dst[:3]
    src[3 : 3 + tenth], dst[3 : 3 + tenth] = src[-tenth:], dst[-tenth:]
    src[3 + tenth : 3 + 3 * tenth], dst[3 + tenth : 3 + 3 * tenth] = dst[-2 * tenth :], src[-2 * tenth :]
    values = (spread(num_edges, 4) % 8 / 7).astype(weights)
    return Graph.from_edges(src, dst, num_nodes, weights=values, times=spread(num_edges, 5) % 50)


@cache
def small():
    """Return a graph of 40 nodes, which suits the CUDA simulator."""
    return make_graph(40, 240)


@cache
def doubly_weighted():
    """Return the small graph with float64 weights."""
    return make_graph(40, 240, np.float64)


@cache
def wide():
    """Return the small graph with 64-bit ids and offsets, as for more than 2**31 nodes."""
    graph = small()
    columns = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    return Graph(*columns, weights=graph.weights, times=graph.times, is_sorted=True, validate=False)


@cache
def large():
    """Return a graph large enough for several threads to share a hop."""
    return make_graph(3000, 60_000)


@cache
def hetero_graph():
    """Return a graph with four relations.

    Two lead into one type, one of them from within; another leads into a type that the second hop reaches, and the last into an unreachable
    type.
    """

    def edges(salt, num_src, num_dst, number):
        return spread(number, salt) % num_src, spread(number, salt + 1) % num_dst

    relations = {("p", "cites", "p"): edges(10, 20, 20, 60), ("a", "writes", "p"): edges(20, 15, 20, 50)}
    relations |= {("p", "of", "a"): edges(30, 20, 15, 40), ("p", "in", "venue"): edges(40, 20, 4, 10)}
    return HeteroGraph.from_edges({"p": 20, "a": 15, "venue": 4}, relations)


@cache
def valued():
    """Return the heterogeneous graph with weights, and with times for all relations except one."""
    graph = hetero_graph()
    relations = {key: (columns.indptr, columns.indices) for key, columns in graph.relations.items()}
    weights = {key: (spread(columns.num_edges, 60) % 5).astype(np.float32) for key, columns in graph.relations.items()}
    times = {key: spread(columns.num_edges, 70) % 50 for key, columns in graph.relations.items() if key[1] != "of"}
    return HeteroGraph(graph.num_nodes, relations, weights=weights, times=times)


def rows(num_nodes, width, salt):
    """Return float32 features in [0, 1) with shape (num_nodes, width)."""
    return (spread(num_nodes * width, salt).reshape(num_nodes, width) / 2**31).astype(np.float32)
