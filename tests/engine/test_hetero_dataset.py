"""A data set on a typed graph: its splits and stores, and what does not fit."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cases.damage import changed, put
from torch_geometric.data import Data, HeteroData

from hoptrain.engine import Dataset, HeteroDataset, HeteroGraph, InputError, load_dataset, load_hetero_dataset

GRAPH = HeteroGraph.from_edges({"a": 4, "b": 2}, {("a", "r", "b"): ([0, 3], [1, 0])})


def data(**options):
    return HeteroDataset(**({"graph": GRAPH, "seed_type": "a", "name": "typed"} | options))


def test_splits_and_stores():
    x, y = {"b": np.ones((2, 3), np.float32)}, np.array([0, 1, -1, 2])
    made = data(x=x, y=y, splits={"train": np.array([3, 0], np.int32)})
    assert made.split("train").tolist() == [3, 0]
    assert made.num_seed_nodes == 4
    assert {name: own is rows for (name, own), rows in zip(made.stores().items(), (x["b"], y), strict=True)} == {"x.b": True, "y": True}
    with pytest.raises(InputError, match="typed has no split 'val': it has train"):
        made.split("val")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed_type": "c"}, "^typed: seed_type is 'c': the graph has a, b; choose one of them$"),
        ({"x": {"c": np.ones((4, 1))}}, "^typed: x of a type is 'c': the graph has a, b"),
        ({"x": {"b": np.ones((4, 1))}}, r"^typed, b: x has shape \(4, 1\): features are one row for each of the 2 vertices"),
        (
            {"edge_attr": {("a", "s", "b"): np.ones(2)}},
            r"^typed: edge_attr of \('a', 's', 'b'\): the graph has the relations a:r:b; choose one",
        ),
        ({"edge_attr": {("a", "r", "b"): np.ones(1)}}, r"^typed, a:r:b: edge_attr has shape \(1, 1\): it has a row for each edge"),
        ({"edge_attr": {("a", "r", "b"): np.array([1, np.nan])}}, r"^typed, a:r:b: edge_attr\[1, 0\] is nan"),
        ({"edge_attr": np.ones(2)}, "^typed: edge_attr is no mapping"),
        ({"y": np.zeros(2, np.int64)}, "^typed: y is int64 of shape .*one .* for each of the 4 vertices"),
        ({"splits": {"train": np.array([4])}}, "^typed: split train names vertex 4: vertices are 0 to 3"),
        ({"y": np.array([0, 3, 1, 0]), "num_classes": 3}, r"^typed: y\[1\] is 3: labels are in \[-1, 3\); correct it"),
        ({"y": np.array([0, -2, 1, 0])}, r"^typed: y\[1\] is -2: labels are in \[-1, 2\)"),
        ({"y": np.array([-9, -2, -7, -8])}, r"^typed: y\[0\] is -9: labels are in \[-1, 0\); correct it or num_classes \(0\)"),
        (
            {"splits": {"train_5": np.array([0, 2]), "val_5": np.array([1, 2])}},
            "vertex 2 is in the splits train_5 and val_5: they share none",
        ),
        ({"y": np.array([0, -1, 0, 0]), "splits": {"train": np.array([1])}}, "vertex 1 of split train has no label"),
    ],
)
def test_what_does_not_fit(options, message):
    with pytest.raises(InputError, match=message):
        data(**options)


X = {"b": np.ones((2, 3), np.float16), "a": np.arange(4, dtype=np.float32)[:, None]}


def whole(**options):
    return data(x=X, y=np.array([0, 1, -1, 2]), splits={"train": np.array([3, 0])}, meta={"source": "here"}, **options)


def test_a_folder_holds_all_of_it(tmp_path):
    whole(num_classes=5).save(tmp_path / "data")
    for opened in (
        HeteroDataset.open(tmp_path / "data"),
        load_hetero_dataset(str(tmp_path / "data")),
        load_hetero_dataset("data", root=tmp_path),
    ):
        assert repr(opened) == repr(whole())
        assert (opened.name, opened.seed_type, opened.num_classes, opened.meta) == ("typed", "a", 5, {"source": "here"})
        assert opened.path == tmp_path / "data"
        assert list(opened.x) == list(X)
        assert all(np.array_equal(opened.x[kind], rows) and opened.x[kind].dtype == rows.dtype for kind, rows in X.items())
        assert opened.y.tolist() == [0, 1, -1, 2]
        assert opened.split("train").tolist() == [3, 0]
        assert opened.graph.relations[("a", "r", "b")].indices.tolist() == [3, 0]


def test_a_folder_that_was_altered_is_refused(tmp_path):
    whole().save(tmp_path / "data")
    file = tmp_path / "data" / "graph" / "indices_0.npy"
    file.write_bytes(file.read_bytes()[:-4] + b"\1\0\0\0")
    with pytest.raises(InputError, match=r"indices_0\.npy does not match its checksum"):
        HeteroDataset.open(tmp_path / "data")


def test_folders_of_one_kind_and_of_several_are_told_apart(tmp_path, dataset):
    whole().save(tmp_path / "typed")
    dataset.save(tmp_path / "plain")
    with pytest.raises(InputError, match=r"typed is a heterogeneous graph .*: task: hetero trains on it"):
        load_dataset(str(tmp_path / "typed"))
    with pytest.raises(InputError, match=r"plain has vertices of one kind: task: nodes trains on it"):
        load_hetero_dataset(str(tmp_path / "plain"))
    assert isinstance(load_dataset("plain", root=tmp_path), Dataset)


def pyg(**of_a):
    made = HeteroData()
    made["a"].num_nodes, made["b"].x = 4, torch.ones(2, 3)
    made["a", "r", "b"].edge_index = torch.tensor([[0, 3], [1, 0]])
    for name, value in of_a.items():
        made["a"][name] = value
    return made


def test_from_pyg():
    y, mask = torch.tensor([[0.0], [1.0], [float("nan")], [2.0]]), torch.tensor([True, False, False, True])
    made = HeteroDataset.from_pyg(pyg(y=y, train_mask=mask), name="theirs")
    assert (made.name, made.seed_type, made.num_classes) == ("theirs", "a", 3)
    assert made.y.tolist() == [0, 1, -1, 2]
    assert {name: ids.tolist() for name, ids in made.splits.items()} == {"train": [0, 3]}
    assert list(made.x) == ["b"]
    assert made.graph.relations[("a", "r", "b")].indices.tolist() == [3, 0]
    with pytest.raises(InputError, match="theirs: labels of no type: vertices of one type are trained on; name it by seed_type"):
        HeteroDataset.from_pyg(pyg(), name="theirs")
    unlabelled = pyg()
    with pytest.raises(InputError, match="seed_type is 'c': the graph has a, b"):
        HeteroDataset.from_pyg(unlabelled, "c")
    assert unlabelled.node_types == ["a", "b"]


def test_splits_of_two_families_may_share_vertices():
    assert len(data(splits={"train_5": np.array([0]), "val_6": np.array([0]), "extra": np.array([0])}).splits) == 3


class DGLEdges:
    """What ``DGLGraph.edges`` is: called, the ends; by type, what edges hold."""

    def __init__(self, **held):
        self.held = held

    def __call__(self, etype):
        return torch.tensor([3, 0]), torch.tensor([1, 0])

    def __getitem__(self, etype):
        return SimpleNamespace(data=self.held)


def dgl(of_edges=(), **of_a):
    """What is asked of a heterograph of DGL's."""
    held = {"a": of_a, "b": {"feat": torch.ones(2, 3)}}
    return SimpleNamespace(
        ntypes=["a", "b"],
        canonical_etypes=[("a", "r", "b")],
        nodes={kind: SimpleNamespace(data=own) for kind, own in held.items()},
        edges=DGLEdges(**dict(of_edges)),
        num_nodes={"a": 4, "b": 2}.__getitem__,
    )


