"""Heterogeneous graphs in .npz files: arrays that are read, ignored or rejected."""

import json

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of

from hoptrain.engine import load_hetero_dataset


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))


def write(path, **changes):
    """Write a file with two papers and three authors; arrays given as None are left out."""
    meta = changes.pop("meta", {"node_types": {"paper": 2, "author": 3}, "target": "paper", "source": "here"})
    members = {
        "rel_author__paper_indptr": np.array([0, 2, 3]),
        "rel_author__paper_indices": np.array([0, 2, 1]),
        "rel_paper__wrote__author_indptr": np.array([0, 0, 1, 1]),
        "rel_paper__wrote__author_indices": np.array([1]),
        "paper_x": np.array([[1.0, 0.5], [0.0, 2.0]]),
        "author_x_indptr": np.array([0, 1, 1, 2]),
        "author_x_indices": np.array([3, 0], np.uint16),
        "author_x_data": np.ones(2, np.float32),
        "author_x_shape": np.array([3, 4]),
        "y": np.array([1, 0]),
        "train_mask_20": np.array([True, False]),
        "val_mask_20": np.array([False, True]),
        "test_mask": np.array([True, True]),
        "node_type": np.zeros(5, np.int8),
        "meta": np.array(json.dumps(meta)),
    }
    np.savez(path, **{name: array for name, array in (members | changes).items() if array is not None})


def test_what_a_file_holds(tmp_path):
    write(tmp_path / "small.npz")
    for _ in range(2):  # converted, then opened
        data = load_hetero_dataset("small", root=tmp_path)
        assert data.graph.num_nodes == {"paper": 2, "author": 3}
        assert data.graph.relations[("author", "to", "paper")].indices.tolist() == [0, 2, 1]
        assert data.graph.relations[("paper", "wrote", "author")].indptr.tolist() == [0, 0, 1, 1]
        assert data.x["paper"].tolist() == [[1, 0.5], [0, 2]]
        assert data.x["author"].tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]
        assert {name: ids.tolist() for name, ids in data.splits.items()} == {"train_20": [0], "val_20": [1], "test": [0, 1]}
        assert (data.seed_type, data.num_classes, data.y.tolist()) == ("paper", 2, [1, 0])
        assert (data.meta["source"], data.meta["not_carried"]) == ("here", ["node_type"])


def test_acm_has_its_published_counts(data_root):
    if not (data_root / "hetero_acm.npz").exists():
        pytest.skip("hetero_acm.npz is absent")
    data = load_hetero_dataset("hetero_acm", root=data_root)
    assert data.graph.num_nodes == {"paper": 4019, "author": 7167, "subject": 60}
    assert [columns.num_edges for columns in data.graph.relations.values()] == [13407, 13407, 4019, 4019]
    assert {kind: rows.shape for kind, rows in data.x.items()} == {"paper": (4019, 1902), "author": (7167, 1902)}
    assert (data.seed_type, data.num_classes) == ("paper", 3)
    assert [len(data.split(f"train_{number}")) for number in (20, 40, 60)] == [60, 120, 180]


def changed(folder, **changes):
    """Write the file with changes, and read it."""
    write(folder / "small.npz", **changes)
    return load_hetero_dataset("small", root=folder)


MISTAKES = {
    "no types of nodes": Mistake(
        lambda tmp_path: changed(tmp_path, meta={"target": "paper"}),
        value="node_types None",
        rule="meta target 'paper' number",
        remedy="add",
    ),
    "labels of an unknown type": Mistake(
        lambda tmp_path: changed(tmp_path, meta={"node_types": {"paper": 2, "author": 3}, "target": "venue"}),
        value="target 'venue'",
        rule="meta node_types types y",
        remedy="add",
    ),
    "a relation without indices": Mistake(
        lambda tmp_path: changed(tmp_path, rel_author__paper_indices=None),
        value="rel_author__paper_indices",
        rule="needs indptr relation both",
        remedy="add",
    ),
    "a relation of four names": Mistake(
        lambda tmp_path: changed(tmp_path, rel_a__b__c__d_indptr=np.zeros(3)),
        value="rel_a__b__c__d_indptr",
        rule="relation rel_SOURCE__DESTINATION_indptr rel_SOURCE__NAME__DESTINATION_indptr",
        remedy="rename",
    ),
    "sparse features beyond the columns": Mistake(
        lambda tmp_path: changed(tmp_path, author_x_indices=np.array([9, 0])),
        value="[3, 4]",
        rule="x_indices x_shape column F",
        remedy="fetch again",
    ),
    "an unknown author": Mistake(
        lambda tmp_path: changed(tmp_path, rel_author__paper_indices=np.array([0, 3, 1])),
        value="node 3",
        rule="author:to:paper source edge 1",
        remedy="drop larger num_nodes",
    ),
    "a negative label": Mistake(
        lambda tmp_path: changed(tmp_path, y=np.array([1, -2])),
        value="y[1] is -2",
        rule="labels [-1, 2)",
        remedy="correct num_classes",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
