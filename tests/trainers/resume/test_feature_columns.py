"""A checkpoint keeps the names of the feature columns and of the classes, and data with other columns are rejected."""

from dataclasses import replace
from io import StringIO

import pandas as pd
import pytest
import torch
from cases.mistakes import refused
from pytorch_lightning import Trainer

from hoptrain import PredictionWriter, from_pandas, read_hetero_tables
from hoptrain.samplers import HeteroSampler, NeighborSampler
from hoptrain.trainers import HeteroClassifier, HeteroDataModule, NodeClassifier, NodeDataModule

EDGES = pd.DataFrame({"src": range(6), "dst": [1, 2, 3, 4, 5, 0], "kind": [0.5, 1, 2, 3, 4, 5], "age": [1, 2, 3, 4, 5, 6]})
NODES = pd.DataFrame(
    {
        "id": range(6),
        "pages": [10, 20, 30, 40, 50, 60],
        "town": ["Oslo", "Rome"] * 3,
        "label": ["a", "b"] * 3,
        "split": ["train"] * 4 + ["val", "test"],
    }
)
LIKE = "--like TRAINING_FOLDER"


def trainer(folder):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "enable_checkpointing": False}
    return Trainer(max_epochs=1, accelerator="cpu", default_root_dir=folder, **quiet)


def module(nodes, edges=EDGES, **options):
    data = from_pandas(edges, nodes, name="new", **options)
    return NodeDataModule(data, NeighborSampler([2]), num_workers=0, seed=1)


@pytest.fixture(params=["sage", "gatv2"])
def trained(request, tmp_path):
    """Return the path of a checkpoint, and the architecture: sage does not read edge features, gatv2 does."""
    data, run = module(NODES), trainer(tmp_path)
    run.fit(NodeClassifier.from_data(data, arch=request.param, hidden_channels=8), data)
    run.save_checkpoint(tmp_path / "a.ckpt")
    return tmp_path / "a.ckpt", request.param


def predict(trained, data):
    path, _ = trained
    return torch.cat(trainer(path.parent).predict(NodeClassifier.load_from_checkpoint(path, weights_only=True), data))


@pytest.mark.promise
def test_data_with_other_columns_are_rejected(trained):
    path, arch = trained
    assert predict(trained, module(NODES)).shape == predict(trained, module(NODES.drop(columns="label"))).shape == (6, 2)
    reordered = module(NODES[["id", "town", "pages"]])
    with refused("feature column 0 of nodes is town", "new training data pages position", LIKE):
        predict(trained, reordered)
    with refused("feature column 0 of nodes is town", "new training data pages position", LIKE):
        trainer(path.parent).predict(NodeClassifier(2, 2, 1, arch=arch, hidden_channels=8, edge_channels=2), reordered, ckpt_path=path)
    for run in (Trainer.validate, Trainer.test, Trainer.fit):
        with refused("column town of nodes has other categories", "new training data", LIKE):
            other = module(NODES.assign(town=["Oslo", "Bonn"] * 3))
            run(trainer(path.parent), NodeClassifier(2, 2, 1, arch=arch, hidden_channels=8, edge_channels=2), other, ckpt_path=path)
    with refused("column pages of nodes is a category, and a number", "training data", LIKE):
        predict(trained, module(NODES.assign(pages=["x", "y"] * 3)))
    with refused("feature column 2 of nodes is more", "training data missing", LIKE):
        predict(trained, module(NODES.assign(more=1)))
    with refused("classes", "new names training data", LIKE):
        predict(trained, module(NODES.assign(label=["b", "c"] * 3)))
    renamed = EDGES.rename(columns={"kind": "sort"})
    if arch == "gatv2":
        with refused("feature column 0 of edges is sort", "new training data kind", LIKE):
            predict(trained, module(NODES, renamed))
    else:
        assert len(predict(trained, module(NODES, renamed))) == 6


def test_data_and_checkpoints_without_names_are_not_checked(trained):
    path, _ = trained
    reordered = module(NODES[["id", "town", "pages", "label"]])
    for meta in ({}, {"classes": 3}):  # the meta of a .npz file may have a number of classes
        nameless = NodeDataModule(replace(reordered.data, meta=meta), NeighborSampler([2]), num_workers=0)
        assert len(predict(trained, nameless)) == 6
    checkpoint = torch.load(path, weights_only=True)
    assert list(checkpoint["feature_columns"]["x"]) == ["pages", "town"]
    for entry in (None, "abc", {"x": 3}):
        checkpoint["feature_columns"] = entry
        torch.save(checkpoint, path)
        assert len(predict(trained, reordered)) == 6
    walks = NodeDataModule(reordered.data, NeighborSampler([2]), num_workers=0, features="degrees")
    assert list(walks.data.meta["columns"]) == ["edge_attr"]


def test_predictions_have_the_class_names_of_the_training(trained):
    path, _ = trained
    nameless = module(NODES.drop(columns="label"))
    assert "classes" not in nameless.data.meta
    run = trainer(path.parent)
    run.callbacks.append(PredictionWriter(str(path.parent / "made.csv")))
    outputs = torch.cat(run.predict(NodeClassifier.load_from_checkpoint(path, weights_only=True), nameless))
    assert pd.read_csv(path.parent / "made.csv")["class"].tolist() == ["ab"[number] for number in outputs.argmax(1)]


def hetero(folder, columns):
    tables = {"paper": "id,label,split,pages,year\n0,0,train,1,5\n1,1,train,2,6\n2,0,val,3,7\n", "author": "id,age,h\n0,1,2\n1,3,4\n"}
    for kind, text in tables.items():
        frame = pd.read_csv(StringIO(text))
        frame[columns.get(kind, list(frame))].to_csv(folder / f"{kind}.csv", index=False)
    (folder / "wrote.csv").write_text("src,dst\n0,0\n1,1\n0,2\n")
    nodes = {kind: folder / f"{kind}.csv" for kind in tables}
    data = read_hetero_tables(nodes, {("author", "wrote", "paper"): folder / "wrote.csv"}, name="new")
    return HeteroDataModule(data, HeteroSampler([2]), num_workers=0, seed=1)


def test_columns_of_each_node_type(tmp_path):
    data, run = hetero(tmp_path, {}), trainer(tmp_path)
    sizes = data.num_features, {}, data.relations, data.seed_type, data.num_classes, data.num_hops
    run.fit(HeteroClassifier(*sizes, hidden_channels=8), data)
    run.save_checkpoint(tmp_path / "a.ckpt")
    again = HeteroClassifier.load_from_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    assert torch.cat(trainer(tmp_path).predict(again, hetero(tmp_path, {}))).shape == (3, 2)
    with refused("feature column 0 of nodes of author is h", "new training data age", "hoptrain data convert --like TRAINING_FOLDER"):
        trainer(tmp_path).predict(again, hetero(tmp_path, {"author": ["id", "h", "age"]}))
