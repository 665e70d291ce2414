"""Layers over blocks equal the same layers over whole graphs."""

import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases.mistakes import refused
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, MessagePassing, SAGEConv

from hoptrain.engine import Graph
from hoptrain.samplers import Block, NeighborSampler
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.layers import gcn_weights, mean_weights
from hoptrain.trainers.models.pyg_layers import GCNLayer, SAGELayer, make_layer
from hoptrain.trainers.models.sums import narrows_first

ARCHS = ("sage", "gat", "gcn", "gin")


@pytest.fixture(scope="module")
def simple_graph():
    """Return a symmetric graph without self loops and parallel edges, where PyG's and hoptrain's conventions agree."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 60, (2, 150))
    pairs = {(a, b) for a, b in zip(src, dst, strict=True) if a != b}
    pairs |= {(b, a) for a, b in pairs}
    src, dst = np.array(sorted(pairs)).T
    return Graph.from_edges(src, dst, 61)  # node 60 is isolated


def whole_graph_edges(graph):
    dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return torch.from_numpy(np.stack([graph.indices, dst]).astype(np.int64))


def degrees_of(graph, nodes):
    return torch.from_numpy(graph.in_degrees()[nodes]).float()


def make_model(arch, layers=2, **options):
    torch.manual_seed(0)
    return GNN(arch, 6, 8, 4, layers, heads=2, **options).eval()


def whole_graph_layer(arch, layer):
    """Return PyG's own layer with the same weights, for the whole graph."""
    if arch == "gcn":
        conv = GCNConv(layer.linear.in_features, layer.linear.out_features)
        conv.lin.weight, conv.bias = layer.linear.weight, layer.bias
        return conv
    if arch == "sage":
        return sage_of_pyg(layer)
    if arch == "gin":
        conv = GINConv(nn.Identity(), train_eps=True)
        conv.nn, conv.eps = layer.mlp, layer.eps
        return conv
    assert isinstance(layer.conv, GATConv)
    return layer.conv


def sage_of_pyg(layer):
    conv = SAGEConv((layer.lin_l.in_features, layer.lin_r.in_features), layer.lin_l.out_features)
    conv.lin_l, conv.lin_r = layer.lin_l, layer.lin_r
    return conv


@pytest.mark.parametrize("out_channels", [2, 40])
def test_gcn_multiplies_fewer_rows(simple_graph, out_channels):
    """A layer multiplies before it adds if that is less work, and after it otherwise; the results are the same."""
    batch = NeighborSampler([4]).sample(simple_graph, np.arange(20))
    (block,), degrees = batch.to("cpu").blocks, degrees_of(simple_graph, batch.node_ids)
    layer, x, multiplied = GCNLayer(8, out_channels), torch.randn(len(batch.node_ids), 8), []
    layer.linear.register_forward_hook(lambda module, inputs, out: multiplied.append(len(out)))
    weights, own = gcn_weights(block, degrees)
    matrix = torch.zeros(block.num_dst, block.num_src).index_put((block.destinations(), block.indices.long()), weights, accumulate=True)
    expected = (matrix + F.pad(own.diag(), (0, block.num_src - block.num_dst))) @ (x @ layer.linear.weight.T)
    torch.testing.assert_close(layer(x, block, degrees), expected)
    assert multiplied == [block.num_src if out_channels == 2 else block.num_dst]


@pytest.mark.parametrize("arch", ["sage", "gin"])
def test_initial_weights_are_pygs(arch):
    torch.manual_seed(1)
    ours = make_layer(arch, 5, 3)
    torch.manual_seed(1)
    mlp = [nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 3)] if arch == "gin" else []
    theirs = GINConv(nn.Sequential(*mlp), train_eps=True) if mlp else SAGEConv((5, 5), 3)
    torch.testing.assert_close(list(ours.parameters()), list(theirs.parameters()), rtol=0, atol=0)


def test_no_file_is_left(monkeypatch, tmp_path):
    """No file is left after a model is made: hoptrain deletes the temporary module that PyG writes for a convolution class."""
    name = f"{GATConv.__module__}_GATConv_propagate"
    monkeypatch.setattr(GATConv, "propagate", MessagePassing.propagate)
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    make_layer("gat", 3, 2, heads=1, concat=True, dropout=0.0)
    assert Path(sys.modules[name].__file__).is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert tempfile.tempdir == str(tmp_path)


