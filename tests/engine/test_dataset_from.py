"""Data sets converted from objects of other libraries have the same arrays as hoptrain's own."""

from types import SimpleNamespace

import networkx
import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from torch_geometric.data import Data, HeteroData

from hoptrain.engine import BFLOAT16, Dataset, Graph, to_bfloat16

EDGES = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
X = np.arange(8, dtype=np.float32).reshape(4, 2)
Y = np.array([0, 1, -1, 2])
TRAIN = np.array([True, True, False, False])


def same(data, **changes):
    expected = Dataset(name="data", graph=Graph.from_edges(*EDGES, 4), **{"x": X, "y": Y, "splits": {"train": np.array([0, 1])}} | changes)
    assert (data.name, data.num_classes) == (expected.name, expected.num_classes)
    assert data.arrays().keys() == expected.arrays().keys()
    for name, array in expected.arrays().items():
        assert data.arrays()[name].dtype == array.dtype, name
        assert np.array_equal(data.arrays()[name], array), name


def test_arrays_and_tensors():
    same(Dataset(x=X, y=Y, edge_index=EDGES, splits={"train": TRAIN}))
    tensors = [torch.from_numpy(array) for array in (X, Y, EDGES, TRAIN)]
    data = Dataset(x=tensors[0], y=tensors[1], edge_index=tensors[2], splits={"train": tensors[3]})
    same(data)
    assert data.num_classes == 3
    assert not Dataset(edge_index=EDGES[:, :2]).num_features
    half = Dataset(x=tensors[0].bfloat16(), edge_index=EDGES)
    assert half.x.dtype == BFLOAT16
    assert np.array_equal(half.x, to_bfloat16(X))


def test_from_pyg():
    data = Data(edge_index=torch.from_numpy(EDGES), x=torch.from_numpy(X), y=torch.from_numpy(Y), train_mask=torch.from_numpy(TRAIN))
    same(Dataset.from_pyg(data))
    data.y = torch.tensor([[0.0], [1.0], [float("nan")], [2.0]])
    same(Dataset.from_pyg(data))
    data.y = torch.eye(4, 3)
    same(Dataset.from_pyg(data), y=np.eye(4, 3, dtype=np.uint8))
    assert Dataset.from_pyg(data, name="mine").name == "mine"


@pytest.mark.parametrize("num_nodes", [4, 5], ids=["as many nodes as edges", "more nodes"])
def test_times_of_pyg_are_carried_by_name(num_nodes):
    """If there are as many nodes as edges, PyG's naming rule decides whether times belong to nodes or edges."""
    born, edge_time = torch.arange(10, 10 + num_nodes), torch.tensor([7, 8, 5, 6])
    data = Data(edge_index=torch.from_numpy(EDGES), num_nodes=num_nodes, born=born, edge_time=edge_time)
    for make in (Graph.from_pyg, lambda *args, **options: Dataset.from_pyg(*args, **options).graph):
        graph = make(data, time_attr="born")
        assert graph.times.tolist() == (10 + graph.indices).tolist()
        graph = make(data, time_attr="edge_time")
        assert graph.times.tolist() == edge_time[graph.ids_of(np.arange(4))].tolist()
        assert make(data).times is None


def test_what_a_data_set_does_not_hold_is_named(caplog):
    data = Data(edge_index=torch.from_numpy(EDGES), x=torch.from_numpy(X), time=torch.arange(4), edge_kind=torch.arange(4))
    assert Dataset.from_pyg(data, name="mine").meta == {"not_carried": ["edge_kind", "time"]}
    assert caplog.messages == ["mine: a Dataset cannot store edge_kind, time: batches will not have them; time_attr names times"]
    caplog.clear()
    assert Dataset.from_pyg(data, time_attr="time").meta == {"not_carried": ["edge_kind"]}
    caplog.clear()
    edges = torch.from_numpy(EDGES)
    dgl = SimpleNamespace(
        is_homogeneous=True,
        edges=lambda: (edges[0], edges[1]),
        num_nodes=lambda: 4,
        ndata={"year": torch.ones(4)},
        edata={"w": torch.ones(4)},
    )
    assert Dataset.from_dgl(dgl).meta == {"not_carried": ["w", "year"]}
    assert caplog.messages == [
        "data: a Dataset cannot store w, year: batches will not have them; weight_attr and time_attr name weights and times"
    ]
    caplog.clear()
    mask, weight = torch.from_numpy(TRAIN), torch.ones(4)
    whole = Data(edge_index=edges, x=weight[:, None], y=weight.long(), edge_weight=weight, edge_attr=weight, val_mask=mask, num_nodes=4)
    assert Dataset.from_pyg(whole).meta == {}
    assert not caplog.messages


def test_from_dgl():
    ndata = {"feat": torch.from_numpy(X), "label": torch.from_numpy(Y), "train_mask": torch.from_numpy(TRAIN.astype(np.uint8))}
    edges = torch.from_numpy(EDGES)
    same(Dataset.from_dgl(SimpleNamespace(is_homogeneous=True, edges=lambda: (edges[0], edges[1]), num_nodes=lambda: 4, ndata=ndata)))


