"""Data sets with heterogeneous graphs: splits, feature stores and input errors."""

import json
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from torch_geometric.data import Data, HeteroData

from hoptrain.engine import Dataset, HeteroDataset, HeteroGraph, load_dataset, load_hetero_dataset

R = ("a", "r", "b")
GRAPH = HeteroGraph.from_edges({"a": 4, "b": 2}, {("a", "r", "b"): ([0, 3], [1, 0])})


def data(**options):
    return HeteroDataset(**({"graph": GRAPH, "seed_type": "a", "name": "mixed"} | options))


def test_splits_and_stores():
    x, y = {"b": np.ones((2, 3), np.float32)}, np.array([0, 1, -1, 2])
    made = data(x=x, y=y, splits={"train": np.array([3, 0], np.int32)})
    assert made.split("train").tolist() == [3, 0]
    assert made.num_seed_nodes == 4
    assert {name: own is rows for (name, own), rows in zip(made.stores().items(), (x["b"], y), strict=True)} == {"x.b": True, "y": True}
    with refused("'val'", "mixed no split", "train choose"):
        made.split("val")


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
        assert (opened.name, opened.seed_type, opened.num_classes, opened.meta) == ("mixed", "a", 5, {"source": "here"})
        assert opened.path == tmp_path / "data"
        assert list(opened.x) == list(X)
        assert all(np.array_equal(opened.x[kind], rows) and opened.x[kind].dtype == rows.dtype for kind, rows in X.items())
        assert opened.y.tolist() == [0, 1, -1, 2]
        assert opened.split("train").tolist() == [3, 0]
        assert opened.graph.relations[("a", "r", "b")].indices.tolist() == [3, 0]


def test_homogeneous_and_heterogeneous_folders_are_distinguished(tmp_path, dataset):
    whole().save(tmp_path / "mixed")
    dataset.save(tmp_path / "plain")
    with refused(str(tmp_path / "mixed"), "heterogeneous graph", "task hetero load_hetero_dataset"):
        load_dataset(str(tmp_path / "mixed"))
    with refused(str(tmp_path / "plain"), "nodes one trains", "task nodes several"):
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
    with refused("theirs", "labels no type one", "name seed_type"):
        HeteroDataset.from_pyg(pyg(), name="theirs")
    unlabelled = pyg()
    with refused("'c'", "seed_type graph", "a, b choose"):
        HeteroDataset.from_pyg(unlabelled, "c")
    assert unlabelled.node_types == ["a", "b"]


def test_splits_of_two_families_may_share_nodes():
    assert len(data(splits={"train_5": np.array([0]), "val_6": np.array([0]), "extra": np.array([0])}).splits) == 3


class DGLEdges:
    """A stub of ``DGLGraph.edges``: a call returns the ends, and indexing by type returns edge data."""

    def __init__(self, **held):
        self.held = held

    def __call__(self, etype):
        return torch.tensor([3, 0]), torch.tensor([1, 0])

    def __getitem__(self, etype):
        return SimpleNamespace(data=self.held)


def dgl(of_edges=(), **of_a):
    """Return a stub of DGL's heterograph."""
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
    with refused("theirs", "labels no type one", "name seed_type"):
        HeteroDataset.from_dgl(dgl(), name="theirs")


def test_from_pyg_takes_weights_and_times_by_name():
    theirs = pyg(y=torch.zeros(4))
    theirs["a", "r", "b"].weight, theirs["a", "r", "b"].time = torch.tensor([0.5, 2.0]), torch.tensor([8, 7])
    columns = HeteroDataset.from_pyg(theirs, weight_attr="weight", time_attr="time").graph.relations[("a", "r", "b")]
    assert (columns.weights.tolist(), columns.times.tolist()) == ([2.0, 0.5], [7, 8])
    assert columns.ids_of(np.arange(2)).tolist() == [1, 0]