def test_from_dgl():
    made = HeteroDataset.from_dgl(
        dgl(label=torch.tensor([0, 1, -1, 2]), train_mask=torch.tensor([1, 0, 0, 1], dtype=torch.uint8)), name="theirs"
    )
    assert (made.name, made.seed_type, made.num_classes, made.y.tolist()) == ("theirs", "a", 3, [0, 1, -1, 2])
    assert {name: ids.tolist() for name, ids in made.splits.items()} == {"train": [0, 3]}
    assert (list(made.x), made.x["b"].tolist()) == (["b"], [[1.0] * 3] * 2)
    columns = made.graph.relations[("a", "r", "b")]
    assert (columns.indices.tolist(), columns.ids_of(np.arange(2)).tolist()) == ([0, 3], [1, 0])
    with pytest.raises(InputError, match="theirs: labels of no type: vertices of one type are trained on; name it by seed_type"):
        HeteroDataset.from_dgl(dgl(), name="theirs")


def test_from_pyg_takes_weights_and_times_by_name():
    theirs = pyg(y=torch.zeros(4))
    theirs["a", "r", "b"].weight, theirs["a", "r", "b"].time = torch.tensor([0.5, 2.0]), torch.tensor([8, 7])
    columns = HeteroDataset.from_pyg(theirs, weight_attr="weight", time_attr="time").graph.relations[("a", "r", "b")]
    assert (columns.weights.tolist(), columns.times.tolist()) == ([2.0, 0.5], [7, 8])
    assert columns.ids_of(np.arange(2)).tolist() == [1, 0]


