"""Standardised features: mean and standard deviation of the training nodes, kept with the model."""

import numpy as np
import pytest
import torch
from cases.mistakes import refused
from pytorch_lightning import Trainer
from torch import nn

from hoptrain import (
    Dataset,
    HeteroClassifier,
    HeteroDataModule,
    HeteroDataset,
    HeteroGraph,
    HeteroSampler,
    NeighborSampler,
    NodeClassifier,
    NodeDataModule,
    SmallGraphs,
    VRGCNSampler,
)
from hoptrain.engine.features.quantized import quantize
from hoptrain.trainers.models import features
from hoptrain.trainers.models.features import Standardize
from hoptrain.trainers.tasks.items.graphs import GraphClassifier, GraphDataModule
from hoptrain.trainers.tasks.items.sign import SIGNClassifier, SIGNDataModule
from hoptrain.trainers.tasks.sse import SteadyDataModule, SteadyStateClassifier

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's, about evaluation loaders and the end of its own API


@pytest.mark.parametrize("form", ["float32", "int8"])
def test_blocks_of_rows_give_the_mean_and_deviation_of_all(form, monkeypatch):
    monkeypatch.setattr(features, "_ROWS", 7)
    generator = np.random.default_rng(1)
    x = np.stack([1.7e9 + 1e7 * generator.random(100), generator.random(100), np.full(100, 0.3)], axis=1).astype(np.float32)
    rows, nodes = x if form == "float32" else quantize(x, form), np.arange(10, 60)
    layer = Standardize(3)
    layer.fit(rows, nodes)
    known = np.asarray(rows)[nodes].astype(np.float64)
    np.testing.assert_allclose(layer.mean, known.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(layer.std[:2], known.std(axis=0)[:2], rtol=1e-5)
    out = layer(torch.from_numpy(np.asarray(rows)[nodes])).numpy()
    np.testing.assert_allclose(out.std(axis=0), [1, 1, 0], atol=1e-4)
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-4)


def ring(scale, shift):
    """Return a ring of 12 nodes whose first feature is the class, multiplied by ``scale`` and moved by ``shift``."""
    ends = np.arange(12)
    x = np.stack([ends % 2 * scale + shift, np.ones(12)], axis=1).astype(np.float32)
    splits = {"train": np.arange(8), "val": np.arange(8, 10), "test": np.arange(10, 12)}
    return Dataset(edge_index=[ends, (ends + 2) % 12], x=x, y=ends % 2, splits=splits, name="ring")


def trainer(folder):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "enable_checkpointing": False}
    return Trainer(max_epochs=1, accelerator="cpu", default_root_dir=folder, **quiet)


def test_a_checkpoint_keeps_the_numbers_for_other_data(tmp_path):
    data, other = (NodeDataModule(ring(*numbers), NeighborSampler([2]), num_workers=0, seed=1) for numbers in ((1e7, 1.7e9), (5, 0)))
    model = NodeClassifier(2, 2, 1, standardize_features=True, dropout=0.0)
    run = trainer(tmp_path)
    run.fit(model, data)
    np.testing.assert_allclose(model.model.standardize.mean, [1.7e9 + 5e6, 1])
    run.save_checkpoint(tmp_path / "a.ckpt")
    again = NodeClassifier.load_from_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    for module in (data, other):
        ours, theirs = (torch.cat(trainer(tmp_path).predict(each, module)) for each in (model, again))
        torch.testing.assert_close(ours, theirs)
    standardised = ring(2, -1)  # what the first data become
    plain = NodeClassifier(2, 2, 1, dropout=0.0)
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if "standardize" not in name})
    x = standardised.x * [[1, 0]]
    same = NodeDataModule(
        Dataset(graph=standardised.graph, x=x.astype(np.float32), y=standardised.y, splits=standardised.splits), NeighborSampler([2])
    )
    torch.testing.assert_close(
        torch.cat(trainer(tmp_path).predict(plain, same)), torch.cat(trainer(tmp_path).predict(model, data)), atol=1e-4, rtol=1e-4
    )


