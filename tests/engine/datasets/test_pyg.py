"""Conversion of PyG's data sets, and the message if a download fails. No network."""

import numpy as np
import pytest
import torch
from cases.mistakes import refused
from torch_geometric.data import Data, TemporalData

from hoptrain.engine.datasets import load_dataset, pyg
from hoptrain.engine.datasets.events import load_events
from hoptrain.engine.datasets.load_graphs import load_small_graphs
from hoptrain.engine.datasets.triples import load_triples


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOPTRAIN_DATA", raising=False)


def cycle(size, **fields):
    forward = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
    return Data(edge_index=torch.cat([forward, forward.flip(0)], dim=1), num_nodes=size, **fields)


def masked(size):
    place = torch.arange(size)
    x = (place[:, None] == torch.arange(3)).float()
    return cycle(size, x=x, y=place % 3, train_mask=place < 2, val_mask=place == 2, test_mask=place > 4)


def test_one_graph_with_masks_is_fetched_once(monkeypatch):
    fetched = []
    monkeypatch.setattr(pyg, "fetch", lambda name, folder: fetched.append(name) or {"": [masked(7)]})
    for _ in range(2):
        data = load_dataset("cora")
    assert fetched == ["cora"]
    assert data.name == "cora"
    assert data.graph.in_degrees().tolist() == [2] * 7
    assert data.graph.indices[:2].tolist() == [1, 6]
    assert data.x.dtype == np.uint8
    assert data.x[:4].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert data.y.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert [data.split(split).tolist() for split in ("train", "val", "test")] == [[0, 1], [2], [5, 6]]


def test_graphs_are_joined_block_diagonally_and_split_by_graph(monkeypatch):
    def graph(size, value):
        return cycle(size, x=torch.full((size, 2), value), y=torch.eye(size, 4))

    parts = {"train": [graph(3, 0.25), graph(4, 0.5)], "val": [graph(5, 0.75)], "test": [graph(3, 1.0)]}
    monkeypatch.setattr(pyg, "fetch", lambda name, folder: parts)
    data = load_dataset("ppi")
    assert data.is_multilabel
    assert data.num_classes == 4
    assert data.y.dtype == np.uint8
    assert data.x[:, 0].tolist() == [0.25] * 3 + [0.5] * 4 + [0.75] * 5 + [1.0] * 3
    assert [data.split(split).tolist() for split in ("train", "val", "test")] == [[*range(7)], [*range(7, 12)], [12, 13, 14]]
    blocks = np.array([0] * 3 + [1] * 4 + [2] * 5 + [3] * 3)
    dst = np.repeat(np.arange(15), data.graph.in_degrees())
    assert np.array_equal(blocks[data.graph.indices], blocks[dst])
    assert data.graph.in_degrees().tolist() == [2] * 15


def test_files_that_change_under_root_are_converted_again(tmp_path, monkeypatch):
    def fetch(name, folder):
        folder.mkdir(exist_ok=True)
        size = 7 if not (folder / "data.pt").exists() else 9
        (folder / "data.pt").write_text("x" * size)
        return {"": [masked(size)]}

    monkeypatch.setattr(pyg, "fetch", fetch)
    assert load_dataset("cora", root=tmp_path).graph.num_nodes == 7
    assert load_dataset("cora", root=tmp_path).graph.num_nodes == 9


def test_masks_that_are_missing_are_replaced_by_a_random_split():
    data = masked(10)
    del data.val_mask
    converted = pyg.convert_pyg("flickr", {"": [data]})
    assert [len(converted.split(split)) for split in ("train", "val", "test")] == [6, 2, 2]
    assert converted.meta["split"].startswith("random 60/20/20")


@pytest.mark.parametrize("name", ["cora", "reddit", "flickr", "ppi"])
def test_a_failed_download_says_where_was_looked_and_what_to_do(name, tmp_path, monkeypatch):
    def fail(name, folder):
        raise OSError("no route\nto host")

    monkeypatch.setattr(pyg, "fetch", fail)
    with refused("no route to host", f"{name} {tmp_path} $HOPTRAIN_DATA failed", f"give {name}.npz network copy"):
        load_dataset(name, root=tmp_path)


