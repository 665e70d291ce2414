"""The layers of ``hoptrain.pyg.nn`` have PyG's constructors, parameters and results, and compute fewer rows on a batch."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from cases.mistakes import refused
from pyg_layers_case import LAYERS, make, some_batch, stack
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_torch_csc_tensor, trim_to_layer

import hoptrain.pyg.nn as ours
from hoptrain.pyg.nn import neighbours
from hoptrain.pyg.nn.lazy import LazyRows


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_constructor_and_parameters_are_pygs(name):
    mine, theirs = make(ours, name), make(pyg, name)
    assert isinstance(mine, type(theirs))
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for found, expected in zip(mine.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert torch.equal(found, expected)
    assert [key for key, _ in mine.named_modules()] == [key for key, _ in theirs.named_modules()]


@pytest.mark.parametrize("name", LAYERS)
def test_all_rows_of_a_batch_are_pygs(name):
    batch = some_batch()
    mine, theirs = make(ours, name), make(pyg, name)
    inputs = LAYERS[name].inputs(batch)
    found, expected = mine(batch.x, batch.edge_index, *inputs), theirs(batch.x, batch.edge_index.plain(), *inputs)
    assert isinstance(found, LazyRows)
    assert found.shape == expected.shape
    same(found + 0, expected)
    same(found[:4], expected[:4])


@pytest.mark.parametrize("rows", ["seeds", "all"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("name", LAYERS)
def test_models_and_gradients_are_pygs(name, num_layers, rows):
    """Outputs and gradients equal PyG's, whether the model has fewer layers than the batch has hops, equally many or more."""
    batch = some_batch()
    results = []
    for library, edge_index in ((ours, batch.edge_index), (pyg, batch.edge_index.plain())):
        x = batch.x.clone().requires_grad_()
        layers = stack(library, name, num_layers)
        out = x
        for layer in layers:
            out = F.elu(layer(out, edge_index, *LAYERS[name].inputs(batch)))
        out = out[: batch.batch_size] if rows == "seeds" else out
        out.square().sum().backward()
        results.append([out.detach() + 0, x.grad, *(parameter.grad for parameter in layers.parameters())])
    for found, expected in zip(*results, strict=True):
        scale = expected.abs().max().clamp(min=1)
        same(found / scale, expected / scale)


@pytest.mark.parametrize("dropout", [F.dropout, nn.Dropout(0.5), ours.Dropout(0.5)], ids=["function", "torch", "ours"])
def test_seeds_need_only_the_rows_that_lead_to_them(monkeypatch, dropout):
    batch, computed = some_batch(), []
    monkeypatch.setattr(neighbours, "aggregate_with_own", lambda block, *given: computed.append(block.num_dst) or aggregate(block, *given))
    first, second = ours.SAGEConv(6, 8), ours.SAGEConv(8, 3)
    hidden = dropout(first(batch.x, batch.edge_index).relu())
    out = second(hidden, batch.edge_index).log_softmax(dim=-1)[: batch.batch_size]
    seeds, first_hop, _ = batch.num_sampled_nodes
    assert computed == [seeds + first_hop, seeds]
    assert type(out) is torch.Tensor


aggregate = neighbours.aggregate_with_own


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("options", [{}, {"improved": True}, {"add_self_loops": False}], ids=["plain", "improved", "no loops"])
def test_weights_of_gcn_are_bit_identical_to_pygs(options, is_weighted):
    """Self-loops and parallel edges are in the batch. PyG removes self-loops, and hoptrain gives them the weight 0. Gradients are equal up to rounding."""
    batch, layer = some_batch(), ours.GCNConv(6, 8, **options)
    given = torch.linspace(0.5, 1.5, batch.edge_index.shape[1]) if is_weighted else None
    plain, number, results = batch.edge_index.plain(), batch.edge_index.num_nodes, []
    is_loop = plain[0] == plain[1]
    assert is_loop.sum() > 2
    for norm in ("hoptrain", "pyg"):
        weights = None if given is None else given.clone().requires_grad_()
        if norm == "pyg":
            _, found = gcn_norm(plain, weights, number, layer.improved, layer.add_self_loops, dtype=torch.float32)
        else:
            found, loops = layer._norms(batch.edge_index, weights, batch.x)
            if loops is not None:
                assert found[is_loop].count_nonzero() == 0
                found = torch.cat([found[~is_loop], loops[:, 0]])
        if weights is not None:
            found.square().sum().backward()
        results.append((found.detach(), None if weights is None else weights.grad))
    assert torch.equal(results[0][0], results[1][0])
    if is_weighted:
        same(results[0][1], results[1][1])


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_attention_of_seeds_runs_no_code_of_pygs_forward(name, monkeypatch):
    """PyG's code would store a message for each edge."""
    batch, mine = some_batch(), make(ours, name)
    expected = mine(batch.x, batch.edge_index) + 0
    monkeypatch.setattr(getattr(pyg, name), "forward", None)
    same(mine(batch.x, batch.edge_index)[: batch.batch_size], expected[: batch.batch_size])


def test_dropout_of_attention_weights():
    batch, layer = some_batch(), ours.GATConv(6, 8, dropout=0.999999)
    rows = layer(batch.x, batch.edge_index)[: batch.batch_size]
    same(rows, layer.bias.expand_as(rows))
    assert not torch.allclose(layer.eval()(batch.x, batch.edge_index)[: batch.batch_size], rows)


@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv", "GATConv"])
def test_trimmed_scripts_are_pygs(name):
    batch = some_batch()
    results = []
    for library, edges in ((ours, batch.edge_index), (pyg, batch.edge_index.plain())):
        x, edge_index = batch.x, edges
        for i, layer in enumerate(stack(library, name, 2)):
            x, edge_index, _ = trim_to_layer(i, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index)
            x = layer(x, edge_index).relu()
        results.append(x[: batch.batch_size])
    same(*results)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("name", LAYERS)
