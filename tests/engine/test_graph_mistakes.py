"""Messages of Graph about invalid ids, offsets, weights and graphs of other libraries."""

from types import SimpleNamespace

import numpy as np
import scipy.sparse
import torch
from cases.mistakes import Mistake, each_of
from torch_geometric.data import Data, HeteroData

from hoptrain.engine import Graph, HeteroGraph


def from_edges_weighted(weights):
    Graph.from_edges([0, 1], [1, 0], weights=weights)


def from_csc_weighted(weights):
    Graph(np.array([0, 1, 2]), np.array([1, 0]), weights=weights)


def dataset_opened_as_graph(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    Graph.open(tmp_path / "data")


BEYOND_32_BITS = [2**32 + 1, 2**32, -(2**32) + 1, 2**63 - 1]
GAPS = np.array([5, 123_456_789_012])

ENDS = {
    **{
        f"a source {wrong} beyond 32 bits": Mistake(
            lambda wrong=wrong: Graph(np.array([0, 2, 2, 2]), np.array([0, wrong])),
            value=f"node {wrong}",
            rule="source edge 1 3 nodes",
            remedy="0 to 2 larger num_nodes",
        )
        for wrong in BEYOND_32_BITS
    },
    **{
        f"a destination {wrong} beyond 32 bits, from edges": Mistake(
            lambda wrong=wrong: Graph.from_edges(np.array([0, 0]), np.array([0, wrong]), num_nodes=3),
            value=f"node {wrong}",
            rule="destination edge 1 3 nodes",
            remedy="0 to 2 larger num_nodes",
        )
        for wrong in BEYOND_32_BITS
    },
    **{
        f"a source {wrong} beyond 32 bits, from edges": Mistake(
            lambda wrong=wrong: Graph.from_edges(np.array([0, wrong]), np.array([0, 0]), num_nodes=3),
            value=f"node {wrong}",
            rule="source edge 1 3 nodes",
            remedy="0 to 2 larger num_nodes",
        )
        for wrong in BEYOND_32_BITS
    },
    "an unsigned id beyond 63 bits": Mistake(
        lambda: Graph.from_edges(np.array([2**64 - 1], np.uint64), np.array([0], np.uint64), num_nodes=3),
        value="node 18446744073709551615",
        rule="src[0] below 2**63",
        remedy="drop",
    ),
    **{
        f"a node {wrong} of {dtype.__name__} in a graph of four": Mistake(
            lambda wrong=wrong, dtype=dtype: Graph(np.array([0, 1, 5, 5, 6]), np.array([2, 0, 1, 2, 2, wrong], dtype)),
            value=f"node {wrong}",
            rule="source edge 5 4 nodes",
            remedy="0 to 3 larger num_nodes",
        )
        for wrong in (-1, 4, 100)
        for dtype in (np.int32, np.int64)
    },
    "a negative id without num_nodes": Mistake(
        lambda: Graph.from_edges(np.array([-1, 2]), np.array([0, 1])), value="node -1", rule="source edge 0", remedy="drop"
    ),
    "more sources than destinations": Mistake(
        lambda: Graph.from_edges([0, 1], [0]), value="src has 2", rule="dst 1 edge one", remedy="equal length"
    ),
    "sources of floats": Mistake(lambda: Graph.from_edges([0.0], [0]), value="float64", rule="src node ids integer", remedy="convert"),
    "destinations of bools": Mistake(lambda: Graph.from_edges([0], [True]), value="bool", rule="dst node ids integer", remedy="convert"),
    "sources of two dimensions": Mistake(
        lambda: Graph.from_edges([[0]], [0]), value="(1, 1)", rule="src int64 one-dimensional", remedy="convert"
    ),
    "a scalar as sources": Mistake(
        lambda: Graph.from_edges(np.array(0), np.array(0)), value="shape ()", rule="src int64 one-dimensional", remedy="convert"
    ),
}

ARRAYS = {
    "offsets that do not begin at 0": Mistake(lambda: Graph([1, 2], [0, 0]), value="1 to 2", rule="indptr runs 2 edges", remedy="0 to 2"),
    "offsets that end too soon": Mistake(lambda: Graph([0, 1], [0, 0]), value="0 to 1", rule="indptr runs 2 edges", remedy="0 to 2"),
    "offsets and ids that are both wrong": Mistake(
        lambda: Graph([0, 1], [7, 7]), value="0 to 1", rule="indptr runs 2 edges", remedy="0 to 2"
    ),
    "offsets that descend": Mistake(
        lambda: Graph([0, 2, 1, 3], [0, 0, 0]), value="2 to 1", rule="indptr falls node 1", remedy="rebuild from_edges"
    ),
    "offsets of floats": Mistake(
        lambda: Graph(np.array([0, 1.7, 2]), np.array([0, 0])), value="float64", rule="indptr offsets integers", remedy="convert"
    ),
    "indices of floats": Mistake(lambda: Graph([0, 1], [0.5]), value="float64", rule="indices node ids integer", remedy="convert"),
    "indices of two dimensions": Mistake(
        lambda: Graph([0, 1], [[0]]), value="(1, 1)", rule="indices int64 one-dimensional", remedy="convert"
    ),
    "a scalar as indices": Mistake(
        lambda: Graph(np.array([0]), np.array(0)), value="shape ()", rule="indices int64 one-dimensional", remedy="convert"
    ),
    "no offsets": Mistake(
        lambda: Graph(np.array([], np.int64), np.array([], np.int32)), value="(0,)", rule="indptr V + 1 offsets", remedy="[0]"
    ),
    "no offsets for two ids": Mistake(
        lambda: Graph(np.array([], np.int64), np.array([0, 1])), value="(0,)", rule="indptr V + 1 offsets", remedy="[0]"
    ),
    "offsets of two dimensions": Mistake(
        lambda: Graph(np.array([[0, 0]]), np.array([], np.int32)), value="(1, 2)", rule="indptr V + 1 offsets", remedy="[0]"
    ),
    "a scalar as offsets": Mistake(
        lambda: Graph(np.array(0), np.array([], np.int32)), value="shape ()", rule="indptr V + 1 offsets", remedy="[0]"
    ),
    **{
        f"num_nodes of {wrong}": Mistake(
            lambda wrong=wrong: Graph.from_edges(np.array([], np.int64), np.array([], np.int64), num_nodes=wrong),
            value=str(wrong),
            rule=f"num_nodes 0 to {2**40} nodes",
            remedy="number without gaps",
        )
        for wrong in (-1, 2**40 + 1)
    },
    "an id beyond the limit without num_nodes": Mistake(
        lambda: Graph.from_edges(np.array([2**62]), np.array([0])), value=str(2**62 + 1), rule="num_nodes nodes", remedy="gaps"
    ),
    "ids with gaps that do not fit in memory": Mistake(
        lambda: Graph.from_edges(GAPS, GAPS[::-1]),
        value="123,456,789,013",
        rule="num_nodes offsets GB",
        remedy="number V np.unique(edges, return_inverse",
    ),
    "ids with gaps of a type": Mistake(
        lambda: HeteroGraph.from_edges({"a": 123_456_789_013}, {("a", "b", "a"): (GAPS, GAPS)}),
        value="123,456,789,013",
        rule="a:b:a num_nodes offsets",
        remedy="number np.unique",
    ),
    **{
        f"a weight {wrong} in {make.__name__}": Mistake(
            lambda make=make, weights=weights: make(np.array(weights)),
            value=str(wrong),
            rule=f"weight edge {edge} finite",
            remedy="drop 0",
        )
        for make in (from_edges_weighted, from_csc_weighted)
        for wrong, edge, weights in ((-2.0, 1, [1.0, -2.0]), (np.nan, 0, [np.nan, 1.0]), (np.inf, 1, [1.0, np.inf]))
    },
    **{
        f"weights of {wrong} in {make.__name__}": Mistake(
            lambda make=make, weights=weights: make(weights), value=wrong, rule="weights float32 float64 2 edges", remedy="convert"
        )
        for make in (from_edges_weighted, from_csc_weighted)
        for wrong, weights in (("int64 of shape (2,)", np.array([1, 2])), ("float64 of shape (3,)", np.ones(3)))
    },
}

OTHER_LIBRARIES = {
    "a matrix that is not square": Mistake(
        lambda: Graph.from_scipy(scipy.sparse.csr_array((2, 3))), value="2 x 3", rule="adjacency matrix square", remedy="pad"
    ),
    "a matrix of one dimension": Mistake(
        lambda: Graph.from_scipy(scipy.sparse.coo_array(np.ones(3))), value="3", rule="adjacency matrix square", remedy="pad"
    ),
    **{
        f"{type(data).__name__} without edge_index": Mistake(
            lambda data=data: Graph.from_pyg(data), value=type(data).__name__, rule="no edge_index homogeneous", remedy="set"
        )
        for data in (Data(x=torch.ones(2, 1)), HeteroData())
    },
    "a DGL graph of several types": Mistake(
        lambda: Graph.from_dgl(
            SimpleNamespace(is_homogeneous=False, canonical_etypes=[("user", "likes", "item"), ("user", "knows", "user")])
        ),
        value="'likes'",
        rule="DGL edge types one",
        remedy="graph[etype]",
    ),
    **{
        f"edge_index of shape {shape}": Mistake(
            lambda shape=shape: Graph.from_pyg(SimpleNamespace(edge_index=torch.zeros(shape, dtype=torch.long), num_nodes=4)),
            value=str(shape),
            rule="edge_index (2, E)",
            remedy="reshape",
        )
        for shape in ((3, 2), (2,), ())
    },
    "edge_index of floats": Mistake(
        lambda: Graph.from_pyg(Data(edge_index=torch.zeros(2, 3), num_nodes=4)), value="float32", rule="src integer", remedy="convert"
    ),
    "a data set opened as a graph": Mistake(dataset_opened_as_graph, value="'dataset'", rule="needed 'graph'", remedy="convert"),
}

MISTAKES = ENDS | ARRAYS | OTHER_LIBRARIES


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
