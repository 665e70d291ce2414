"""Small graphs in one file."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from hoptrain.engine import InputError
from hoptrain.engine.datasets.load_graphs import load_small_graphs
from hoptrain.engine.datasets.small_graphs import SmallGraphs

COUNT = 20


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes 20 rings of 3 to 6 vertices; returns the folder."""
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
    assert (len(graphs.y), graphs.num_classes, graphs.vertices.num_features) == (COUNT, 2, 3)
    assert graphs.splits["test"].tolist() == [18, 19]
    assert graphs.splits["val"].tolist() == [0, 1]
    assert graphs.splits["train"].tolist() == list(range(2, 18))


def test_folds_of_our_own(write):
    root = write(fold10=None)
    tests = [load_small_graphs("rings", root=root, fold=fold).splits["test"] for fold in range(10)]
    assert sorted(np.concatenate(tests)) == list(range(COUNT))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"graph_ptr": None}, "holds no small graphs"),
        ({"graph_ptr": np.arange(COUNT + 1)}, "graph_ptr of shape"),
        ({"graph_ptr": np.r_[0, np.linspace(0, 90, COUNT).astype(int)]}, "graph 0 has no vertices"),
        ({"graph_y": np.arange(COUNT) - 1}, "graph 0 of split test has no label"),
        ({"graph_y": np.where(np.arange(COUNT), np.arange(COUNT) / 3, np.nan)}, "graph 0 of split test has no label .nan."),
        ({"fold10": np.arange(COUNT) // 2 % 9 + 1}, "with fold 0 no graph is for test: its folds are 1, 2"),
        ({"fold10": np.zeros(3, np.int64)}, "fold10 is int64"),
        ({"node_label": None}, "no features"),
    ],
)
def test_files_that_are_wrong(write, changes, words):
    with pytest.raises(InputError, match=words):
        load_small_graphs("rings", root=write(**changes))


def test_an_edge_between_two_graphs(write):
    root = write()
    with np.load(root / "rings.npz") as file:
        indices = file["indices"]
    indices[0] = 50
    with pytest.raises(InputError, match="an edge joins two"):
        load_small_graphs("rings", root=write(indices=indices))


def test_a_fold_that_is_not_there(write):
    with pytest.raises(InputError, match="fold is 10"):
        load_small_graphs("rings", root=write(), fold=10)


def molecules(count=20, **changes):
    """PyG's graphs of 2 to 5 vertices with edges in any order, some of them several times."""
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
    """The edges of a batch with their features, sorted."""
    destinations = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return sorted(zip(indices.tolist(), destinations.tolist(), edge_attr.tolist(), strict=True))


def test_graphs_of_pyg():
    """A batch is what PyG's ``Batch`` makes of the same graphs."""
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
    with pytest.raises(InputError, match="fold is 2 and mols has splits of its own"):
        load_small_graphs("mols", root=tmp_path, fold=2)
    graphs.vertices.save(tmp_path / "one")
    with pytest.raises(InputError, match="holds one graph, mols: task: nodes reads it"):
        load_small_graphs("one", root=tmp_path)


@pytest.mark.parametrize(
    ("graphs", "words"),
    [
        ([], "has no graphs"),
        (molecules(x=None), "graph 0 has no features of vertices"),
        ([*molecules(3), *molecules(1, edge_attr=None)], "graph 3 has no edge_attr and others have"),
        ([*molecules(3), *molecules(1, x=torch.zeros(2, 5))], "graph 3 has 5 columns of x, graph 0 has 3"),
        ([*molecules(3), *molecules(1, y=None)], "graph 3 has no label"),
        (molecules(y=torch.tensor([[2, 0]])), r"y\[0, 0\] is 2: labels are in \[-1, 2\)"),
        (molecules(y=torch.tensor([float("inf")])), "y has infinities"),
        (molecules(y=torch.tensor([float("nan")])), "has no label"),
        ([*molecules(19), Data(x=torch.zeros(0, 3), edge_index=torch.zeros(2, 0).long(), edge_attr=torch.zeros(0, 2), y=torch.zeros(1))],
         "graph 19 has no vertices"),
    ],
)  # fmt: skip
def test_graphs_that_are_wrong(graphs, words):
    with pytest.raises(InputError, match=words):
        SmallGraphs.from_pyg(graphs)


def test_a_class_that_is_not_there():
    right = SmallGraphs.from_pyg(molecules())
    with pytest.raises(InputError, match=r"y\[2\] is 2: labels are in \[-1, 2\); correct it or num_classes"):
        SmallGraphs(vertices=right.vertices, ptr=right.ptr, y=right.y, num_classes=2)


def test_lists_and_tensors_are_taken():
    right = SmallGraphs.from_pyg(molecules())
    splits = {"train": list(range(5)), "val": torch.arange(5, 8)}
    for as_given in (list, torch.from_numpy):
        again = SmallGraphs(vertices=right.vertices, ptr=as_given(right.ptr), y=as_given(right.y), splits=splits)
        assert (again.ptr.tolist(), again.y.tolist()) == (right.ptr.tolist(), right.y.tolist())
        assert {name: ids.tolist() for name, ids in again.splits.items()} == {"train": list(range(5)), "val": [5, 6, 7]}
