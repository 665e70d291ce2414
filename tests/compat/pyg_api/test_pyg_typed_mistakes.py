"""The loaders of ``hoptrain.pyg`` reject invalid arguments for heterogeneous graphs with a helpful message."""

import numpy as np
import pytest
import torch
import torch_geometric.data
from cases.mistakes import Mistake, each_of
from pyg_case import some_data, some_hetero_data

import hoptrain.pyg

WRITES = ("author", "writes", "paper")


@pytest.fixture
def data():
    return some_hetero_data()


def batch_of(data, **options):
    whole = {"num_neighbors": [2], "input_nodes": "paper", "batch_size": 50}
    return next(iter(hoptrain.pyg.NeighborLoader(data, **(whole | options))))


def vertices_alone():
    data = torch_geometric.data.HeteroData()
    data["paper"].x = torch.zeros(4, 2)
    hoptrain.pyg.NeighborLoader(data, [2], "paper")


def times_of_nodes_and_of_edges(data):
    data["paper", "cites", "paper"].born = torch.zeros(500, dtype=torch.long)
    hoptrain.pyg.NeighborLoader(data, [2], "paper", time_attr="born")


def edge_from_vertex_80(data):
    data[WRITES].edge_index[0, 3] = 80
    hoptrain.pyg.NeighborLoader(data, [2], "paper")


def relation_without_edges(data):
    del data[WRITES].edge_index
    hoptrain.pyg.NeighborLoader(data, [2], "paper")


MISTAKES = {
    "no nodes to begin at": Mistake(
        lambda data: batch_of(data, input_nodes=None),
        value="input_nodes is None",
        rule="HeteroData node type nodes",
        remedy="tuple paper, author, venue",
    ),
    "nodes in a dict": Mistake(
        lambda data: batch_of(data, input_nodes={"paper": torch.arange(120)}),
        value="input_nodes is {'paper': tensor(",
        rule="HeteroData node type nodes",
        remedy="tuple paper, author, venue",
    ),
    "nodes of an unknown type": Mistake(
        lambda data: batch_of(data, input_nodes="reader"),
        value="input_nodes is 'reader'",
        rule="HeteroData node type nodes",
        remedy="tuple paper, author, venue",
    ),
    "a mask of fewer nodes": Mistake(
        lambda data: batch_of(data, input_nodes=("paper", torch.ones(7, dtype=torch.bool))),
        value="torch.bool of shape (7,)",
        rule="input_nodes paper mask 120",
        remedy="convert",
    ),
    "one fanout of a relation": Mistake(
        lambda data: batch_of(data, num_neighbors={WRITES: 2}),
        value="is 2",
        rule="num_neighbors author:writes:paper list hop",
        remedy="15 10 dict",
    ),
    "trees with all edges between their nodes": Mistake(
        lambda data: batch_of(data, subgraph_type="induced", disjoint=True),
        value="subgraph_type induced",
        rule="disjoint time_attr trees edges",
        remedy="choose one",
    ),
    "missing weights": Mistake(
        lambda data: batch_of(data, weight_attr="heavy"), value="'heavy'", rule="data no attribute", remedy="name one"
    ),
    **{
        f"{what} as links of {kind}": Mistake(
            lambda make=make, relation=relation, links=links: hoptrain.pyg.LinkNeighborLoader(
                make(), [2], (relation, links) if relation else links
            ),
            value=f"edge_label_index{shown} {value}",
            rule="(2, N sources destinations",
            remedy=remedy,
        )
        for kind, make, relation, shown in (
            ("a heterogeneous graph", some_hetero_data, WRITES, " of author:writes:paper"),
            ("a graph", some_data, None, ""),
        )
        for what, links, value, remedy in (
            ("floats", np.ones((2, 3)), "is torch.float64 of shape (2, 3)", "convert"),
            ("a mask", torch.ones(2, 3, dtype=torch.bool), "is torch.bool of shape (2, 3)", "convert"),
            ("rows of two lengths", [[1, 2], [3]], "is [[1, 2], [3]]", "give tensor"),
            ("one row", [1, 2], "has shape (2,)", "transpose"),
        )
    },
    "nodes without edges": Mistake(vertices_alone, value="no edge types", rule="data nothing sample", remedy="give edge_index"),
    "times of nodes and of edges by one name": Mistake(
        times_of_nodes_and_of_edges, value="time_attr is 'born'", rule="nodes edges both", remedy="rename"
    ),
    "an edge from an unknown node": Mistake(edge_from_vertex_80, value="node 80", rule="edge 3 author:writes:paper 120", remedy="fix x"),
    "a relation without edges": Mistake(
        relation_without_edges, value="author:writes:paper", rule="edge_index adj_t nothing sample", remedy="give one"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