def test_what_is_not_taken_over_is_named(caplog):
    theirs = pyg(y=torch.zeros(4), year=torch.ones(4))
    theirs["b"].y, theirs["b"].train_mask = torch.ones(2), torch.ones(2, dtype=torch.bool)
    theirs["a", "r", "b"].edge_attr, theirs["a", "r", "b"].time = torch.arange(6).view(2, 3), torch.arange(2)
    theirs["a", "r", "b"].kind = torch.ones(2)
    made = HeteroDataset.from_pyg(theirs, "a", name="theirs", time_attr="time")
    assert {relation: rows.tolist() for relation, rows in made.edge_attr.items()} == {("a", "r", "b"): [[0, 1, 2], [3, 4, 5]]}
    assert made.meta["not_carried"] == ["a year", "a:r:b kind", "b train_mask", "b y"]
    (line,) = caplog.messages
    assert line == (
        "theirs: a HeteroDataset does not hold a year, a:r:b kind, b train_mask, b y: no batch will have them; "
        "weight_attr and time_attr name weights and times"
    )
    caplog.clear()
    made = HeteroDataset.from_dgl(
        dgl({"feat": torch.ones(2, 3), "w": torch.ones(2)}, label=torch.zeros(4, dtype=torch.int64), year=torch.ones(4))
    )
    assert made.meta["not_carried"] == ["a year", "a:r:b w"]
    assert {relation: rows.tolist() for relation, rows in made.edge_attr.items()} == {("a", "r", "b"): [[1, 1, 1], [1, 1, 1]]}
    assert len(caplog.messages) == 1
    caplog.clear()
    assert HeteroDataset.from_pyg(pyg(y=torch.zeros(4))).meta == {}
    assert not caplog.messages


def test_features_of_edges_in_a_folder_and_turned_round(tmp_path):
    rows = np.array([[1, 2], [3, 4]], np.float32)
    made = data(edge_attr={("a", "r", "b"): rows})
    assert list(made.stores()) == ["edge_attr.a:r:b"]
    made.save(tmp_path / "data")
    opened = HeteroDataset.open(tmp_path / "data", verify=True)
    assert {relation: own.tolist() for relation, own in opened.edge_attr.items()} == {("a", "r", "b"): rows.tolist()}
    both = opened.with_reverse()
    assert list(both.edge_attr) == [("a", "r", "b"), ("b", "rev_r", "a")]
    turned = both.graph.relations["b", "rev_r", "a"]
    ends = zip(
        turned.indices.tolist(), turned.destinations().tolist(), both.edge_attr["b", "rev_r", "a"][turned.ids_of(np.arange(2))], strict=True
    )
    assert {(source, destination): own.tolist() for source, destination, own in ends} == {(1, 0): [1, 2], (0, 3): [3, 4]}


