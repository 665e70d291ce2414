"""OGB's link data sets, in small files as ``ogb`` and torch write them. No network."""

import os

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from ogb_case import _own_cache, csv  # noqa: F401

from hoptrain.engine.datasets import load_dataset
from hoptrain.engine.datasets.ogb.source import LINK_SCORES, SOURCES
from hoptrain.samplers import LinkSampler, NeighborSampler
from hoptrain.trainers.tasks.links.data import LinkDataModule

SPLITS = {"ogbl-ddi": "target", "ogbl-collab": "time", "ogbl-ppa": "throughput", "ogbl-citation2": "time"}
TRAIN, VALID, TEST = np.array([[0, 1], [0, 2], [3, 4], [0, 1]]), np.array([[1, 2]]), np.array([[2, 4], [1, 0]])


def write(root, name, parts, features=None, **options):
    folder = root / name.replace("-", "_")
    csv(folder / "raw" / "num-node-list.csv.gz", [[6]])
    csv(folder / "raw" / "edge.csv.gz", TRAIN)
    if features is not None:
        csv(folder / "raw" / "node-feat.csv.gz", features)
    places = folder / "split" / SPLITS[name]
    places.mkdir(parents=True, exist_ok=True)
    for file, part in parts.items():
        torch.save(part, places / f"{file}.pt", **options)
    (folder / "RELEASE_v1.txt").touch()
    return folder


def pooled(as_array=lambda array: array):
    none = {"valid": np.array([[0, 4], [1, 3], [5, 2]]), "test": np.array([[5, 5]])}
    own = {"train": TRAIN, "valid": VALID, "test": TEST}
    return {file: {"edge": as_array(edge)} | ({"edge_neg": as_array(none[file])} if file in none else {}) for file, edge in own.items()}


def pairs(data, split):
    places = data.graph.csc_positions(data.edge_splits[split])
    return list(zip(data.graph.indices[places].tolist(), data.graph.destinations()[places].tolist(), strict=True))


@pytest.mark.parametrize("as_array", [lambda array: array, torch.from_numpy])
def test_negatives_shared_by_all_links(as_array, tmp_path):
    """Negatives that all links share are read from NumPy arrays and from tensors."""
    write(tmp_path, "ogbl-ddi", pooled(as_array))
    data = load_dataset("ogbl-ddi", root=tmp_path)
    assert (data.name, data.graph.num_nodes, data.graph.num_edges, data.x) == ("ogbl-ddi", 6, 11, None)
    assert pairs(data, "train") == [(0, 1), (0, 2), (3, 4), (0, 1), (1, 0), (2, 0), (4, 3), (1, 0)]
    assert (pairs(data, "val"), pairs(data, "test")) == ([(1, 2)], [(2, 4), (1, 0)])
    assert data.negatives["val"].tolist() == [[0, 1, 5], [4, 3, 2]]
    assert data.negatives["test"].tolist() == [[5], [5]]
    module = LinkDataModule(data, LinkSampler(NeighborSampler([2])), num_workers=0)
    assert module.default_metric == "hits@20"
    assert module.data.graph.num_edges == 8
    assert module.held_out["val"].others.tolist() == [[0, 1, 5], [4, 3, 2]]


def test_negatives_of_each_link(tmp_path):
    """In ogbl-citation2's layout, which also has features, each link has its own negatives."""
    parts = {"train": {"source_node": TRAIN[:, 0], "target_node": TRAIN[:, 1]}}
    for file, own in (("valid", VALID), ("test", TEST)):
        parts[file] = {"source_node": own[:, 0], "target_node": own[:, 1], "target_node_neg": np.arange(3) + np.zeros((len(own), 1), int)}
    write(tmp_path, "ogbl-citation2", parts, features=np.arange(12).reshape(6, 2) / 4)
    data = load_dataset("ogbl-citation2", root=tmp_path)
    assert data.negatives["test"].tolist() == [[[2, 2, 2], [1, 1, 1]], [[0, 1, 2], [0, 1, 2]]]
    assert data.x[5].tolist() == [2.5, 2.75]
    assert data.meta["score"] == "mrr"


def test_years_become_times(tmp_path):
    parts = pooled()
    for part in parts.values():
        part |= {"year": 2000 + np.arange(len(part["edge"])), "weight": np.ones(len(part["edge"]), np.int64)}
    write(tmp_path, "ogbl-collab", parts, features=np.ones((6, 2)))
    data = load_dataset("ogbl-collab", root=tmp_path)
    times = {split: data.graph.times[data.graph.csc_positions(ids)].tolist() for split, ids in data.edge_splits.items()}
    assert times == {"train": [2000, 2001, 2002, 2003] * 2, "val": [2000], "test": [2000, 2001]}


def test_scores_are_those_that_ogb_states():
    from ogb.linkproppred import Evaluator

    assert {name: Evaluator(name).eval_metric for name in LINK_SCORES} == LINK_SCORES
    assert LINK_SCORES.keys() <= SOURCES.keys()


class Trap:
    """An object whose pickle would run code."""

    def __reduce__(self):
        return os.system, ("touch sprung",)


OLD_FORMATS = [{"pickle_protocol": protocol, "_use_new_zipfile_serialization": False} for protocol in (2, 4)]


@pytest.mark.parametrize("part", [Trap(), {"edge": Trap()}])
@pytest.mark.parametrize("options", [{}, *OLD_FORMATS])
def test_nothing_is_executed(tmp_path, monkeypatch, part, options):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "ogbl-ddi", pooled() | {"train": part}, **options)
    with refused(f"{os.name}.system", "train.pt more arrays needs", "remove folder downloaded"):
        load_dataset("ogbl-ddi", root=tmp_path)
    assert not (tmp_path / "sprung").exists()


def training(folder, part):
    """Read a data set whose training split is ``part``."""
    write(folder, "ogbl-ddi", pooled() | {"train": part})
    return load_dataset("ogbl-ddi", root=folder)


def torn_file(tmp_path):
    folder = write(tmp_path, "ogbl-ddi", pooled())
    (folder / "split" / "target" / "test.pt").write_bytes(b"PK")
    load_dataset("ogbl-ddi", root=tmp_path)


MISTAKES = {
    "a list": Mistake(
        lambda tmp_path: training(tmp_path, [TRAIN]), value="list", rule="train.pt links dictionary arrays", remedy="download"
    ),
    "no pairs": Mistake(
        lambda tmp_path: training(tmp_path, {"edges": TRAIN}), value="'edge'", rule="no split links", remedy="remove folder download"
    ),
    "one end of each pair": Mistake(
        lambda tmp_path: training(tmp_path, {"edge": TRAIN[:, :1]}),
        value="int64 and shape (1, 4)",
        rule="no split links pairs",
        remedy="remove folder download",
    ),
    "missing nodes": Mistake(
        lambda tmp_path: training(tmp_path, {"edge": TRAIN + 5}),
        value="node 8",
        rule="edge 6 nodes 5",
        remedy="drop larger num_nodes",
    ),
    "a file that is torn": Mistake(torn_file, value="test.pt", rule="missing damaged", remedy="remove folder downloaded"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
