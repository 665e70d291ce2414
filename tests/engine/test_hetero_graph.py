"""HeteroGraph: typed vertices and edges."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.hetero_graph import HeteroGraph

SIZES = {"author": 4, "paper": 3}
WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")


def test_columns_are_sorted_and_narrow():
    graph = HeteroGraph.from_edges(SIZES, {WRITES: ([3, 0, 1], [2, 2, 0]), CITES: (np.array([1]), np.array([0]))})
    writes = graph.relations[WRITES]
    assert writes.indptr.tolist() == [0, 1, 1, 3]
    assert writes.indices.tolist() == [1, 0, 3]
    assert writes.indices.dtype == writes.indptr.dtype == np.int32
    assert not writes.indices.flags.writeable
    assert graph.num_edges == 4
    assert list(graph.relations) == [WRITES, CITES]
    assert repr(graph) == "HeteroGraph(num_nodes={'author': 4, 'paper': 3}, relations: author:writes:paper (3), paper:cites:paper (1))"


def test_more_destinations_than_sources():
    graph = HeteroGraph.from_edges(SIZES, {("paper", "of", "author"): ([2, 0], [3, 0])})
    assert graph.relations["paper", "of", "author"].indptr.tolist() == [0, 1, 1, 1, 2]


def test_from_pyg():
    data = HeteroData()
    data["author"].num_nodes, data["paper"].num_nodes = 4, 3
    data[WRITES].edge_index = np.array([[3, 0], [2, 1]])
    graph = HeteroGraph.from_pyg(data)
    assert graph.num_nodes == SIZES
    assert graph.relations[WRITES].indices.tolist() == [0, 3]


EDGES = {CITES: ([1], [0]), WRITES: ([3, 0, 1], [2, 2, 0])}
WEIGHTS = {WRITES: np.array([0.5, 2, 3], np.float32)}
TIMES = {WRITES: np.array([7, 5, 9]), CITES: np.array([4])}


def test_edges_keep_ids_weights_and_times():
    graph = HeteroGraph.from_edges(SIZES, EDGES, weights=WEIGHTS, times=TIMES)
    writes, cites = graph.relations[WRITES], graph.relations[CITES]
    src, dst = EDGES[WRITES]
    assert writes.edge_ids.tolist() == [2, 1, 0]
    assert writes.edge_ids.dtype == np.int32
    assert [src[i] for i in writes.edge_ids] == writes.indices.tolist()
    assert [dst[i] for i in writes.edge_ids] == np.repeat(np.arange(3), np.diff(writes.indptr)).tolist()
    assert writes.weights.tolist() == [3, 2, 0.5]
    assert writes.times.tolist() == [9, 5, 7]
    assert writes.ids_of(np.array([2, -1, 0])).tolist() == [0, -1, 2]
    assert writes.places_of(np.array([0, 2, 0])).tolist() == [2, 0, 2]
    assert (cites.edge_ids, cites.weights, cites.times.tolist()) == (None, None, [4])
    with pytest.raises(InputError, match=r"edge 3 does not exist: RelationColumns\(num_src=4, num_dst=3, num_edges=3\) has no edge"):
        writes.places_of(np.array([3]))


def of_pyg():
    data = HeteroData()
    data["author"].num_nodes, data["paper"].num_nodes = 4, 3
    data[WRITES].edge_index, data[CITES].edge_index = np.array([[3, 0, 1], [2, 2, 0]]), np.array([[1], [0]])
    return data


@pytest.mark.parametrize("where", ["edges", "vertices"])
def test_attributes_of_pyg(where):
    data = of_pyg()
    data[WRITES].w = torch.tensor([[1], [2], [3]])
    if where == "edges":
        data[WRITES].time = torch.tensor([30, 0, 10])
    else:
        data["author"].time = torch.tensor([0, 10, 20, 30])
    graph = HeteroGraph.from_pyg(data, weight_attr="w", time_attr="time")
    writes, cites = graph.relations[WRITES], graph.relations[CITES]
    assert (writes.weights.tolist(), writes.times.tolist()) == ([3, 2, 1], [10, 0, 30])
    assert (cites.weights, cites.times) == (None, None)


def test_attributes_that_pyg_has_not():
    data = of_pyg()
    data[WRITES].time, data["paper"].time = torch.arange(3), torch.arange(3)
    with pytest.raises(InputError, match="'time' is an attribute of edge types and vertex types"):
        HeteroGraph.from_pyg(data, time_attr="time")
    with pytest.raises(InputError, match="'when' is an attribute of no edge types nor vertex types"):
        HeteroGraph.from_pyg(data, time_attr="when")
    with pytest.raises(InputError, match="'w' is an attribute of no edge types"):
        HeteroGraph.from_pyg(data, weight_attr="w")


def test_from_dgl():
    dgl = SimpleNamespace(
        canonical_etypes=list(EDGES),
        ntypes=list(SIZES),
        num_nodes=SIZES.get,
        edges=lambda etype: tuple(torch.tensor(ends) for ends in EDGES[etype]),
    )
    graph = HeteroGraph.from_dgl(dgl)
    assert (graph.num_nodes, list(graph.relations)) == (SIZES, [CITES, WRITES])
    assert graph.relations[WRITES].edge_ids.tolist() == [2, 1, 0]


def test_saved_and_opened(tmp_path):
    graph = HeteroGraph.from_edges(SIZES, EDGES, weights=WEIGHTS, times=TIMES)
    graph.save(tmp_path / "graph")
    opened = HeteroGraph.open(tmp_path / "graph")
    assert (opened.num_nodes, list(opened.relations)) == (SIZES, [CITES, WRITES])
    for relation, columns in graph.relations.items():
        found = opened.relations[relation].arrays()
        assert {name: array.tolist() for name, array in found.items()} == {name: array.tolist() for name, array in columns.arrays().items()}
        assert isinstance(found["indices"].base.base, np.memmap), "not copied"
    with pytest.raises(InputError, match="hetero-graph folders are not written over"):
        graph.save(tmp_path / "graph")
    with pytest.raises(InputError, match="holds 'hetero-graph'"):
        Dataset.open(tmp_path / "graph")


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ({WRITES: ([4], [0])}, "author:writes:paper: the source of edge 0 is vertex 4, but the graph has the 4 vertices"),
        ({WRITES: ([0], [3])}, "the destination of edge 0 is vertex 3"),
        ({WRITES: ([0, 1], [0])}, "author:writes:paper: 2 sources and 1 destinations"),
        ({("author", "writes", "book"): ([0], [0])}, "joins type 'book': num_nodes has author, paper"),
        ({("author", "a:b", "paper"): ([0], [0])}, "without a ':' in them"),
        ({("author", "paper"): ([0], [0])}, "is no relation"),
    ],
)
def test_bad_edges(edges, message):
    with pytest.raises(InputError, match=message):
        HeteroGraph.from_edges(SIZES, edges)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0, 1, 1], [0]), "indptr of author:writes:paper has 3 entries: it holds one more than the 3 vertices of type 'paper'"),
        (([0, 1, 1, 2], [0]), "indptr runs from 0 to 2"),
        (([0, 1, 0, 1], [0]), "indptr falls from 1 to 0"),
        (([0, 1, 1, 1], [9]), "is vertex 9"),
    ],
)
def test_bad_columns(columns, message):
    with pytest.raises(InputError, match=message):
        HeteroGraph(SIZES, {WRITES: columns})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"weights": {("a", "b", "c"): [1.0]}},
            r"weights of \('a', 'b', 'c'\): the graph's relations are paper:cites:paper, author:writes:paper",
        ),
        ({"weights": {WRITES: np.ones(4)}}, "weights are float64 of shape"),
        ({"weights": {WRITES: np.array([1.0, -1, 2])}}, "the weight of edge 1 is -1.0"),
        ({"times": {WRITES: np.arange(4)}}, "times are int64 of shape"),
    ],
)
def test_bad_values_of_edges(values, message):
    with pytest.raises(InputError, match=message):
        HeteroGraph.from_edges(SIZES, EDGES, **values)
    with pytest.raises(InputError, match="2 in edge_ids"):
        HeteroGraph({"a": 2}, {("a", "r", "a"): ([0, 1, 2], [0, 0])}, edge_ids={("a", "r", "a"): np.array([2, 2])})


def test_a_negative_number_of_vertices():
    with pytest.raises(InputError, match="num_nodes of 'author' is -1"):
        HeteroGraph({"author": -1}, {})


def test_relations_turned_round():
    edges = {WRITES: ([3, 0, 1, 3], [2, 2, 0, 1]), CITES: ([1, 0], [0, 2])}
    graph = HeteroGraph.from_edges(SIZES, edges, weights={WRITES: np.arange(4.0)}, times={WRITES: np.array([7, 5, 6, 8])}).with_reverse()
    back = ("paper", "rev_writes", "author")
    assert list(graph.relations) == [WRITES, CITES, back, ("paper", "rev_cites", "paper")]
    expected = HeteroGraph.from_edges(
        SIZES, {back: edges[WRITES][::-1]}, weights={back: np.arange(4.0)}, times={back: np.array([7, 5, 6, 8])}
    ).relations[back]
    made = graph.relations[back]
    assert made.arrays().keys() == expected.arrays().keys()
    for name, array in expected.arrays().items():
        assert getattr(made, name).tolist() == array.tolist(), name
    assert (made.num_src, made.num_nodes) == (3, 4)
    with pytest.raises(
        InputError, match=r"^paper:rev_writes:author is there: author:writes:paper turned round is to have this name; rename it$"
    ):
        graph.with_reverse()


def test_what_was_saved_is_opened_without_being_read(tmp_path, monkeypatch):
    """As a plain graph: a large one has as many pages to read as files."""
    HeteroGraph.from_edges(SIZES, EDGES).save(tmp_path / "graph")
    monkeypatch.setattr("hoptrain.engine.hetero_graph.checked_columns", lambda *_: pytest.fail("it was read"))
    opened = HeteroGraph.open(tmp_path / "graph", verify=False)
    assert opened.relations[WRITES].edge_ids.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HeteroGraph.from_edges(SIZES, {WRITES: np.zeros((5, 2), int)}), "author:writes:paper: its edges are 5 arrays: give two"),
        (lambda: HeteroGraph.from_edges(SIZES, EDGES, times={WRITES: [0.5, 1, 2]}), "author:writes:paper: times are float64"),
        (lambda: HeteroGraph.from_edges(SIZES, EDGES, weights={WRITES: [1.0, -1, 2]}), "author:writes:paper: the weight of edge 1 is -1"),
        (lambda: HeteroGraph.from_edges({"a": 2}, {("a", 1, "a"): ([0], [1])}), r"\('a', 1, 'a'\) is no relation: it is"),
        (lambda: HeteroGraph.from_edges({"a": 2.5}, {}), "num_nodes of 'a' is 2.5: a type has 0 vertices or more"),
        (lambda: HeteroGraph.from_edges({"a": None}, {}), "num_nodes of 'a' is None"),
    ],
)
def test_odd_arguments(make, message):
    with pytest.raises(InputError, match=message):
        make()
