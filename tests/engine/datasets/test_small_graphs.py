"""Data sets of many small graphs in one file."""

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from torch_geometric.data import Batch, Data

from hoptrain.engine.datasets.load_graphs import load_small_graphs
from hoptrain.engine.datasets.small_graphs import SmallGraphs

COUNT = 20


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write 20 rings of 3 to 6 nodes, and return the folder."""
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))

    def to_file(**changes):
        sizes = 3 + np.arange(COUNT) % 4
        ptr = np.concatenate([[0], np.cumsum(sizes)])
        before = np.concatenate([(np.arange(size) - 1) % size + begin for begin, size in zip(ptr, sizes, strict=False)])
        arrays = {
            "indptr": np.arange(ptr[-1] + 1),
            "indices": before,
            "node_label": np.arange(ptr[-1]) % 3,
            "graph_ptr": ptr,
            "graph_y": np.arange(COUNT) % 2,
            "fold10": np.arange(COUNT) // 2,
        }
        np.savez(tmp_path / "rings.npz", **{name: array for name, array in (arrays | changes).items() if array is not None})
        return tmp_path

    return to_file


def test_folds(write):
    graphs = load_small_graphs("rings", root=write(), fold=9)
    assert (len(graphs.y), graphs.num_classes, graphs.nodes.num_features) == (COUNT, 2, 3)
    assert graphs.splits["test"].tolist() == [18, 19]
    assert graphs.splits["val"].tolist() == [0, 1]
    assert graphs.splits["train"].tolist() == list(range(2, 18))


def test_folds_of_our_own(write):
    root = write(fold10=None)
    tests = [load_small_graphs("rings", root=root, fold=fold).splits["test"] for fold in range(10)]
    assert sorted(np.concatenate(tests)) == list(range(COUNT))


def molecules(count=20, **changes):
    """Return PyG graphs of 2 to 5 nodes, with edges in any order and some repeated edges."""
    generator = torch.Generator().manual_seed(1)
    graphs = []
    for number in range(count):
        size, edges = 2 + number % 4, 1 + number % 7
        parts = {
            "x": torch.randn(size, 3, generator=generator),
            "edge_index": torch.randint(0, size, (2, edges), generator=generator),
            "edge_attr": torch.randn(edges, 2, generator=generator),
            "y": torch.tensor([number % 3]),
        }
        graphs.append(Data(**{name: value for name, value in (parts | changes).items() if value is not None}))
    return graphs


def edges_of(indptr, indices, edge_attr):
    """Return the edges of a batch with their features, sorted."""
    destinations = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return sorted(zip(indices.tolist(), destinations.tolist(), edge_attr.tolist(), strict=True))


def test_graphs_of_pyg():
    """A batch equals PyG's ``Batch`` of the same graphs."""
    graphs, items = molecules(), np.array([7, 3, 19, 0, 12])
    made = SmallGraphs.from_pyg(graphs, splits={"train": np.arange(20)}).join(items)
    wanted = Batch.from_data_list([graphs[item] for item in items])
    assert np.array_equal(made["x"], wanted.x)
    assert np.array_equal(made["ptr"], wanted.ptr)
    assert np.array_equal(made["y"], wanted.y)
    assert edges_of(made["indptr"], made["indices"], made["edge_attr"]) == sorted(
        zip(*wanted.edge_index.tolist(), wanted.edge_attr.tolist(), strict=True)
    )


def test_splits_of_pyg():
    class OfOGB(list):
        def get_idx_split(self):
            return {"train": torch.arange(10), "valid": torch.arange(10, 15), "test": torch.arange(15, 20)}

    assert {name: len(ids) for name, ids in SmallGraphs.from_pyg(OfOGB(molecules())).splits.items()} == {"train": 10, "val": 5, "test": 5}
    assert sorted(np.concatenate(list(SmallGraphs.from_pyg(molecules(), fold=3).splits.values()))) == list(range(20))


@pytest.mark.parametrize(
    ("y", "kept"),
    [
        (torch.tensor([1.5]), ("f", np.float32, (20,), 1)),
        (torch.tensor([[1.5, 2.0]]), ("f", np.float32, (20, 2), 2)),
        (torch.tensor([[1.0, float("nan"), 0.0]]), ("i", np.int8, (20, 3), 3)),
        (torch.tensor([[1, 0]]), ("u", np.uint8, (20, 2), 2)),
        (torch.tensor([[2.0]]), ("i", np.int64, (20,), 3)),
    ],
)
def test_kinds_of_labels(y, kept):
    graphs = SmallGraphs.from_pyg(molecules(y=y))
    assert (graphs.y.dtype.kind, graphs.y.dtype, graphs.y.shape, graphs.num_classes) == kept


def test_a_folder(tmp_path):
    graphs = SmallGraphs.from_pyg(molecules(y=torch.tensor([[1.0, float("nan")]])), name="mols")
    graphs.save(tmp_path / "mols")
    for again in (load_small_graphs("mols", root=tmp_path), load_small_graphs(str(tmp_path / "mols"))):
        assert (again.name, again.num_classes, again.y.dtype) == ("mols", 2, np.int8)
        for name, array in graphs.join(np.arange(5)).items():
            assert np.array_equal(array, again.join(np.arange(5))[name])
        assert {name: ids.tolist() for name, ids in again.splits.items()} == {name: ids.tolist() for name, ids in graphs.splits.items()}
    with refused("fold is 2", "mols own splits", "leave out"):
        load_small_graphs("mols", root=tmp_path, fold=2)
    graphs.nodes.save(tmp_path / "one")
    with refused("mols", "one graph task: nodes", "folder SmallGraphs.save"):
        load_small_graphs("one", root=tmp_path)


