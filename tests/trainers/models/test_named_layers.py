"""PyG's convolutions selected by class name equal PyG on the whole graph or are rejected, as in the table of the docs."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Trainer

from hoptrain.engine import Dataset, InputError
from hoptrain.samplers import LaborSampler, NeighborSampler, SampleLoader
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.inference import layerwise_inference
from hoptrain.trainers.models.pyg_layers import make_layer

PAGE = Path(__file__).parents[3] / "docs" / "your_own_model.md"
ARGS = {
    "EdgeConv": {"nn": "mlp"},
    "GINConv": {"nn": "mlp"},
    "GATConv": {"heads": 2, "concat": False},
    "GATv2Conv": {"heads": 2, "concat": False},
    "TransformerConv": {"heads": 2, "concat": False},
    "PNAConv": {"aggregators": ["mean", "max"], "scalers": ["identity", "amplification"], "deg": [1, 2, 3, 2]},
    "GatedGraphConv": {"num_layers": 1},
    "CGConv": {"dim": 2},
    "GMMConv": {"dim": 2, "kernel_size": 2},
}
"""Required arguments of convolutions, in addition to channels."""
RNG = np.random.default_rng(3)
X = RNG.random((60, 8), dtype=np.float32)
EDGES = RNG.integers(0, 60, (2, 400))
DATA = Dataset(
    name="sixty",
    edge_index=EDGES,
    x=X,
    y=X[:, :3].argmax(1),
    edge_attr=RNG.random((400, 2), dtype=np.float32),
    splits={"train": np.arange(40), "val": np.arange(40, 50), "test": np.arange(50, 60)},
)


def model_of(name, layers=2, **options):
    torch.manual_seed(0)
    return GNN(f"torch_geometric.nn.{name}", 8, 8, 8, layers, dropout=0.0, edge_channels=2, arch_args=ARGS.get(name), **options).eval()


def runs(name):
    try:
        model_of(name, 1)
    except InputError:
        return False
    return True


def of_the_table():
    """Return (class, arguments, "yes" or "no" for edge features) of each row of the docs' table."""
    return re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\| (yes|no) \|$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.filterwarnings("ignore:.*is deprecated")
def test_the_table_has_what_runs():
    named = {name for name in pyg.conv.__all__ if name != "MessagePassing"}
    assert {name for name in named if runs(name)} == {name for name, _, _ in of_the_table()}


@pytest.mark.parametrize(("name", "args", "reads"), of_the_table(), ids=lambda value: value)
def test_equals_pyg_on_the_whole_graph(name, args, reads):
    """Outputs equal PyG's over several chunks of nodes, with edges in the user's order."""
    model = model_of(name)
    edge_index, rows, x = torch.from_numpy(EDGES), torch.from_numpy(DATA.edge_attr), torch.from_numpy(DATA.x)
    with torch.no_grad():
        for i, layer in enumerate(model.layers):
            out = layer.conv(x, edge_index, **({"edge_attr": rows} if reads == "yes" else {}))
            x = model.activation(out) if i == 0 else out
    nodes = np.array([3, 0, 59])
    got = layerwise_inference(model, DATA, nodes, normalize=False, device=torch.device("cpu"))
    torch.testing.assert_close(got, x[nodes], rtol=1e-3, atol=1e-4)


