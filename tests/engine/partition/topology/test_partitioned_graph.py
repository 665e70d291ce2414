"""The folder of a data set with a partitioned graph: the facts that every machine has, and input errors."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from cases.mistakes import refused
from ranks import in_threads

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.partition.exchange import LocalExchange
from hoptrain.engine.partition.folder import GRAPH, open_partition, write_partition
from hoptrain.engine.partition.runs import LeftRunError, RunExchange


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    graph = Graph.from_edges(*rng.integers(0, 50, (2, 300)), 50, weights=rng.random(300))
    return Dataset(name="made", graph=graph, x=rng.random((50, 3)), y=rng.integers(0, 2, 50), splits={"train": np.arange(9)})


@pytest.fixture(scope="module")
def partitioned(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("partitioned") / "parts"
    write_partition(data, folder, 3, "range", graph="partitioned")
    return folder


def test_a_machine_has_its_edges_alone(data, partitioned):
    found = open_partition(partitioned)
    assert found.data.splits["train"].tolist() == list(range(9))
    assert found.data.graph.in_degrees().tolist() == data.graph.in_degrees().tolist()
    assert found.data.graph.num_edges == sum(found.columns(part).graph.num_edges for part in range(3)) == 300
    for part in range(3):
        columns = found.columns(part)
        own = np.flatnonzero(found.owner(np.arange(50)) == part)
        assert sorted(columns.graph.destinations().tolist()) == np.repeat(own, data.graph.in_degrees()[own]).tolist()
        assert columns.graph.weights.sum() == pytest.approx(data.graph.weights[np.isin(data.graph.destinations(), own)].sum())
    assert (
        Dataset.open(partitioned / GRAPH).graph.num_edges == 0
    )  # opened as a data set, the graph has no edges, since they are in the partitions


def test_what_needs_all_edges_is_refused(partitioned):
    graph = pickle.loads(pickle.dumps(open_partition(partitioned).data.graph))
    for what in ("indices", "weights"):
        with refused(str(partitioned), "partitioned graph machine all edges", "write whole hoptrain partition --graph"):
            getattr(graph, what)
    assert (graph.num_nodes, graph.num_edges, graph.edge_ids) == (50, 300, None)


@pytest.mark.parametrize("weight", [None, 0.0, 1.0])
def test_whether_any_edge_has_a_weight_is_known_everywhere(data, tmp_path, weight):
    weights = None if weight is None else np.r_[np.zeros(299), weight]
    write_partition(
        replace(data, graph=Graph(data.graph.indptr, data.graph.indices, weights=weights)), tmp_path / "parts", 3, graph="partitioned"
    )
    assert pickle.loads(pickle.dumps(open_partition(tmp_path / "parts").data.graph)).has_weight is (weight != 0)


def test_graphs_that_cannot_be_partitioned(data, tmp_path):
    with refused("'part'", "graph one", "replicated, partitioned"):
        write_partition(data, tmp_path / "parts", 3, graph="part")
    edges = Dataset(name="made", graph=data.graph, x=data.x, edge_attr=np.zeros((300, 2)))
    with refused("made", "features graph whole partitioned", "leave graph='partitioned' out"):
        write_partition(edges, tmp_path / "parts", 3, graph="partitioned")
    with refused("parts is 1", "graph='partitioned' single machine whole", "more parts leave out"):
        write_partition(data, tmp_path / "parts", 1, graph="partitioned")
    assert not (tmp_path / "parts").exists()


def test_a_run_that_was_left():
    """If a machine leaves epoch run 1 before its second round, the other machine notices there, and both continue in run 2."""
    exchanges = [RunExchange(exchange) for exchange in LocalExchange.among(2)]

    def say(machine, run, word):
        exchanges[machine].run = run
        return exchanges[machine].exchange([np.full(0 if to == machine else 3, word, np.uint8) for to in range(2)])[1 - machine].tolist()

    def stays():
        heard = [say(0, 1, 10)]
        with pytest.raises(LeftRunError):
            say(0, 1, 11)
        return [*heard, say(0, 2, 12)]

    def leaves():
        return [say(1, 1, 20), say(1, 2, 22)]

    assert in_threads([stays, leaves]) == [[[20] * 3, [22] * 3], [[10] * 3, [12] * 3]]
    assert [exchange.num_rounds for exchange in exchanges] == [3, 3]
    assert exchanges[0].num_sent == 3 * (8 + 3)