def test_lists_and_tensors_are_taken():
    right = SmallGraphs.from_pyg(molecules())
    splits = {"train": list(range(5)), "val": torch.arange(5, 8)}
    for as_given in (list, torch.from_numpy):
        again = SmallGraphs(nodes=right.nodes, ptr=as_given(right.ptr), y=as_given(right.y), splits=splits)
        assert (again.ptr.tolist(), again.y.tolist()) == (right.ptr.tolist(), right.y.tolist())
        assert {name: ids.tolist() for name, ids in again.splits.items()} == {"train": list(range(5)), "val": [5, 6, 7]}


def changed_file(write, fold=0, **changes):
    """Write the rings with changes, and read them."""
    return load_small_graphs("rings", root=write(**changes), fold=fold)


def file_with_an_edge_between_two_graphs(write):
    root = write()
    with np.load(root / "rings.npz") as file:
        indices = file["indices"]
    indices[0] = 50
    changed_file(write, indices=indices)


def graphs_without_nodes():
    empty = Data(x=torch.zeros(0, 3), edge_index=torch.zeros(2, 0).long(), edge_attr=torch.zeros(0, 2), y=torch.zeros(1))
    SmallGraphs.from_pyg([*molecules(19), empty])


def class_beyond_num_classes():
    right = SmallGraphs.from_pyg(molecules())
    SmallGraphs(nodes=right.nodes, ptr=right.ptr, y=right.y, num_classes=2)


MISTAKES = {
    "a file of one graph": Mistake(
        lambda write: changed_file(write, graph_ptr=None),
        value="no member graph_ptr",
        rule="no small graphs graph_y",
        remedy="task: nodes",
    ),
    "fewer nodes than the file has": Mistake(
        lambda write: changed_file(write, graph_ptr=np.arange(COUNT + 1)),
        value="graph_ptr of shape (21,)",
        rule="graph_ptr 90 20 graphs",
        remedy="offsets 0 to 90",
    ),
    "a graph without nodes in a file": Mistake(
        lambda write: changed_file(write, graph_ptr=np.r_[0, np.linspace(0, 90, COUNT).astype(int)]),
        value="graph 0",
        rule="no each",
        remedy="drop label",
    ),
    "a label of -1 to test": Mistake(
        lambda write: changed_file(write, graph_y=np.arange(COUNT) - 1), value="(-1)", rule="graph 0 test label", remedy="drop"
    ),
    "a target of NaN to test": Mistake(
        lambda write: changed_file(write, graph_y=np.where(np.arange(COUNT), np.arange(COUNT) / 3, np.nan)),
        value="(nan)",
        rule="graph 0 test label",
        remedy="drop",
    ),
    "a fold without graphs": Mistake(
        lambda write: changed_file(write, fold10=np.arange(COUNT) // 2 % 9 + 1),
        value="fold 0",
        rule="no graph test folds",
        remedy="another fold10",
    ),
    "fewer folds than graphs": Mistake(
        lambda write: changed_file(write, fold10=np.zeros(3, np.int64)),
        value="fold10 is int64 of shape (3,)",
        rule="integer 20 graphs",
        remedy="convert",
    ),
    "nodes without features in a file": Mistake(
        lambda write: changed_file(write, node_label=None), value="rings", rule="no features nodes", remedy="add x node_label"
    ),
    "an edge between two graphs": Mistake(
        file_with_an_edge_between_two_graphs, value="rings", rule="edge connects two small", remedy="correct graph_ptr edges"
    ),
    "an unknown fold": Mistake(lambda write: changed_file(write, fold=10), value="fold is 10", rule="10", remedy="give 0 9"),
    "no graphs": Mistake(lambda: SmallGraphs.from_pyg([]), value="graphs", rule="no graphs", remedy="give"),
    "graphs without features": Mistake(
        lambda: SmallGraphs.from_pyg(molecules(x=None)), value="graph 0", rule="features nodes x", remedy="add transform"
    ),
    "a graph without the others' edge_attr": Mistake(
        lambda: SmallGraphs.from_pyg([*molecules(3), *molecules(1, edge_attr=None)]),
        value="graph 3",
        rule="edge_attr all none",
        remedy="add",
    ),
    "a graph with more columns": Mistake(
        lambda: SmallGraphs.from_pyg([*molecules(3), *molecules(1, x=torch.zeros(2, 5))]),
        value="graph 3 has 5",
        rule="columns x graph 3",
        remedy="add",
    ),
    "a graph without a label": Mistake(
        lambda: SmallGraphs.from_pyg([*molecules(3), *molecules(1, y=None)]), value="graph 3", rule="label y", remedy="add transform"
    ),
    "a label above 1 among several": Mistake(
        lambda: SmallGraphs.from_pyg(molecules(y=torch.tensor([[2, 0]]))),
        value="y[0, 0] is 2",
        rule="labels [-1, 2)",
        remedy="correct num_classes",
    ),
    "infinite targets": Mistake(
        lambda: SmallGraphs.from_pyg(molecules(y=torch.tensor([float("inf")]))),
        value="y has infinities",
        rule="finite NaN",
        remedy="replace",
    ),
    "NaN as every target": Mistake(
        lambda: SmallGraphs.from_pyg(molecules(y=torch.tensor([float("nan")]))), value="(-1)", rule="graph 12 test label", remedy="drop"
    ),
    "a graph without nodes": Mistake(graphs_without_nodes, value="graph 19", rule="no nodes", remedy="drop label"),
    "a class beyond num_classes": Mistake(class_beyond_num_classes, value="y[2] is 2", rule="labels [-1, 2)", remedy="correct num_classes"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