@pytest.mark.parametrize(("name", "cls"), [("cora", "Planetoid"), ("citeseer", "Planetoid"), ("reddit", "Reddit"), ("flickr", "Flickr")])
def test_fetch_asks_pyg_for_the_right_class(name, cls, tmp_path, monkeypatch):
    import torch_geometric.datasets

    calls = []
    monkeypatch.setattr(torch_geometric.datasets, cls, lambda *arguments: calls.append(arguments) or [masked(5)])
    assert pyg.fetch(name, tmp_path)[""][0].num_nodes == 5
    assert calls[0][0] == str(tmp_path)
    assert calls[0][1:] == ({"cora": ("Cora",), "citeseer": ("CiteSeer",)}.get(name, ()))


def test_fetch_asks_pyg_for_the_three_parts_of_ppi(tmp_path, monkeypatch):
    import torch_geometric.datasets

    monkeypatch.setattr(torch_geometric.datasets, "PPI", lambda folder, split: [split])
    assert pyg.fetch("ppi", tmp_path) == {"train": ["train"], "val": ["val"], "test": ["test"]}


@pytest.fixture
def replace_class(monkeypatch):
    """Return a function that replaces a class of PyG by ``make(...)``, and returns a list.

    The list collects the arguments of each call without the folder.
    """
    import torch_geometric.datasets

    def replace(cls, make):
        calls = []
        monkeypatch.setattr(
            torch_geometric.datasets, cls, lambda folder, *args, **options: calls.append((*args, options)) or make(*args, **options)
        )
        return calls

    return replace


def test_small_graphs_are_those_of_pyg(replace_class):
    calls = replace_class(
        "TUDataset", lambda *_, **__: [cycle(size, x=torch.ones(size, 2), y=torch.tensor([size % 2])) for size in range(3, 23)]
    )
    graphs = load_small_graphs("tu_enzymes", fold=3)
    assert calls == [("ENZYMES", {"use_node_attr": True})]
    assert (graphs.name, len(graphs.y), graphs.nodes.num_features) == ("tu_enzymes", 20, 2)
    assert len(graphs.splits["test"]) == 2


def test_triples_are_those_of_pyg(replace_class):
    tails = {"train": 1, "val": 2, "test": 3}
    edge = {"edge_type": torch.tensor([0]), "num_nodes": 4}
    calls = replace_class("FB15k_237", lambda split: [Data(edge_index=torch.tensor([[0], [tails[split]]]), **edge)])
    triples = load_triples("kg_fb15k237")
    assert calls == [({"split": split},) for split in ("train", "val", "test")]
    assert {split: rows.tolist() for split, rows in triples.splits.items()} == {split: [[0, 0, tail]] for split, tail in tails.items()}


def test_events_are_those_of_pyg(replace_class):
    number = torch.arange(4)
    calls = replace_class("JODIEDataset", lambda name: [TemporalData(src=number, dst=number + 4, t=number, msg=torch.ones(4, 3))])
    events = load_events("temporal_jodie_wikipedia")
    assert calls == [("wikipedia", {})]
    assert (events.num_nodes, events.message_channels) == (8, 3)


@pytest.mark.parametrize(
    ("load", "name"), [(load_small_graphs, "tu_mutag"), (load_triples, "kg_fb15k237"), (load_events, "temporal_jodie_wikipedia")]
)
def test_other_failed_downloads_say_the_same(load, name, tmp_path, monkeypatch):
    monkeypatch.setattr(pyg, "CLASSES", {name: ("Nothing",)})
    with refused("datasets", f"{name} {tmp_path} $HOPTRAIN_DATA failed", f"give {name}.npz network copy"):
        load(name, root=tmp_path)
