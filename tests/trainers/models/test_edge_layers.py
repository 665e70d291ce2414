"""Layers with edge features equal PyG's on the whole graph, and each edge gets its own features in training and evaluation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Trainer
from ranks.command import here

from hoptrain.engine import Dataset, to_bfloat16
from hoptrain.samplers import LaborSampler, NeighborSampler, SampleLoader
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.inference import layerwise_inference, neighborhood_logits

ARCHS = ["gine", "gatv2", "transformer", "nnconv"]
CPU = torch.device("cpu")


def telling_data(num_nodes=240, degree=10):
    """Return data in which only edge features reveal the half of a node's in-edges that come from its class, without self loops."""
    rng = np.random.default_rng(5)
    y, color = rng.permutation(num_nodes) % 2, rng.permutation(num_nodes) % 2
    dst = np.repeat(np.arange(num_nodes), degree)
    is_own = np.tile(np.arange(degree) % 2, num_nodes)
    others = np.stack([np.setdiff1d(np.flatnonzero(color == c), [v])[:100] for v in range(num_nodes) for c in (0, 1)]).reshape(
        num_nodes, 2, 100
    )
    src = others[dst, np.where(is_own, y[dst], 1 - y[dst]), rng.integers(0, 100, len(dst))]
    order, split = rng.permutation(len(dst)), rng.permutation(num_nodes)
    rows = np.stack([is_own, rng.random(len(dst))], axis=1).astype(np.float32)
    splits = {"train": split[:160], "val": split[160:200], "test": split[200:]}
    x = np.stack([color, 1 - color, np.ones(num_nodes)], axis=1).astype(np.float32)
    return Dataset(name="telling", edge_index=np.stack([src, dst])[:, order], x=x, y=y, edge_attr=rows[order], splits=splits)


DATA = telling_data()
EDGES = np.stack([DATA.graph.indices, DATA.graph.destinations()])


def model_of(arch, layers=2, **options):
    torch.manual_seed(0)
    return GNN(arch, 3, 8, 2, layers, dropout=0.0, heads=2, edge_channels=2, **options).eval()


@pytest.mark.parametrize("arch", ARCHS)
def test_equals_pyg_on_the_whole_graph(arch):
    """Outputs equal PyG's on the whole graph, although the user's order of edge features differs from the order of columns."""
    order = np.argsort(DATA.graph.edge_ids)
    edge_index, rows = torch.from_numpy(EDGES[:, order]).long(), torch.from_numpy(DATA.edge_attr)
    data = replace(DATA, x=np.random.default_rng(1).random((240, 3), dtype=np.float32), validate=False)
    model, nodes = model_of(arch), np.array([3, 0, 77])
    with torch.no_grad():
        x = torch.from_numpy(data.x)
        for i, layer in enumerate(model.layers):
            x = layer.conv(x, edge_index, rows)
            x = model.activation(x) if i == 0 else x
    options = {"normalize": False, "device": CPU}
    torch.testing.assert_close(layerwise_inference(model, data, nodes, **options), x[nodes], rtol=1e-4, atol=1e-5)
    whole = neighborhood_logits(model, data, nodes, num_hops=2, forward_inputs="blocks+degrees", **options)
    torch.testing.assert_close(whole, x[nodes], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("arch", ["gatv2", "transformer"])
def test_attention_goes_without(arch):
    data = replace(DATA, edge_attr=None)
    model = GNN(arch, 3, 8, 2, 1, out_heads=2)
    batch = next(iter(SampleLoader(data, NeighborSampler([4]), batch_size=9))).to("cpu")
    assert model(batch.x, batch.blocks, torch.zeros(len(batch.x))).shape == (9, 2)


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
@pytest.mark.parametrize("arch", ARCHS)
def test_it_learns_from_edges_alone(tmp_path, arch):
    data = replace(DATA, edge_attr=to_bfloat16(DATA.edge_attr)) if arch == "gine" else DATA
    module = NodeDataModule(data, NeighborSampler([10, 10]), batch_size=40, num_workers=0, seed=0)
    torch.manual_seed(0)
    sizes = module.num_features, module.num_classes, module.num_hops
    model = NodeClassifier(*sizes, arch=arch, hidden_channels=16, heads=2, dropout=0.0, lr=0.1, edge_channels=module.num_edge_features)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(max_epochs=20, accelerator="cpu", use_distributed_sampler=False, default_root_dir=tmp_path, **options)
    trainer.fit(model, module)
    (scores,) = trainer.test(model, module, verbose=False)
    assert scores["test_acc"] > 0.9


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_by_name_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    DATA.save(tmp_path / "telling")
    options = (
        "--data.batch_size 40 --model.arch transformer --model.hidden_channels 16 --model.dropout 0 --model.lr 0.03 --trainer.max_epochs 20"
    )
    quiet = ("--data.dataset", "./telling", "--trainer.enable_progress_bar", "false")
    printed = here(capsys, "fit", "--config", "quickstart", *options.split(), *quiet).out
    name, _, value = printed.splitlines()[-2].rpartition(" ")
    assert (name, float(value) > 0.9) == ("test accuracy", True)


def apply_gine(data, sampler):
    """Apply a model with two edge features to a batch of the data."""
    batch = next(iter(SampleLoader(data, sampler, batch_size=9))).to("cpu")
    model_of("gine", 1)(batch.x, batch.blocks, torch.zeros(len(batch.x)))


MISTAKES = {
    **{
        f"{arch} without features of edges": Mistake(
            lambda arch=arch: GNN(arch, 3, 8, 2, 2),
            value=f"arch {arch}",
            rule="edge_channels edge features",
            remedy="Dataset edge_attr arch",
        )
        for arch in ("gine", "nnconv")
    },
    "data without features of edges": Mistake(
        lambda: apply_gine(replace(DATA, edge_attr=None), NeighborSampler([4])),
        value="has 0",
        rule="model 2 features edge batch",
        remedy="Dataset.edge_attr",
    ),
    "data with fewer features of edges": Mistake(
        lambda: apply_gine(replace(DATA, edge_attr=DATA.edge_attr[:, :1]), NeighborSampler([4])),
        value="has 1",
        rule="model 2 features edge batch",
        remedy="Dataset.edge_attr",
    ),
    "weights of edges": Mistake(
        lambda: apply_gine(DATA, LaborSampler([4])), value="arch gine", rule="edge weights sampler", remedy="sage gcn gin pyg"
    ),
    "heads that cannot share the width": Mistake(
        lambda: GNN("gatv2", 3, 9, 2, 2, heads=2), value="hidden_channels 9", rule="divided 2 heads", remedy="multiple"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