def test_what_is_not_taken_over_is_named(caplog):
    theirs = pyg(y=torch.zeros(4, dtype=torch.int64), year=torch.ones(4))
    theirs["b"].y, theirs["b"].train_mask = torch.ones(2), torch.ones(2, dtype=torch.bool)
    theirs["a", "r", "b"].edge_attr, theirs["a", "r", "b"].time = torch.arange(6).view(2, 3), torch.arange(2)
    theirs["a", "r", "b"].kind = torch.ones(2)
    made = HeteroDataset.from_pyg(theirs, "a", name="theirs", time_attr="time")
    assert {relation: rows.tolist() for relation, rows in made.edge_attr.items()} == {("a", "r", "b"): [[0, 1, 2], [3, 4, 5]]}
    assert made.meta["not_carried"] == ["a year", "a:r:b kind", "b train_mask", "b y"]
    (line,) = caplog.messages
    assert line == (
        "theirs: a HeteroDataset cannot store a year, a:r:b kind, b train_mask, b y: batches will not have them; "
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
    assert HeteroDataset.from_pyg(pyg(y=torch.zeros(4, dtype=torch.int64))).meta == {}
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


def test_splits_of_edges_are_kept_and_checked(tmp_path):
    graph = HeteroGraph.from_edges({"a": 2, "b": 3}, {("a", "to", "b"): ([0, 0, 1], [0, 1, 2]), ("b", "on", "b"): ([0], [1])})
    splits = {("b", "on", "b"): {"test": [0]}, ("a", "to", "b"): {"train": np.array([True, False, True]), "val": [1]}}
    HeteroDataset(graph=graph, seed_type="b", edge_splits=splits).save(tmp_path / "data")
    found = HeteroDataset.open(tmp_path / "data").edge_splits
    assert {relation: {name: ids.tolist() for name, ids in own.items()} for relation, own in found.items()} == {
        ("b", "on", "b"): {"test": [0]},
        ("a", "to", "b"): {"train": [0, 2], "val": [1]},
    }
    for wrong, value, rule, remedy in (
        ({("a", "of", "b"): {"val": [0]}}, "('a', 'of', 'b')", "edge_splits graph relations", "a:to:b, b:on:b choose"),
        ({("a", "to", "b"): [0]}, "edge_splits", "data a:to:b ids name", "give dictionary"),
        ({("a", "to", "b"): {"val": [3]}}, "edge 3", "data a:to:b split val", "0 to 2 drop"),
        ({("a", "to", "b"): {"val": [1, 1]}}, "split val", "data a:to:b edge twice", "np.unique"),
        ([0], "edge_splits", "data list dictionary", "key relation name"),
    ):
        with refused(value, rule, remedy):
            HeteroDataset(graph=graph, seed_type="b", edge_splits=wrong)


def written_before(folder, kind, meta, **arrays):
    """Write a folder with NumPy and JSON alone, in the format of early hoptrain 0.1, which kept the graph in a folder of its own."""
    folder.mkdir()
    entries = {}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
        checksum = zlib.crc32((folder / f"{name}.npy").read_bytes())
        entries[name] = {"file": f"{name}.npy", "dtype": array.dtype.str, "shape": list(array.shape), "crc32": checksum}
    header = {"format": "hoptrain-arrays", "version": 1, "kind": kind, "meta": meta, "arrays": entries}
    (folder / "header.json").write_text(json.dumps(header))


@pytest.mark.parametrize("verify", [None, True, False])
def test_a_folder_with_the_graph_in_a_folder_of_its_own(tmp_path, verify):
    ids, rows = np.array([0, 3]), np.ones((2, 1), np.float32)
    meta = {"name": "mixed", "seed_type": "a", "num_classes": 3, "info": {"source": "here"}, "features": ["b"]}
    of_edges = {"edge_features": [["a", "r", "b"]], "edge_splits": [["a", "r", "b"]]}
    more = {"edge_attr_0": np.array([[5], [6]], np.uint8), "edge_split_0_val": np.array([1])}
    written_before(tmp_path / "old", "hetero-dataset", meta | of_edges, x_0=rows, y=np.array([0, 1, -1, 2]), split_train=ids, **more)
    columns = {"indptr_0": np.array([0, 1, 2], np.int32), "indices_0": np.array([3, 0], np.int32), "edge_ids_0": np.array([1, 0], np.int32)}
    header = {"num_nodes": {"a": 4, "b": 2}, "relations": [["a", "r", "b"]]}
    written_before(tmp_path / "old" / "graph", "hetero-graph", header, **columns)
    opened = HeteroDataset.open(tmp_path / "old", verify=verify)
    wanted = data(
        x={"b": rows}, y=np.array([0, 1, -1, 2]), splits={"train": ids}, edge_attr={R: more["edge_attr_0"]}, edge_splits={R: {"val": [1]}}
    )
    assert (repr(opened), opened.meta, opened.header()) == (
        repr(wanted),
        {"source": "here"},
        wanted.header() | {"info": {"source": "here"}},
    )
    found, expected = opened.arrays(), wanted.arrays()
    assert {name: (array.dtype, array.tolist()) for name, array in found.items()} == {
        name: (array.dtype, array.tolist()) for name, array in expected.items()
    }
    opened.save(tmp_path / "new")
    assert not (tmp_path / "new" / "graph").exists()
    assert HeteroDataset.open(tmp_path / "new").arrays().keys() == expected.keys()
    assert load_hetero_dataset(str(tmp_path / "old"), add_reverse=True).graph.num_edges == 4


def test_a_plain_folder_is_as_it_always_was(tmp_path):
    written_before(
        tmp_path / "old",
        "dataset",
        {"name": "plain", "num_nodes": 2, "num_edges": 2, "num_classes": 2, "is_sorted": True, "info": {}},
        indptr=np.array([0, 1, 2], np.int32),
        indices=np.array([1, 0], np.int32),
        x=np.ones((2, 1), np.float32),
        edge_attr=np.ones((2, 1), np.float32),
        y=np.array([0, 1]),
        edge_y=np.array([1, 1]),
        split_train=np.array([1]),
        edges_of_train=np.array([0]),
        negatives_of_train=np.array([[0], [0]]),
    )
    opened = Dataset.open(tmp_path / "old")
    opened.save(tmp_path / "new")
    for file in (tmp_path / "old").iterdir():
        if file.suffix == ".npy":
            assert (tmp_path / "new" / file.name).read_bytes() == file.read_bytes(), file.name
    old, new = (json.loads((tmp_path / name / "header.json").read_text()) for name in ("old", "new"))
    assert old == new


# Input errors.


def opened_after_damage(tmp_path):
    whole().save(tmp_path / "data")
    file = tmp_path / "data" / "indices_0.npy"
    file.write_bytes(file.read_bytes()[:-4] + b"\1\0\0\0")
    HeteroDataset.open(tmp_path / "data")


def pyg_without_edge_index():
    theirs = pyg(y=torch.zeros(4))
    del theirs["a", "r", "b"].edge_index
    theirs["a", "r", "b"].adj_t = torch.eye(2)
    HeteroDataset.from_pyg(theirs)


def pyg_with_edges_as_columns():
    theirs = pyg(y=torch.zeros(4))
    theirs["a", "r", "b"].edge_index = torch.zeros(5, 2, dtype=torch.int64)
    HeteroDataset.from_pyg(theirs)


def pyg_with_a_type_without_size():
    theirs = pyg(y=torch.zeros(4))
    theirs["c", "s", "a"].edge_index, theirs["c"].name = torch.zeros(2, 1, dtype=torch.int64), "c"
    HeteroDataset.from_pyg(theirs)


FAMILY = {"train_5": np.array([0, 2]), "val_5": np.array([1, 2])}

MISTAKES = {
    "an unknown seed type": Mistake(lambda: data(seed_type="c"), value="'c'", rule="mixed seed_type graph", remedy="a, b choose"),
    "features of an unknown type": Mistake(
        lambda: data(x={"c": np.ones((4, 1))}), value="'c'", rule="mixed x type graph", remedy="a, b choose"
    ),
    "features of too many nodes": Mistake(
        lambda: data(x={"b": np.ones((4, 1))}), value="(4, 1)", rule="mixed, b: x row 2 nodes", remedy="reshape"
    ),
    "features of an unknown relation": Mistake(
        lambda: data(edge_attr={("a", "s", "b"): np.ones(2)}),
        value="('a', 's', 'b')",
        rule="mixed edge_attr graph relations",
        remedy="a:r:b choose",
    ),
    "features of too few edges": Mistake(
        lambda: data(edge_attr={R: np.ones(1)}), value="(1, 1)", rule="mixed, a:r:b edge_attr row edge", remedy="2 reshape"
    ),
    "a feature of an edge that is not finite": Mistake(
        lambda: data(edge_attr={R: np.array([1, np.nan])}),
        value=" nan",
        rule="mixed, a:r:b edge_attr[1, 0] finite",
        remedy="replace nan_to_num",
    ),
    "features of edges that are not by relation": Mistake(
        lambda: data(edge_attr=np.ones(2)), value="edge_attr is", rule="mixed ndarray dictionary", remedy="relation key"
    ),
    "features that are not by type": Mistake(
        lambda: data(x=np.ones((4, 2))), value="x is", rule="mixed ndarray dictionary", remedy="type key"
    ),
    "splits that are not by name": Mistake(
        lambda: data(splits=np.arange(2)), value="splits is", rule="mixed ndarray dictionary", remedy="name key"
    ),
    "too few labels": Mistake(
        lambda: data(y=np.zeros(2, np.int64)), value="int64 of shape (2,)", rule="mixed y labels one", remedy="4 nodes"
    ),
    "a split with an unknown node": Mistake(
        lambda: data(splits={"train": np.array([4])}), value="node 4", rule="mixed split train nodes", remedy="0 to 3 drop"
    ),
    "a label beyond the classes": Mistake(
        lambda: data(y=np.array([0, 3, 1, 0]), num_classes=3),
        value="y[1] is 3",
        rule="mixed labels [-1, 3)",
        remedy="correct num_classes (3)",
    ),
    "a negative label": Mistake(
        lambda: data(y=np.array([0, -2, 1, 0])), value="y[1] is -2", rule="mixed labels [-1, 2)", remedy="correct num_classes (2)"
    ),
    "no label that is not negative": Mistake(
        lambda: data(y=np.array([-9, -2, -7, -8])), value="y[0] is -9", rule="mixed labels [-1, 0)", remedy="correct num_classes (0)"
    ),
    "a node in two splits of a family": Mistake(
        lambda: data(splits=FAMILY), value="node 2", rule="mixed train_5 val_5 share", remedy="drop one"
    ),
    "a split with a node without a label": Mistake(
        lambda: data(y=np.array([0, -1, 0, 0]), splits={"train": np.array([1])}),
        value="node 1",
        rule="mixed split train label",
        remedy="(-1) drop",
    ),
    "a file of the graph altered": Mistake(
        opened_after_damage, value="indices_0.npy", rule="match checksum altered damaged", remedy="remove convert"
    ),
    "a graph of one type": Mistake(
        lambda: HeteroDataset.from_pyg(Data(edge_index=torch.zeros(2, 0))),
        value="a Data",
        rule="graph PyG HeteroData",
        remedy="Graph.from_pyg",
    ),
    "adj_t in place of edge_index": Mistake(pyg_without_edge_index, value="adj_t", rule="a:r:b no edge_index (2, E)", remedy="coo()"),
    "edges as columns": Mistake(pyg_with_edges_as_columns, value="(5, 2)", rule="edge_index a:r:b (2, E)", remedy="reshape"),
    "a type without a size": Mistake(
        pyg_with_a_type_without_size, value="type 'c'", rule="num_nodes x nodes", remedy="set data['c'].num_nodes"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
