"""The layers of ``hoptrain.dgl.nn`` have DGL's constructors and parameters, and the same results on blocks and other graphs."""

from importlib.util import find_spec

import pytest
from cases.mistakes import refused

if find_spec("dgl") is None:
    pytest.skip("dgl is not installed: pip install hoptrain[dgl]", allow_module_level=True)

import torch
from torch import nn

import hoptrain.dgl.nn as ours
from hoptrain.dgl import NeighborSampler
from hoptrain.samplers.batch.dgl_compat import import_dgl

dgl = import_dgl()
LAYERS = {
    "SAGEConv mean": lambda library: library.SAGEConv(6, 8, "mean"),
    "SAGEConv narrow": lambda library: library.SAGEConv(6, 3, "mean"),
    "SAGEConv 5": lambda library: library.SAGEConv(6, 5, "mean", feat_drop=0.5, activation=torch.relu),
    "SAGEConv gcn": lambda library: library.SAGEConv(6, 8, "gcn"),
    "SAGEConv gcn 5": lambda library: library.SAGEConv(6, 5, "gcn"),
    "SAGEConv pool": lambda library: library.SAGEConv(6, 5, "pool"),
    "SAGEConv lstm": lambda library: library.SAGEConv(6, 5, "lstm"),
    "GraphConv": lambda library: library.GraphConv(6, 8, allow_zero_in_degree=True),
    "GraphConv 5": lambda library: library.GraphConv(6, 5, allow_zero_in_degree=True),
    "GraphConv right": lambda library: library.GraphConv(6, 3, norm="right", allow_zero_in_degree=True),
    "GATConv": lambda library: library.GATConv(6, 4, 2, allow_zero_in_degree=True),
    "GATv2Conv": lambda library: library.GATv2Conv(6, 4, 2, allow_zero_in_degree=True),
    "GINConv": lambda library: library.GINConv(nn.Linear(6, 8), "sum", learn_eps=True),
    "GINConv mean": lambda library: library.GINConv(nn.Linear(6, 8), "mean"),
}


def graphs():
    """Return a graph, a block of the graph that hoptrain sampled, and a block that DGL sampled."""
    generator = torch.Generator().manual_seed(0)
    g = dgl.graph(tuple(torch.randint(50, (2, 400), generator=generator)), num_nodes=60)
    seeds = torch.arange(20)
    return g, NeighborSampler([4]).sample(g, seeds)[2][0], dgl.to_block(dgl.in_subgraph(g, seeds), seeds)


@pytest.mark.parametrize("kind", ["graph", "block", "block of DGL"])
@pytest.mark.parametrize("name", LAYERS)
def test_parameters_results_and_gradients_are_dgls(name, kind):
    graph = dict(zip(("graph", "block", "block of DGL"), graphs(), strict=True))[kind]
    x = torch.rand(graph.num_src_nodes(), 6, generator=torch.Generator().manual_seed(1))
    results = []
    for library in (ours, dgl.nn):
        torch.manual_seed(0)
        layer, own = LAYERS[name](library), x.clone().requires_grad_()
        out = layer(graph, own)
        out.square().sum().backward()
        results.append([out, own.grad, *layer.state_dict().values(), *(parameter.grad for parameter in layer.parameters())])
    assert isinstance(LAYERS[name](ours), type(layer))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


def test_edge_weights_are_multiplied():
    block = graphs()[1]
    x, weights = torch.rand(block.num_src_nodes(), 6), torch.rand(block.num_edges())
    mine = ours.SAGEConv(6, 8, "mean")
    theirs = dgl.nn.SAGEConv(6, 8, "mean")
    theirs.load_state_dict(mine.state_dict())
    torch.testing.assert_close(mine(block, x, edge_weight=weights), theirs(block, x, edge_weight=weights), rtol=1e-5, atol=1e-5)
    assert list(block.srcdata) == [dgl.NID]  # the layer has not changed the block
    assert list(block.dstdata) == [dgl.NID]


