"""HeteroGraph: node types and relations."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from torch_geometric.data import HeteroData

from hoptrain.engine import Dataset
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
    assert writes.csc_positions(np.array([0, 2, 0])).tolist() == [2, 0, 2]
    assert (cites.edge_ids, cites.weights, cites.times.tolist()) == (None, None, [4])
    with refused("edge 3", "not exist edge ids 0", "leave out"):
        writes.csc_positions(np.array([3]))


def of_pyg():
    data = HeteroData()
    data["author"].num_nodes, data["paper"].num_nodes = 4, 3
    data[WRITES].edge_index, data[CITES].edge_index = np.array([[3, 0, 1], [2, 2, 0]]), np.array([[1], [0]])
    return data


@pytest.mark.parametrize("where", ["edges", "nodes"])
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
    with refused(str(tmp_path / "graph"), "exists hetero-graph written over", "remove name another"):
        graph.save(tmp_path / "graph")
    with refused("'hetero-graph'", "holds needed 'dataset'", "convert"):
        Dataset.open(tmp_path / "graph")


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
    with refused("paper:rev_writes:author", "with_reverse author:writes:paper needs name", "rename"):
        graph.with_reverse()


def test_what_was_saved_is_opened_without_being_read(tmp_path, monkeypatch):
    """A saved graph is opened without reading its edges if ``verify`` is False; reading a large graph would take long."""
    HeteroGraph.from_edges(SIZES, EDGES).save(tmp_path / "graph")
    monkeypatch.setattr("hoptrain.engine.columns._checked_columns", lambda *_: pytest.fail("it was read"))
    opened = HeteroGraph.open(tmp_path / "graph", verify=False)
    assert opened.relations[WRITES].edge_ids.tolist() == [2, 1, 0]


# Input errors.


def pyg_attributes(**names):
    data = of_pyg()
    data[WRITES].time, data["paper"].time = torch.arange(3), torch.arange(3)
    HeteroGraph.from_pyg(data, **names)


def writing(src, dst, relation=WRITES):
    HeteroGraph.from_edges(SIZES, {relation: (src, dst)})


def columns_of_writing(indptr, indices):
    HeteroGraph(SIZES, {WRITES: (indptr, indices)})


def values_of_edges(**values):
    HeteroGraph.from_edges(SIZES, EDGES, **values)


ATTRIBUTES = {
    "an attribute of edges and of nodes": Mistake(
        lambda: pyg_attributes(time_attr="time"), value="'time'", rule="attribute edge types node", remedy="one another name"
    ),
    "an attribute of neither edges nor nodes": Mistake(
        lambda: pyg_attributes(time_attr="when"), value="'when'", rule="attribute no edge node", remedy="another name"
    ),
    "an attribute of no edges": Mistake(
        lambda: pyg_attributes(weight_attr="w"), value="'w'", rule="attribute no edge types", remedy="another name"
    ),
}

EDGE_ARRAYS = {
    "an unknown source": Mistake(
        lambda: writing([4], [0]), value="node 4", rule="author:writes:paper source edge 0", remedy="4 nodes num_nodes"
    ),
    "an unknown destination": Mistake(
        lambda: writing([0], [3]), value="node 3", rule="author:writes:paper destination edge 0", remedy="3 nodes num_nodes"
    ),
    "more sources than destinations": Mistake(
        lambda: writing([0, 1], [0]), value="src has 2", rule="author:writes:paper dst has 1", remedy="arrays equal length"
    ),
    "an unknown type": Mistake(
        lambda: writing([0], [0], ("author", "writes", "book")),
        value="'book'",
        rule="author:writes:book paper type",
        remedy="num_nodes add",
    ),
    "a colon in a name": Mistake(
        lambda: writing([0], [0], ("author", "a:b", "paper")), value="'a:b'", rule="no relation without ':'", remedy="rename"
    ),
    "a relation named ''": Mistake(
        lambda: writing([0], [0], ("author", "", "paper")), value="''", rule="relation non-empty", remedy="rename"
    ),
    "a type named ''": Mistake(lambda: HeteroGraph({"": 1}, {}), value="''", rule="node type non-empty name", remedy="rename"),
    "a relation without a name": Mistake(
        lambda: writing([0], [0], ("author", "paper")), value="('author', 'paper')", rule="no relation source destination", remedy="rename"
    ),
    "a relation whose name is a number": Mistake(
        lambda: writing([0], [1], ("a", 1, "a")), value="('a', 1, 'a')", rule="no relation source destination", remedy="rename"
    ),
    "edges as pairs": Mistake(
        lambda: HeteroGraph.from_edges(SIZES, {WRITES: np.zeros((5, 2), int)}),
        value="5 arrays",
        rule="author:writes:paper edges",
        remedy="two sources destinations",
    ),
    "too few offsets": Mistake(
        lambda: columns_of_writing([0, 1, 1], [0]),
        value="3 entries",
        rule="indptr author:writes:paper one more",
        remedy="3 nodes 'paper' from_edges",
    ),
    "offsets beyond the edges": Mistake(
        lambda: columns_of_writing([0, 1, 1, 2], [0]), value="0 to 2", rule="author:writes:paper indptr runs", remedy="0 to 1"
    ),
    "offsets that descend": Mistake(
        lambda: columns_of_writing([0, 1, 0, 1], [0]), value="1 to 0", rule="author:writes:paper indptr falls", remedy="from_edges"
    ),
    "an unknown source in columns": Mistake(
        lambda: columns_of_writing([0, 1, 1, 1], [9]), value="node 9", rule="author:writes:paper source edge 0", remedy="num_nodes"
    ),
}

VALUES = {
    "weights of an unknown relation": Mistake(
        lambda: values_of_edges(weights={("a", "b", "c"): [1.0]}),
        value="('a', 'b', 'c')",
        rule="weights relation graph",
        remedy="paper:cites:paper author:writes:paper name",
    ),
    "too many weights": Mistake(
        lambda: values_of_edges(weights={WRITES: np.ones(4)}),
        value="float64 of shape (4,)",
        rule="author:writes:paper weights 3 edges",
        remedy="convert",
    ),
    "a negative weight": Mistake(
        lambda: values_of_edges(weights={WRITES: np.array([1.0, -1, 2])}),
        value="-1.0",
        rule="author:writes:paper weight edge 1",
        remedy="drop",
    ),
    "a negative weight in a list": Mistake(
        lambda: values_of_edges(weights={WRITES: [1.0, -1, 2]}), value="-1.0", rule="author:writes:paper weight edge 1", remedy="drop"
    ),
    "too many times": Mistake(
        lambda: values_of_edges(times={WRITES: np.arange(4)}),
        value="int64 of shape (4,)",
        rule="author:writes:paper times 3 edges",
        remedy="convert",
    ),
    "times of floats": Mistake(
        lambda: values_of_edges(times={WRITES: [0.5, 1, 2]}), value="float64", rule="author:writes:paper times integers", remedy="convert"
    ),
    "an edge id twice": Mistake(
        lambda: HeteroGraph({"a": 2}, {("a", "r", "a"): ([0, 1, 2], [0, 0])}, edge_ids={("a", "r", "a"): np.array([2, 2])}),
        value="2 in edge_ids",
        rule="a:r:a edge ids distinct",
        remedy="leave out",
    ),
    "a negative number of nodes": Mistake(
        lambda: HeteroGraph({"author": -1}, {}), value="-1", rule="num_nodes 'author' 0 nodes", remedy="number"
    ),
    **{
        f"{wrong} nodes": Mistake(
            lambda wrong=wrong: HeteroGraph.from_edges({"a": wrong}, {}),
            value=str(wrong),
            rule="num_nodes 'a' 0 nodes",
            remedy="number",
        )
        for wrong in (2.5, None)
    },
}

MISTAKES = ATTRIBUTES | EDGE_ARRAYS | VALUES


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