def test_objects_that_are_no_typed_graph_of_pygs():
    without, bent, unsized = pyg(y=torch.zeros(4)), pyg(y=torch.zeros(4)), pyg(y=torch.zeros(4))
    del without["a", "r", "b"].edge_index
    without["a", "r", "b"].adj_t = torch.eye(2)
    bent["a", "r", "b"].edge_index = torch.zeros(5, 2, dtype=torch.int64)
    unsized["c", "s", "a"].edge_index, unsized["c"].name = torch.zeros(2, 1, dtype=torch.int64), "c"
    for theirs, message in (
        (Data(edge_index=torch.zeros(2, 0)), r"the graph is a Data: .*; Graph\.from_pyg takes a Data"),
        (without, "a:r:b has no edge_index but adj_t: it holds"),
        (bent, r"edge_index of a:r:b has shape \(5, 2\): it is \(2, E\)"),
        (unsized, r"type 'c' has neither num_nodes nor x: .* set data\['c'\]\.num_nodes"),
    ):
        with pytest.raises(InputError, match=message):
            HeteroDataset.from_pyg(theirs)


def test_features_and_splits_are_dictionaries():
    for wrong in ({"x": np.ones((4, 2))}, {"splits": np.arange(2)}):
        with pytest.raises(InputError, match=r"(x|splits) is no mapping: it is a dictionary"):
            data(**wrong)


def test_splits_of_edges_are_kept_and_checked(tmp_path):
    graph = HeteroGraph.from_edges({"a": 2, "b": 3}, {("a", "to", "b"): ([0, 0, 1], [0, 1, 2]), ("b", "on", "b"): ([0], [1])})
    splits = {("b", "on", "b"): {"test": [0]}, ("a", "to", "b"): {"train": np.array([True, False, True]), "val": [1]}}
    HeteroDataset(graph=graph, seed_type="b", edge_splits=splits).save(tmp_path / "data")
    found = HeteroDataset.open(tmp_path / "data").edge_splits
    assert {relation: {name: ids.tolist() for name, ids in own.items()} for relation, own in found.items()} == {
        ("b", "on", "b"): {"test": [0]},
        ("a", "to", "b"): {"train": [0, 2], "val": [1]},
    }
    for wrong, message in (
        ({("a", "of", "b"): {"val": [0]}}, r"edge_splits of .*: ids by name, of one of the relations a:to:b, b:on:b; correct it"),
        ({("a", "to", "b"): [0]}, "ids by name, of one of the relations"),
        ({("a", "to", "b"): {"val": [3]}}, "data, a:to:b: split val names edge 3: edges are 0 to 2"),
        ({("a", "to", "b"): {"val": [1, 1]}}, "data, a:to:b: split val names an edge twice"),
        ([0], "edge_splits is no mapping"),
    ):
        with pytest.raises(InputError, match=message):
            HeteroDataset(graph=graph, seed_type="b", edge_splits=wrong)


@pytest.mark.parametrize(
    ("folder", "name", "change", "message"),
    [
        ("graph", "indices_0", lambda own: changed(own, 0, 4), "a:r:b: the source of edge 0 is vertex 4"),
        ("graph", "indptr_0", lambda own: own[:2].copy(), "a:r:b: indptr"),
        ("", "x_0", lambda own: own[:1].copy(), r"x has shape \(1, 3\): features are one row for each of the 2"),
        ("", "y", lambda own: changed(own.astype(np.int64), 0, 10**12), "labels are in"),
        ("", "split_train", lambda own: changed(own, 0, -2), "-2"),
    ],
)
def test_wrong_contents_are_refused_though_checksums_are_right(tmp_path, monkeypatch, folder, name, change, message):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    data(x={"b": np.ones((2, 3), np.float32)}, y=np.array([0, 1, -1, 2]), splits={"train": np.array([3, 0])}).save(tmp_path / "typed")
    assert HeteroDataset.open(tmp_path / "typed").num_classes == 3
    put(tmp_path / "typed" / folder, name, change(np.load(tmp_path / "typed" / folder / f"{name}.npy")))
    with pytest.raises(InputError, match=message) as refused:
        HeteroDataset.open(tmp_path / "typed")
    assert "\n" not in str(refused.value)