def test_other_edges_are_left_to_pyg(name):
    """Results are bit-identical to PyG's for edges that are not a batch's: a plain ``edge_index``, a sparse tensor, and a bipartite graph."""
    generator = torch.Generator().manual_seed(2)
    x, edge_index = torch.rand(9, 6, generator=generator), torch.randint(9, (2, 30), generator=generator)
    mine, theirs = make(ours, name), make(pyg, name)
    inputs = LAYERS[name].inputs(Data(edge_index=edge_index))
    assert torch.equal(mine(x, edge_index, *inputs), theirs(x, edge_index, *inputs))
    if not inputs:
        adjacency = to_torch_csc_tensor(edge_index, size=(9, 9)).t()
        assert torch.equal(mine(x, adjacency), theirs(x, adjacency))
    if not name.startswith("GCN"):
        edges = edge_index % torch.tensor([[9], [4]])
        assert torch.equal(mine((x, x[:4]), edges, *inputs), theirs((x, x[:4]), edges, *inputs))


@pytest.mark.parametrize(
    "change",
    [
        lambda edges: edges.flip(1),
        lambda edges: edges[:, 5:],
        lambda edges: edges[:, torch.arange(edges.shape[1]) % 2 == 0],
        lambda edges: torch.cat([edges, edges.flip(0)], 1),
        lambda edges: edges.add_(1).remainder_(7),
        lambda edges: edges.narrow(1, 0, 3),
    ],
)
def test_changed_edges_are_left_to_pyg(change):
    batch = some_batch()
    mine, theirs = make(ours, "SAGEConv"), make(pyg, "SAGEConv")
    expected = theirs(batch.x, change(batch.edge_index.plain().clone()))
    assert torch.equal(mine(batch.x, change(batch.edge_index)), expected)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # torch.compile warns that it cannot trace parts of PyG's attention
@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv weights", "GATConv"])
def test_compiled_layers_are_pygs(name):
    batch = some_batch()
    mine, theirs = make(ours, name), make(pyg, name)
    inputs = LAYERS[name].inputs(batch)
    torch._dynamo.reset()
    found = torch.compile(mine, backend="eager")(batch.x, batch.edge_index, *inputs)
    same(found, theirs(batch.x, batch.edge_index.plain(), *inputs))


class Doubled(ours.SAGEConv):
    """A custom layer that overrides ``message``."""

    def message(self, x_j):
        return 2 * x_j


class Residual(ours.SAGEConv):
    """A custom layer that overrides ``forward``."""

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) + x


def test_subclasses_work():
    batch = some_batch()
    torch.manual_seed(0)
    doubled = Doubled(6, 6)
    weights = doubled.state_dict()
    plain = pyg.SAGEConv(6, 6)
    plain.load_state_dict(weights)
    edges = batch.edge_index.plain()
    same(doubled(batch.x, batch.edge_index), plain.lin_l(2 * pyg.SimpleConv("mean")(batch.x, edges)) + plain.lin_r(batch.x))
    residual = Residual(6, 6)
    residual.load_state_dict(weights)
    out = residual(batch.x, batch.edge_index)
    assert isinstance(out, LazyRows)
    same(out + 0, plain(batch.x, edges) + batch.x)


def test_hooks_work():
    batch = some_batch()
    layer, seen = ours.GraphConv(6, 6), []
    layer.register_forward_hook(lambda layer, given, out: out * 2)
    expected = pyg.GraphConv(6, 6)
    expected.load_state_dict(layer.state_dict())
    same(layer(batch.x, batch.edge_index)[:4], 2 * expected(batch.x, batch.edge_index.plain())[:4])
    layer.register_message_forward_hook(lambda layer, given, out: seen.append(len(out)))
    layer(batch.x, batch.edge_index)
    assert seen == [batch.edge_index.shape[1]]  # the hook saw a message for each edge, so PyG's own code ran


def test_batch_norm_sees_all_rows():
    batch = some_batch()
    results = []
    for library, edges in ((ours, batch.edge_index), (pyg, batch.edge_index.plain())):
        torch.manual_seed(0)
        layers = nn.ModuleList([library.GINConv(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())), library.SAGEConv(8, 3)])
        x = layers[1](layers[0](batch.x, edges), edges)[: batch.batch_size]
        results.append([x.detach(), layers[0].nn[1].running_var])
    for found, expected in zip(*results, strict=True):
        same(found, expected)


def test_layers_can_be_copied_pickled_and_scripted():
    batch = some_batch()
    layer = make(ours, "SAGEConv")
    expected = layer(batch.x, batch.edge_index)[:4]
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(batch.x, batch.edge_index)[:4], expected)


def test_other_names_are_pygs():
    from hoptrain.pyg.nn import MLP, global_mean_pool

    assert (MLP, global_mean_pool) == (pyg.MLP, pyg.global_mean_pool)
    with refused("'NoSuchConv'", "neither module hoptrain.pyg.nn torch_geometric.nn attribute", error=AttributeError):
        ours.NoSuchConv  # noqa: B018


def test_inference_mode_and_half_precision():
    batch = some_batch()
    mine, theirs = make(ours, "SAGEConv"), make(pyg, "SAGEConv")
    with torch.inference_mode():
        same(mine(batch.x, batch.edge_index.clone()) + 0, theirs(batch.x, batch.edge_index.plain()))
    with torch.autocast("cpu"):
        found, expected = mine(batch.x, batch.edge_index), theirs(batch.x, batch.edge_index.plain())
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found + 0, expected, rtol=0.02, atol=0.02)