@pytest.mark.parametrize("arch", ARCHS)
def test_full_neighbourhoods_equal_the_whole_graph(simple_graph, arch):
    model = make_model(arch)
    x = torch.randn(simple_graph.num_nodes, 6)
    seeds = np.array([60, 3, 17, 25])
    batch = NeighborSampler([-1, -1]).sample(simple_graph, seeds).to("cpu")
    nodes = batch.node_ids.long()
    on_blocks = model(x[nodes], batch.blocks, degrees_of(simple_graph, nodes.numpy()))
    edges, h = whole_graph_edges(simple_graph), x
    for i, layer in enumerate(model.layers):
        h = whole_graph_layer(arch, layer)(h, edges)
        h = model.activation(h) if i == 0 else h
    torch.testing.assert_close(on_blocks, h[seeds], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [(40, 2), (2, 40)])
def test_sage_in_either_order_is_pygs(simple_graph, channels):
    """Outputs and gradients of GraphSAGE equal PyG's, whether the layer multiplies or averages first."""
    torch.manual_seed(0)
    layer = SAGELayer(*channels).double()
    block = NeighborSampler([3]).sample(simple_graph, np.arange(9)).to("cpu").blocks[0]
    assert narrows_first(block, *channels) == (channels[0] > channels[1])
    x = torch.randn(block.num_src, channels[0], dtype=torch.float64)
    size = (block.num_src, block.num_dst)
    outputs = layer(x, block, None), sage_of_pyg(layer)((x, x[: block.num_dst]), block.edge_index(), size=size)
    torch.testing.assert_close(*outputs)
    gradients = [torch.autograd.grad(output.square().sum(), list(layer.parameters())) for output in outputs]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("arch", ARCHS)
def test_gradients_reach_every_parameter(simple_graph, arch):
    model = make_model(arch, norm="batch").train()
    batch = NeighborSampler([3, 3]).sample(simple_graph, np.arange(20)).to("cpu")
    nodes = batch.node_ids.long()
    out = model(torch.randn(len(nodes), 6), batch.blocks, degrees_of(simple_graph, nodes.numpy()))
    assert out.shape == (20, 4)
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_sampled_gcn_weights_are_unbiased(graph):
    """GCN's mean output over many samples equals the sum over all neighbours.

    Degrees exceed the fanout, so the scaling matters.
    """
    hub = int(np.argmax(graph.in_degrees()))
    values = torch.randn(graph.num_nodes, dtype=torch.float64)

    def estimate(batch):
        batch = batch.to("cpu")
        nodes = batch.node_ids.long()
        weights, _ = gcn_weights(batch.blocks[0], degrees_of(graph, nodes.numpy()).double())
        return float((weights * values[nodes[batch.blocks[0].indices.long()]]).sum())

    exact = estimate(NeighborSampler([-1]).sample(graph, np.array([hub])))
    samples = [estimate(NeighborSampler([3]).sample(graph, np.array([hub]), batch=b)) for b in range(4000)]
    assert abs(np.mean(samples) - exact) < 4 * np.std(samples) / np.sqrt(len(samples))


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_depth_and_norm(simple_graph, norm):
    model = make_model("sage", layers=3, norm=norm)
    assert (model.num_layers, len(model.norms)) == (3, 2)
    batch = NeighborSampler([2, 2, 2]).sample(simple_graph, np.array([1, 2])).to("cpu")
    nodes = batch.node_ids.long()
    assert model(torch.randn(len(nodes), 6), batch.blocks, degrees_of(simple_graph, nodes.numpy())).shape == (2, 4)


