"""A machine's partition of the graph: the columns of its own nodes equal those of the whole graph."""

import numpy as np
from cases.mistakes import refused

from hoptrain.engine import Graph
from hoptrain.engine.partition.exchange import LocalExchange
from hoptrain.engine.partition.topology.columns import own_columns
from hoptrain.engine.partition.topology.trade import packed, trade, unpacked


def test_own_columns_are_those_of_the_whole_graph():
    rng = np.random.default_rng(1)
    graph = Graph.from_edges(*rng.integers(0, 40, (2, 200)), 45, weights=rng.random(200))
    labels = rng.integers(0, 3, 45)
    order = np.argsort(labels, kind="stable")
    place = np.empty(45, np.uint32)
    place[order] = np.arange(45)
    bounds = np.searchsorted(labels[order], np.arange(4))
    for part in range(3):
        own = own_columns(graph, place, bounds, part)
        assert own.owner(np.arange(45)).tolist() == labels.tolist()
        assert own.graph.num_edges == sum(graph.in_degrees()[labels == part])
        for v in range(45):
            here, there = (slice(*g.indptr[v : v + 2].tolist()) for g in (own.graph, graph))
            if labels[v] != part:
                assert here.start == here.stop
                continue
            assert own.graph.indices[here].tolist() == graph.indices[there].tolist()
            assert own.graph.weights[here].tolist() == graph.weights[there].tolist()
            edges = np.arange(here.start, here.stop)
            places = own.places(np.array([v]), np.array([0, len(edges)]), edges)
            assert places.tolist() == list(range(there.start, there.stop))


def test_messages():
    arrays = [np.arange(3, dtype=np.int32), np.empty(0, np.uint64), np.array([0.5], np.float32)]
    back = unpacked(packed(*arrays), np.int32, np.uint64, np.float32)
    assert [(a.dtype, a.tolist()) for a in back] == [(a.dtype, a.tolist()) for a in arrays]
    with refused("40 bytes", "message machine other all", "install one"):
        unpacked(packed(*arrays), np.int32, np.uint64)


def test_a_question_to_oneself_does_not_travel():
    [exchange] = LocalExchange.among(1)
    [answer] = trade(exchange, [np.array([1, 2], np.uint8)], lambda question: question + 1)
    assert answer.tolist() == [2, 3]