def test_weights_and_times_of_dgl_are_taken_by_name():
    edges, num = torch.from_numpy(EDGES), torch.arange(4)
    graph = SimpleNamespace(
        is_homogeneous=True,
        edges=lambda: (edges[0], edges[1]),
        num_nodes=lambda: 4,
        ndata={"born": num, "valid_mask": torch.from_numpy(TRAIN)},
        edata={"w": num / 2},
    )
    data = Dataset.from_dgl(graph, weight_attr="w", time_attr="born")
    assert data.meta == {}
    assert data.splits["val"].tolist() == [0, 1]
    assert data.graph.weights.tolist() == (data.graph.ids_of(np.arange(4)) / 2).tolist()
    assert data.graph.times.tolist() == data.graph.indices.tolist()
    with refused("'year'", "no field born, valid_mask, w", "name one"):
        Dataset.from_dgl(graph, time_attr="year")


def test_from_networkx(caplog):
    graph = networkx.Graph()
    for number, name in enumerate("abcd"):
        graph.add_node(name, feat=[number, 1.0], train_mask=number < 2, **({} if name == "d" else {"label": ["x", "y"][number % 2]}))
    for src, dst, weight in (("a", "b", 2.0), ("b", "c", 3.0), ("d", "d", 1.0)):
        graph.add_edge(src, dst, weight=weight, time=int(weight), colour="red")
    data = Dataset.from_networkx(graph)
    assert data.meta == {"classes": ["x", "y"], "not_carried": ["colour"]}
    assert caplog.messages == ["data: a Dataset cannot store colour: batches will not have them"]
    assert data.y.tolist() == [0, 1, 0, -1]
    assert data.x.tolist() == [[0, 1], [1, 1], [2, 1], [3, 1]]
    assert data.splits["train"].tolist() == [0, 1]
    pairs = zip(data.graph.indices.tolist(), data.graph.destinations().tolist(), data.graph.weights, data.graph.times, strict=True)
    assert list(pairs) == [(1, 0, 2, 2), (0, 1, 2, 2), (2, 1, 3, 3), (1, 2, 3, 3), (3, 3, 1, 1)]
    directed = networkx.DiGraph([(0, 1), (1, 2)])
    assert Dataset.from_networkx(directed).graph.num_edges == 2
    networkx.set_node_attributes(directed, {0: 1.5, 1: 2.5, 2: 3.5}, "height")
    assert Dataset.from_networkx(directed, label_attr="height").is_regression
    directed.nodes[1]["feat"] = [1.0]
    with refused("0", "data node no feat others", "add drop"):
        Dataset.from_networkx(directed)


def test_a_data_set_is_shown_in_a_line():
    data = Dataset(
        x=np.zeros((4, 2), np.float32), y=np.array([0, 1, 2, 0]), edge_index=np.array([[0], [1]]), splits={"train": np.array([0, 2])}
    )
    shown = "Dataset(data, Graph(num_nodes=4, num_edges=1, is_sorted=True), num_features=2, num_classes=3, splits: train (2))"
    assert repr(data) == shown


def timed_pyg(num_nodes, times):
    Graph.from_pyg(Data(edge_index=EDGES, num_nodes=num_nodes, t=times), time_attr="t")


MISTAKES = {
    "no edges": Mistake(lambda: Dataset(x=X), value="data", rule="graph edge_index", remedy="give one two"),
    "edges twice": Mistake(
        lambda: Dataset(graph=Graph.from_edges(*EDGES), edge_index=EDGES), value="edge_index", rule="data graph", remedy="give one two"
    ),
    "edges as columns": Mistake(lambda: Dataset(edge_index=EDGES.T), value="(4, 2)", rule="edge_index (2, E)", remedy="reshape"),
    "a mask of too few nodes": Mistake(
        lambda: Dataset(edge_index=EDGES, splits={"train": TRAIN[:3]}),
        value="(3,)",
        rule="data mask split train",
        remedy="bool 4 nodes ids",
    ),
    "features of too few nodes": Mistake(
        lambda: Dataset(x=X[:3], edge_index=EDGES), value="node 3", rule="source edge 3 3 nodes", remedy="num_nodes"
    ),
    "a HeteroData": Mistake(lambda: Dataset.from_pyg(HeteroData()), value="HeteroData", rule="no edge_index homogeneous", remedy="set"),
    "an unknown attribute": Mistake(
        lambda: Dataset.from_pyg(Data(edge_index=EDGES, num_nodes=4), time_attr="t"),
        value="'t'",
        rule="data no attribute",
        remedy="edge_index, num_nodes name",
    ),
    "times of floats": Mistake(lambda: timed_pyg(4, torch.ones(4)), value="float32", rule="times integers int64", remedy="convert"),
    "times of too few nodes": Mistake(
        lambda: timed_pyg(3, torch.ones(3, dtype=int)), value="node 3", rule="source edge 3 3 nodes", remedy="num_nodes"
    ),
    "too few times": Mistake(
        lambda: timed_pyg(9, torch.ones(2, dtype=int)), value="int64 of shape (2,)", rule="times one 4 edges", remedy="convert"
    ),
    "a mask of two dimensions": Mistake(
        lambda: Dataset.from_pyg(Data(edge_index=EDGES, num_nodes=4, train_mask=torch.ones(4, 10))),
        value="(4, 10)",
        rule="data mask split train",
        remedy="bool 4 nodes ids",
    ),
    "a graph of another library": Mistake(
        lambda: Dataset(graph=object()), value="object", rule="data graph is", remedy="from_pyg Graph Dataset.from_pyg from_dgl"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
