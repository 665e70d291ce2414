"""Names of splits, and random splits."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of

from hoptrain.engine import Dataset, HeteroDataset, HeteroGraph
from hoptrain.engine.features.splits import random_splits

EDGES = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
HETERO = HeteroGraph.from_edges({"a": 4}, {("a", "to", "a"): tuple(EDGES)})


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_the_validation_split_has_three_names(name):
    ids = np.array([1, 2])
    data = Dataset(edge_index=EDGES, splits={"train": [0], name: ids}, edge_splits={name: [3]}, negatives={name: [[0], [2]]})
    assert (list(data.splits), list(data.edge_splits), list(data.negatives)) == (["train", "val"], ["val"], ["val"])
    assert data.split(name).tolist() == [1, 2]
    hetero = HeteroDataset(graph=HETERO, seed_type="a", splits={f"{name}_5": ids}, edge_splits={("a", "to", "a"): {name: [3]}})
    assert (list(hetero.splits), list(hetero.edge_splits["a", "to", "a"])) == (["val_5"], ["val"])


def test_random_splits_are_of_the_labelled_nodes():
    y = np.where(np.arange(50) % 5 == 0, -1, np.arange(50) % 3)
    data = Dataset(edge_index=np.zeros((2, 0), int), y=y).with_random_splits()
    assert {name: len(ids) for name, ids in data.splits.items()} == {"train": 24, "val": 8, "test": 8}
    assert np.sort(np.concatenate(list(data.splits.values()))).tolist() == np.flatnonzero(y >= 0).tolist()
    assert data.splits["train"].tolist() == random_splits(np.flatnonzero(y >= 0))["train"].tolist()
    others = data.with_random_splits(0.5, 0.25, seed=1)
    assert [len(ids) for ids in others.splits.values()] == [20, 10, 10]
    assert others.meta["split"] == "random 0.5/0.25 of the labelled nodes, seed 1"
    assert [len(ids) for ids in Dataset(edge_index=EDGES).with_random_splits(0.5).splits.values()] == [2, 0, 2]


MISTAKES = {
    "two names of one split": Mistake(
        lambda: Dataset(edge_index=EDGES, splits={"val": [0], "valid": [1]}),
        value="valid",
        rule="data two splits val",
        remedy="leave one out",
    ),
    "a word for splits": Mistake(
        lambda: Dataset(edge_index=EDGES, splits="random"), value="str", rule="splits dictionary", remedy="with_random_splits()"
    ),
    "a list for splits": Mistake(
        lambda: Dataset(edge_index=EDGES, splits=[[0], [1]]), value="list", rule="splits dictionary", remedy="give ids masks name"
    ),
    "too large shares": Mistake(
        lambda: Dataset(edge_index=EDGES).with_random_splits(0.9, 0.2),
        value="0.9",
        rule="train val 0.2 shares sum 1",
        remedy="give 0.6 0.2",
    ),
    "too few nodes": Mistake(
        lambda: Dataset(edge_index=EDGES[:, :0], y=[0, 1]).with_random_splits(),
        value="2",
        rule="labelled nodes random",
        remedy="label more",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