def test_blocks_are_summed_by_aggregate(monkeypatch):
    g, block, _ = graphs()
    calls, aggregate = [], ours.aggregate
    monkeypatch.setattr(ours, "aggregate", lambda *given: calls.append(1) or aggregate(*given))
    layer = ours.SAGEConv(6, 8, "mean")
    layer(block, torch.rand(block.num_src_nodes(), 6))
    assert len(calls) == 1
    layer(g, torch.rand(60, 6))
    assert len(calls) == 1


@pytest.mark.parametrize("out_feats", [300, 100])
@pytest.mark.parametrize(("kind", "width_name"), [("SAGEConv", "_in_src_feats"), ("GraphConv", "_in_feats")])
def test_the_order_with_less_work_is_taken(monkeypatch, kind, width_name, out_feats):
    """A block of 20 destinations has more than 40 sources; DGL multiplies all of them first where that makes rows narrower."""
    _, block, _ = graphs()
    widths, aggregate = [], ours.aggregate
    monkeypatch.setattr(ours, "aggregate", lambda block, x, *given: widths.append(x.shape[1]) or aggregate(block, x, *given))
    options = {"aggregator_type": "mean"} if kind == "SAGEConv" else {"allow_zero_in_degree": True}
    layer = getattr(ours, kind)(301, out_feats, **options)
    layer(block, torch.rand(block.num_src_nodes(), 301))
    assert widths == [301]
    assert vars(layer)[width_name] == 301  # the layer itself is as before


def test_weights_of_each_column_and_changed_products_keep_dgls_order():
    _, block, _ = graphs()
    x, edge_weight = torch.rand(block.num_src_nodes(), 9), torch.rand(block.num_edges(), 5)
    with_bias = ours.SAGEConv(9, 5, "gcn")
    with_bias.fc_neigh = nn.Linear(9, 5)
    parametrised = nn.utils.parametrizations.weight_norm(ours.GraphConv(9, 5, allow_zero_in_degree=True), "weight")
    for layer, arguments in (
        (ours.GraphConv(9, 5, allow_zero_in_degree=True), {"edge_weight": edge_weight}),
        (ours.SAGEConv(9, 5, "mean"), {"edge_weight": edge_weight}),
        (with_bias, {}),
        (parametrised, {}),
    ):
        theirs = next(kind for kind in type(layer).__mro__ if kind.__module__.startswith("dgl."))
        torch.testing.assert_close(layer(block, x, **arguments), theirs.forward(layer, block, x, **arguments), rtol=1e-5, atol=1e-5)


def test_other_names_are_dgls():
    assert ours.SumPooling is dgl.nn.SumPooling
    with refused("'NoSuchConv'", "neither module hoptrain.dgl.nn dgl.nn attribute", error=AttributeError):
        ours.NoSuchConv  # noqa: B018


@pytest.mark.parametrize("between", [nn.Identity(), nn.ReLU(), nn.Sequential(nn.BatchNorm1d(8), nn.ELU())])
def test_torchs_dropout_is_hoptrains_on_outputs(between):
    """In training and on blocks, so that a script need not change the line of its dropout."""
    _, block, _ = graphs()
    layer, x = ours.SAGEConv(6, 8, "mean"), torch.rand(block.num_src_nodes(), 6)
    results = []
    for kind in (nn.Dropout, ours.Dropout):
        torch.manual_seed(3)
        out = kind(0.3)(between(layer(block, x)))
        results.append([out, *torch.autograd.grad(out.square().sum(), layer.parameters())])
        assert type(out) is torch.Tensor
        assert 0 < (out == 0).sum() < out.numel()
    torch.testing.assert_close(*results, rtol=0, atol=0)
    assert type(layer.eval()(block, x)) is torch.Tensor


def test_outputs_in_training_are_tensors_for_dgl():
    _, block, _ = graphs()
    out = ours.SAGEConv(6, 8, "mean")(block, torch.rand(block.num_src_nodes(), 6))
    assert type(out + 1) is torch.Tensor
    pairs = dgl.graph((torch.arange(19), torch.arange(1, 20)), num_nodes=len(out))
    pairs.ndata["h"] = out
    pairs.apply_edges(dgl.function.u_dot_v("h", "h", "score"))
    torch.testing.assert_close(pairs.edata["score"][:, 0], (out[:19] * out[1:20]).sum(1))
    assert nn.Dropout(0.5, inplace=True)(out) is out
