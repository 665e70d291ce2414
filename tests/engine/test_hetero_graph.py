"""HeteroGraph: typed vertices and edges."""

import numpy as np
import pytest
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


def test_saved_and_opened(tmp_path):
    graph = HeteroGraph.from_edges(SIZES, {CITES: ([1], [0]), WRITES: ([3, 0, 1], [2, 2, 0])})
    graph.save(tmp_path / "graph")
    opened = HeteroGraph.open(tmp_path / "graph")
    assert (opened.num_nodes, list(opened.relations)) == (SIZES, [CITES, WRITES])
    for relation, columns in graph.relations.items():
        assert opened.relations[relation].indptr.tolist() == columns.indptr.tolist()
        assert opened.relations[relation].indices.tolist() == columns.indices.tolist()
        assert isinstance(opened.relations[relation].indices.base.base, np.memmap), "not copied"
    with pytest.raises(InputError, match="hetero-graph folders are not written over"):
        graph.save(tmp_path / "graph")
    with pytest.raises(InputError, match="holds 'hetero-graph'"):
        Dataset.open(tmp_path / "graph")


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ({WRITES: ([4], [0])}, "author:writes:paper: the source of edge 0 is vertex 4, but the graph has the 4 vertices"),
        ({WRITES: ([0], [3])}, "the destination of edge 0 is vertex 3"),
        ({WRITES: ([0, 1], [0])}, "author:writes:paper has 2 sources and 1 destinations"),
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


def test_a_negative_number_of_vertices():
    with pytest.raises(InputError, match="num_nodes of 'author' is -1"):
        HeteroGraph({"author": -1}, {})
