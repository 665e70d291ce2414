"""The models of ``hoptrain.pyg.nn.models`` have PyG's parameters and results, and compute fewer rows on a batch."""

import pytest
import torch
import torch_geometric.nn.models as pyg
from pyg_layers_case import some_batch

import hoptrain.pyg.nn.models as ours
from hoptrain.pyg.nn.lazy import LazyRows

MODELS = {
    "GraphSAGE": {},
    "GraphSAGE jk": {"jk": "cat", "norm": "layer_norm", "act": "elu"},
    "GCN": {"act_first": True},
    "GIN": {"train_eps": True},
    "GIN norm": {"norm": "batch_norm"},
    "GAT": {"heads": 2},
    "GAT v2": {"v2": True, "heads": 2, "concat": False},
}


def make(library, name, dropout=0.0):
    """Return a model of two layers, with weights from a fixed random seed."""
    torch.manual_seed(0)
    return getattr(library, name.split()[0])(6, 8, 2, 4, dropout=dropout, **MODELS[name])


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


def test_parameters_are_pygs(name):
    mine, theirs = make(ours, name), make(pyg, name)
    assert isinstance(mine, type(theirs))
    assert repr(mine) == repr(theirs)
    assert {each.__module__ for each in map(type, mine.convs)} == {"hoptrain.pyg.nn.convs"}
    torch.testing.assert_close(mine.state_dict(), theirs.state_dict(), rtol=0, atol=0)


def test_results_and_gradients_are_pygs(name):
    batch = some_batch()
    trimmed = {"num_sampled_nodes_per_hop": batch.num_sampled_nodes, "num_sampled_edges_per_hop": batch.num_sampled_edges}
    for options in ({},) if "jk" in name else ({}, trimmed):  # PyG cannot join the outputs of trimmed layers
        results = []
        for library, edges in ((ours, batch.edge_index), (pyg, batch.edge_index.plain())):
            model, x = make(library, name), batch.x.clone().requires_grad_()
            out = model(x, edges, **options)[: batch.batch_size]
            out.square().sum().backward()
            results.append({"out": out.detach(), "x": x.grad} | {key: each.grad for key, each in model.named_parameters()})
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["GraphSAGE", "GCN", "GIN", "GAT", "GAT v2"])
def test_rows_that_no_seed_needs_are_not_computed(name):
    """Except in a model that normalises over all nodes of a batch, or joins the outputs of all layers."""
    batch = some_batch()
    model = make(ours, name, dropout=0.5)
    made = []
    model.convs[-1].register_forward_hook(lambda module, inputs, out: made.append(out))
    model(batch.x, batch.edge_index)[: batch.batch_size]
    assert [type(out) for out in made] == [LazyRows]
    assert len(made[0].computed()) == batch.batch_size


def test_other_names_are_pygs():
    assert ours.Node2Vec is pyg.Node2Vec
    with pytest.raises(AttributeError, match=r"hoptrain\.pyg\.nn\.models"):
        _ = ours.NoSuchModel