@pytest.mark.parametrize("arch", ["sage", "gcn", "gin"])
def test_weights_of_edges(simple_graph, arch):
    """Edge weights equal to the layer's default weights do not change outputs; doubled edge weights do."""
    model = make_model(arch)
    batch = NeighborSampler([-1, -1] if arch == "gin" else [2, 2]).sample(simple_graph, np.array([60, 3, 17])).to("cpu")
    nodes = batch.node_ids.long()
    degrees, x = degrees_of(simple_graph, nodes.numpy()), torch.randn(len(nodes), 6)

    def scores(factor):
        blocks = []
        for block in batch.blocks:
            sampled = block.indptr.diff().long()
            each = degrees[: block.num_dst] / sampled.clamp(min=1)
            blocks.append(replace(block, weights=factor * torch.repeat_interleave(each, sampled)))
        return model(x, blocks, degrees)

    torch.testing.assert_close(scores(1), model(x, batch.blocks, degrees), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(scores(2), scores(1), rtol=0.01)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("counts", [[0, 2, 0, 0, 1, 3, 0], [0, 0], [4]], ids=["some", "none", "one"])
def test_a_gpu_finds_the_destinations_of_edges_without_repeat_interleave(monkeypatch, counts, dtype):
    """``repeat_interleave`` has six kernels. All tensors claim to be on a GPU."""
    indptr = torch.tensor([0, *np.cumsum(counts)], dtype=dtype)
    indices = torch.arange(int(indptr[-1]), dtype=dtype) % 7
    block = Block(indptr=indptr, indices=indices, edge_ids=None, num_src=7)
    weighted = replace(block, weights=torch.rand(block.num_edges))
    degrees = torch.arange(1.0, 8.0)

    def results():
        return [block.edge_index(), *gcn_weights(block, degrees), *gcn_weights(weighted, degrees), mean_weights(weighted, degrees)]

    expected = results()
    assert expected[0][1].tolist() == np.repeat(np.arange(len(counts)), counts).tolist()
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch, "repeat_interleave", None)
    monkeypatch.setattr(torch.Tensor, "repeat_interleave", None)
    for own, other in zip(results(), expected, strict=True):
        assert own.dtype == other.dtype
        assert torch.equal(own, other)


def test_gat_takes_no_weights(simple_graph):
    batch = NeighborSampler([2, 2]).sample(simple_graph, np.array([1, 2])).to("cpu")
    blocks = [replace(block, weights=torch.ones(block.num_edges)) for block in batch.blocks]
    with refused("arch gat", "edge weights sampler", "sage gcn gin pyg"):
        make_model("gat")(torch.randn(len(batch.node_ids), 6), blocks, torch.ones(len(batch.node_ids)))


def test_sizes_that_cannot_be():
    with refused("hidden_channels 10", "divided 8 heads", "multiple"):
        GNN("gat", 4, 10, 3, 2)
    with refused("0 layers", "model channels least"):
        GNN("sage", 4, 8, 3, 0)


@pytest.mark.skipif(find_spec("dgl") is None, reason="dgl is not installed: pip install hoptrain[dgl]")
@pytest.mark.parametrize("arch", ARCHS)
def test_dgl_layers_run_on_the_same_blocks(simple_graph, arch):
    model = make_model(arch, conv="dgl")
    x, seeds = torch.randn(simple_graph.num_nodes, 6), np.array([60, 3, 17])

    def scores(fanouts):
        batch = NeighborSampler(fanouts).sample(simple_graph, seeds).to("cpu")
        nodes = batch.node_ids.long()
        return model(x[nodes], batch.blocks, degrees_of(simple_graph, nodes.numpy()))

    assert scores([2, 2]).shape == (3, 4)
    everything = NeighborSampler([-1, -1]).sample(simple_graph, np.arange(61)).to("cpu")
    nodes = everything.node_ids.long()
    whole = model(x[nodes], everything.blocks, degrees_of(simple_graph, nodes.numpy()))
    torch.testing.assert_close(scores([-1, -1]), whole[seeds], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(find_spec("dgl") is None, reason="dgl is not installed: pip install hoptrain[dgl]")
def test_dgl_gcn_equals_ours(simple_graph):
    ours, theirs = make_model("gcn"), make_model("gcn", conv="dgl")
    for a, b in zip(ours.layers, theirs.layers, strict=True):
        b.conv.weight.data, b.conv.bias.data = a.linear.weight.data.T, a.bias.data
    batch = NeighborSampler([3, 3]).sample(simple_graph, np.array([60, 3, 17])).to("cpu")
    x, degrees = torch.randn(len(batch.node_ids), 6), degrees_of(simple_graph, batch.node_ids.numpy())
    torch.testing.assert_close(theirs(x, batch.blocks, degrees), ours(x, batch.blocks, degrees), rtol=1e-4, atol=1e-5)
