"""A data set on a typed graph: its splits and stores, and what does not fit."""

import numpy as np
import pytest

from hoptrain.engine import HeteroDataset, HeteroGraph, InputError

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
        ({"y": np.zeros(2, np.int64)}, "^typed: y is int64 of shape .*one .* for each of the 4 vertices"),
        ({"splits": {"train": np.array([4])}}, "^typed: split train names vertex 4: vertices are 0 to 3"),
        ({"y": np.array([0, -1, 0, 0]), "splits": {"train": np.array([1])}}, "vertex 1 of split train has no label"),
    ],
)
def test_what_does_not_fit(options, message):
    with pytest.raises(InputError, match=message):
        data(**options)
