"""Small graphs in one file."""

import numpy as np
import pytest

from hoptrain.engine import InputError
from hoptrain.engine.datasets.small_graphs import load_small_graphs

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
        ({"graph_y": np.arange(COUNT) - 1}, "graph_y is int64 from -1 on"),
        ({"graph_y": np.arange(COUNT) / 2}, "graph_y is float64"),
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
