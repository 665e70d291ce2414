"""Full supervision trains on all labelled nodes that are not held out."""

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.transforms.full_supervision import fully_supervised
from hoptrain.samplers import LinkSampler, NeighborSampler
from hoptrain.trainers import LinkDataModule, NodeDataModule

HELD_OUT = {"val": np.array([3]), "test": np.array([5, 6])}
CLASSES = np.array([0, 1, -1, 0, 1, 1, 0])


def data(y, **changes):
    graph = Graph.from_edges(np.arange(6), np.arange(1, 7), 7)
    return Dataset(**{"name": "seven", "graph": graph, "x": np.eye(7), "y": y, "splits": {"train": np.array([0]), **HELD_OUT}} | changes)


@pytest.mark.parametrize(
    "y",
    [CLASSES, np.where(CLASSES < 0, np.nan, CLASSES - 0.5), np.stack([CLASSES, np.full(7, -1)], 1)],
    ids=["classes", "targets", "several labels"],
)
def test_a_label_that_is_unknown_or_held_out_is_left_out(y):
    more = fully_supervised(data(y))
    assert more.split("train").tolist() == [0, 1, 4]
    assert {name: more.split(name).tolist() for name in HELD_OUT} == {"val": [3], "test": [5, 6]}


def test_without_others_all_are_trained_on():
    assert fully_supervised(data(CLASSES, splits={})).split("train").tolist() == [0, 1, 3, 4, 5, 6]


def test_an_option_of_tasks_on_nodes():
    options = {"num_workers": 0, "full_supervision": True}
    assert NodeDataModule(data(CLASSES), NeighborSampler([2]), **options).data.split("train").tolist() == [0, 1, 4]
    with refused("seven", "no labels nodes trains", "leave full_supervision out"):
        NodeDataModule(data(None), NeighborSampler([2]), **options)
    with refused("LinkDataModule", "full_supervision labels nodes", "leave out"):
        LinkDataModule(dataset=data(CLASSES), sampler=LinkSampler(NeighborSampler([2])), **options)