def test_each_type_has_its_own(tmp_path):
    graph = HeteroGraph.from_edges({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 0, 1], [0, 1, 2])}).with_reverse()
    x, splits = {"user": np.array([[1e9], [3e9]]), "item": np.array([[5.0], [70.0], [7.0]])}, {"train": np.array([0, 2])}
    shop = HeteroDataset(graph=graph, seed_type="item", x=x, y=np.array([0, 1, 1]), splits=splits)
    data = HeteroDataModule(shop, HeteroSampler([2, 2], "item"), num_workers=0, seed=1)
    sizes = data.num_features, {}, data.relations, data.seed_type, data.num_classes, data.num_hops
    model = HeteroClassifier(*sizes, standardize_features=True, hidden_channels=8)
    trainer(tmp_path).fit(model, data)
    found = {kind: (float(own.mean), float(own.std)) for kind, own in model.model.standardize.items()}
    assert found == {"user": (2e9, 1e9), "item": (6.0, 1.0)}


class Own(nn.Module):
    """A user's module with the attribute that hoptrain sets."""

    def __init__(self):
        super().__init__()
        self.standardize, self.last = Standardize(2), nn.Linear(2, 2)

    def forward(self, x, edge_index):
        return self.last(self.standardize(x))


def of_nodes(data):
    return NodeDataModule(data, NeighborSampler([2]), num_workers=0, seed=1), NodeClassifier(model=Own())


def of_states(data):
    module = SteadyDataModule(data, NeighborSampler([-1]), num_workers=0, seed=1)
    return module, SteadyStateClassifier.from_data(module, standardize_features=True)


def of_hops(data):
    module = SIGNDataModule(data, num_hops=1, seed=1)
    return module, SIGNClassifier.from_data(module, standardize_features=True)


def of_graphs(data):
    """Return six graphs of two nodes, of which the first four are trained on."""
    nodes = Dataset(edge_index=[np.arange(0, 12, 2), np.arange(1, 12, 2)], x=data.x)
    splits = {"train": np.arange(4), "val": np.array([4]), "test": np.array([5])}
    graphs = SmallGraphs(nodes=nodes, ptr=np.arange(0, 14, 2), y=np.arange(6) % 2, splits=splits)
    module = GraphDataModule(graphs, batch_size=2, seed=1)
    return module, GraphClassifier.from_data(module, num_layers=1, hidden_channels=8, standardize_features=True)


@pytest.mark.parametrize("make", [of_nodes, of_states, of_hops, of_graphs])
def test_other_tasks_and_own_modules(make, tmp_path, monkeypatch):
    """The numbers are those of the first eight nodes. A large shift and scale of a feature change no output."""
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path))
    outputs = []
    for scale, shift in ((1.0, 0.0), (2.0**20, 2.0**30)):
        torch.manual_seed(0)
        module, task = make(ring(scale, shift))
        run = trainer(tmp_path)
        run.fit(task, module)
        outputs.append(torch.cat(run.predict(task, module)))
        first = next(each for each in task.modules() if isinstance(each, Standardize))
        np.testing.assert_allclose(first.mean, [scale / 2 + shift, 1])
        np.testing.assert_allclose(first.std, [scale / 2, 1])
    torch.testing.assert_close(*outputs, atol=1e-3, rtol=1e-3)


def test_categories_are_not_standardised():
    with refused("standardize_features", "categorical no mean", "leave out"):
        GraphClassifier(1, 2, node_categories=(3,), standardize_features=True)


def test_a_sampler_with_means_of_its_own_is_refused(tmp_path):
    data = NodeDataModule(ring(1, 0), VRGCNSampler([2]), num_workers=0, seed=1)
    with refused("standardize_features", "VRGCNSampler means as stored", "leave out"):
        trainer(tmp_path).fit(NodeClassifier(2, 2, 1, standardize_features=True), data)