def test_one_number_an_edge_is_its_weight():
    torch.manual_seed(0)
    model = GNN("torch_geometric.nn.GraphConv", 8, 8, 3, 1, edge_channels=1).eval()
    data = Dataset(name="weighted", edge_index=EDGES, x=DATA.x, edge_attr=DATA.edge_attr[:, :1])
    with torch.no_grad():
        wanted = model.layers[0].conv(torch.from_numpy(DATA.x), torch.from_numpy(EDGES), torch.from_numpy(DATA.edge_attr[:, 0]))
    got = layerwise_inference(model, data, np.arange(60), normalize=False, device=torch.device("cpu"))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_a_run(tmp_path):
    options = {"default_root_dir": tmp_path, "max_epochs": 25, "accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    module = NodeDataModule(DATA, NeighborSampler([4, 4]), batch_size=8, num_workers=0, seed=0)
    task = NodeClassifier(8, 3, 2, arch="torch_geometric.nn.ResGatedGraphConv", edge_channels=2, hidden_channels=16, lr=0.02, dropout=0.0)
    trainer = Trainer(**options, enable_progress_bar=False, use_distributed_sampler=False)
    trainer.fit(task, module)
    assert trainer.callback_metrics["train_loss"] < 0.5 * np.log(3)


def test_named_graphsage_is_arch_sage():
    """SAGEConv by class name has the weights and outputs of ``arch: sage``."""
    torch.manual_seed(0)
    named = model_of("SAGEConv", 1).layers[0].conv
    torch.manual_seed(0)
    ours = make_layer("sage", 8, 8)
    torch.testing.assert_close(named.lin_l.weight, ours.lin_l.weight, rtol=0, atol=0)


def apply_to_weights_of_edges():
    batch = next(iter(SampleLoader(DATA, LaborSampler([4]), batch_size=9))).to("cpu")
    model_of("GraphConv", 1)(batch.x, batch.blocks, torch.zeros(len(batch.x)))


def build(arch, args=None, **options):
    GNN(arch, 8, 8, 8, 2, arch_args=args, **options)


MISTAKES = {
    "weights of edges": Mistake(
        apply_to_weights_of_edges, value="torch_geometric.nn.GraphConv", rule="arch edge weights sampler", remedy="sage gcn gin pyg"
    ),
    "a layer that reads degrees of sources": Mistake(
        lambda: build("torch_geometric.nn.GCNConv"), value="GCNConv", rule="another output in-edges whole graph", remedy="arch gcn one hop"
    ),
    "a layer of several hops": Mistake(
        lambda: build("torch_geometric.nn.TAGConv", {"K": 2}),
        value="TAGConv",
        rule="another output in-edges whole graph",
        remedy="arch gcn one hop",
    ),
    "more channels than are wanted": Mistake(
        lambda: build("torch_geometric.nn.GATConv", {"heads": 2}),
        value="16 channels",
        rule="GATConv instead 8 channels",
        remedy="arch_args heads concat: false",
    ),
    "a name close to a class": Mistake(
        lambda: build("torch_geometric.nn.GrafConv"),
        value="'torch_geometric.nn.GrafConv'",
        rule="name dots torch_geometric.nn.CLASS",
        remedy="mean GraphConv",
    ),
    "a class that is no convolution": Mistake(
        lambda: build("torch_geometric.nn.Linear"),
        value="'torch_geometric.nn.Linear'",
        rule="name dots",
        remedy="torch_geometric.nn.CLASS convolution PyG",
    ),
    "a name of another package": Mistake(
        lambda: build("os.system"), value="'os.system'", rule="name dots", remedy="torch_geometric.nn.CLASS convolution PyG"
    ),
    "an argument that is missing": Mistake(
        lambda: build("torch_geometric.nn.GINConv"),
        value="'nn'",
        rule="GINConv arch_args {} missing argument",
        remedy="arguments name",
    ),
    "an unknown argument": Mistake(
        lambda: build("torch_geometric.nn.GraphConv", {"agr": "mean"}),
        value="{'agr': 'mean'}",
        rule="GraphConv arch_args unexpected argument",
        remedy="arguments name",
    ),
    "arguments of a layer of ours": Mistake(
        lambda: build("sage", {"aggr": "max"}), value="arch sage", rule="arch_args convolution class", remedy="torch_geometric.nn.GraphConv"
    ),
    "a convolution of PyG's by DGL": Mistake(
        lambda: build("torch_geometric.nn.GraphConv", conv="dgl"), value="conv dgl", rule="GraphConv convolution PyG", remedy="leave conv"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
