"""Heterogeneous models equal PyG's on the whole graph, layer-wise inference is exact, and every trainable parameter is used."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases.mistakes import Mistake, each_of, refused
from reference.hetero_data import hetero_classifier, hetero_data, hetero_graph, hetero_module
from torch_geometric.nn import GINConv, GraphConv, HANConv, HeteroConv, SAGEConv

from hoptrain.samplers import HeteroSampler
from hoptrain.trainers.models.features import with_edge_features
from hoptrain.trainers.models.hetero.gnn import HeteroGNN, relations_by_layer
from hoptrain.trainers.models.hetero.inference import hetero_layerwise_inference
from hoptrain.trainers.models.hetero.sparse_adam import DenseAndSparseAdam

_WRITES = ("author", "writes", "paper")
DATA = hetero_data(edge_attr={_WRITES: np.random.default_rng(1).random((400, 3), dtype=np.float32)})
NODES = np.array([0, 5, 85, 44])  # 85 has no neighbours
MODELS = {
    "rgcn": {},
    "bases": {"arch": "rgcn", "num_bases": 2},
    "gat": {"arch": "gat"},
    "gatv2": {"arch": "gatv2"},
    "transformer": {"arch": "transformer"},
    "gin": {"arch": "gin"},
    "graphconv": {"arch": "graphconv"},
    "hgt": {"arch": "hgt"},
    "han": {"arch": "han"},
}


def make(name, **options):
    torch.manual_seed(0)
    return hetero_classifier(hetero_module(DATA), **MODELS[name] | options).model.eval()


def whole(batch, data=DATA):
    """Return the inputs of the model for a batch."""
    batch = with_edge_features(batch, data).to("cpu")
    x = {name: torch.from_numpy(rows)[batch.node_ids[name].long()] for name, rows in data.x.items()}
    return x, batch.node_ids, batch.blocks


def exact(model, nodes, data=DATA, **options):
    return hetero_layerwise_inference(model, data, {"paper": nodes}, normalize=False, device=torch.device("cpu"), **options)["paper"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("most_edges", [200, 1 << 20])
def test_exact_inference_equals_blocks_of_all_neighbours(name, most_edges):
    model = make(name)
    asked = np.concatenate([NODES, np.setdiff1d(np.arange(90), NODES)]) if name == "han" else NODES  # its logits depend on all nodes
    with torch.no_grad():
        at_once = model(*whole(HeteroSampler([-1, -1], "paper").sample(DATA.graph, asked)))["paper"][: len(NODES)]
    torch.testing.assert_close(exact(model, NODES, chunk_edges=most_edges), at_once, rtol=1e-4, atol=1e-5)
    assert exact(model, NODES[:0]).shape == (0, 3)


@pytest.mark.parametrize("name", ["gatv2", "transformer"])
def test_features_of_edges_count(name):
    model = make(name)
    assert model.edge_channels == {_WRITES: 3}
    other = replace(DATA, edge_attr={_WRITES: DATA.edge_attr[_WRITES] + 1})
    assert not torch.allclose(exact(model, NODES), exact(model, NODES, other))
    with refused("has 0", "model 3 features edge batch", "Dataset.edge_attr"):
        exact(model, NODES, replace(DATA, edge_attr={}))


def test_with_features_of_edges_attention_is_pygs():
    """The outputs of a model with edge features equal those of ``HeteroConv`` on the whole graph with edges in CSC order."""
    model = make("transformer")
    columns = DATA.graph.relations[_WRITES]
    rows = torch.from_numpy(DATA.edge_attr[_WRITES][columns.ids_of(np.arange(columns.num_edges))])
    hidden = inputs_of(model)
    for i, conv in enumerate(layer.conv for layer in model.layers):
        edges = {relation: EDGES[relation] for relation in model.relations[i]}
        out = conv(hidden, edges, edge_attr_dict={_WRITES: rows})
        hidden = hidden | {kind: own.relu() for kind, own in out.items()}
    torch.testing.assert_close(exact(model, NODES), model.heads["paper"](hidden["paper"])[NODES], rtol=1e-4, atol=1e-5)


EDGES = {
    relation: torch.from_numpy(np.stack([of.indices, np.repeat(np.arange(len(of.indptr) - 1), np.diff(of.indptr))])).long()
    for relation, of in DATA.graph.relations.items()
}


def inputs_of(model):
    hidden = {name: F.relu(model.inputs[name](torch.from_numpy(rows))) for name, rows in DATA.x.items()}
    return hidden | {"subject": model.tables["subject"].weight}


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))


@pytest.mark.parametrize(
    ("name", "conv"),
    [("rgcn", lambda: SAGEConv((8, 8), 8)), ("gin", lambda: GINConv(mlp())), ("graphconv", lambda: GraphConv((8, 8), 8))],
)
def test_equal_to_pyg_on_the_whole_graph(name, conv):
    """Outputs equal those of PyG's HeteroConv over edge lists of all nodes, with the model's weights."""
    model = make(name)
    hidden = inputs_of(model)
    for layer in model.layers:
        theirs = HeteroConv({relation: conv() for relation in EDGES}, aggr="sum")
        theirs.load_state_dict(layer.conv.state_dict(), strict=False)
        out = theirs(hidden, {relation: EDGES[relation] for relation in dict(layer.conv.convs.items())})
        hidden = {name: F.relu(rows) for name, rows in out.items()}
    torch.testing.assert_close(exact(model, NODES), model.heads["paper"](hidden["paper"])[NODES].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("most_edges", [40, 1 << 20])
def test_han_equals_pyg_on_the_whole_graph(most_edges):
    """HAN's weights of relations are means over all nodes of a type, not over a chunk, so outputs equal PyG's for any chunks."""
    model = make("han")
    with torch.no_grad():
        for layer in model.layers:  # otherwise the relations' weights hardly differ
            layer.conv.q.normal_(std=20)
        hidden = inputs_of(model)
        for layer in model.layers:
            names, relations = layer.kinds, layer.numbered
            theirs = HANConv(8, 8, (list(names.values()), list(relations.values())), 2).eval()
            theirs.load_state_dict(layer.conv.state_dict())
            out, weights = theirs(
                {names[name]: rows for name, rows in hidden.items() if name in names},
                {relations[relation]: EDGES[relation] for relation in relations},
                return_semantic_attention_weights=True,
            )
            hidden = {name: out[number] for name, number in names.items()}
    assert abs(weights[names["paper"]].diff()) > 0.01
    torch.testing.assert_close(
        exact(model, NODES, chunk_edges=most_edges), model.heads["paper"](hidden["paper"])[NODES].detach(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_that_trains_has_a_gradient(name):
    """Every trainable parameter has a gradient, even if the batch lacks a node type; DDP would wait for a missing gradient."""
    for seeds in (np.arange(20), np.array([85])):
        model = make(name).train()
        model(*whole(HeteroSampler([2, 2], "paper").sample(DATA.graph, seeds)))["paper"].sum().backward()
        assert all((parameter.grad is not None) == parameter.requires_grad for parameter in model.parameters())
        assert model.tables["subject"].weight.grad.is_sparse
        frozen = {key for key, parameter in model.named_parameters() if not parameter.requires_grad}
        assert all(name == "hgt" and ("skip" in key or "out_lin" in key) for key in frozen)


def test_layers_have_the_relations_that_scores_depend_on():
    relations = list(hetero_graph().relations)
    author, subject, by, on = relations
    assert relations_by_layer(relations, ["paper"], 3) == [relations, relations, [author, subject]]
    assert relations_by_layer([author, by], ["paper"], 2) == [[author, by], [author]]
    model = HeteroGNN("rgcn", {"paper": 3, "author": 5}, {"subject": 12}, relations, ["paper"], 8, 3, 1)
    assert [list(model.inputs), list(model.tables)] == [["paper", "author"], ["subject"]]
    assert relations_by_layer([author, on], ["paper"], 2) == [[author], [author]]
    with refused("paper", "no relation nodes neighbours", "add reverse"):
        relations_by_layer([by, on], ["paper"], 2)


def test_a_type_that_nothing_leads_to_keeps_its_vectors():
    """Authors have no in-edges, so their embeddings pass through the first layer unchanged."""
    model = HeteroGNN("rgcn", {"paper": 3, "author": 5}, {}, list(hetero_graph().relations)[:1], ["paper"], 8, 3, 2).eval()
    hidden = {"paper": torch.rand(4, 8), "author": torch.rand(6, 8)}
    block = HeteroSampler([-1], "paper").sample(DATA.graph, NODES).to("cpu").blocks[0]
    hidden["author"] = torch.rand(block[("author", "writes", "paper")].num_src, 8)
    out = model.layer(0, hidden, block)
    assert torch.equal(out["author"], hidden["author"])
    assert out["paper"].shape == (4, 8)


def test_dense_and_sparse_adam_are_torchs():
    """Each step of the combined optimiser equals that of torch's Adam and SparseAdam, also after saving and loading the state."""
    torch.manual_seed(0)
    one, two = ([torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(4, 2))] for _ in range(2))
    both = DenseAndSparseAdam(one[:1], one[1:], lr=0.1, weight_decay=0.01)
    apart = [torch.optim.Adam(two[:1], lr=0.1, weight_decay=0.01), torch.optim.SparseAdam(two[1:], lr=0.1)]
    for step in range(6):
        dense, rows = torch.rand(3), torch.sparse_coo_tensor(torch.tensor([[step % 4, 1]]), torch.rand(2, 2), (4, 2), check_invariants=True)
        for parameters in (one, two):
            parameters[0].grad, parameters[1].grad = dense.clone(), rows.clone()
        if step == 3:
            state = both.state_dict()
            both = DenseAndSparseAdam(one[:1], one[1:], lr=5.0, weight_decay=0.3)
            both.load_state_dict(state)
        both.step()
        for optimizer in apart:
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert [group["lr"] for group in both.param_groups] == [0.1, 0.1]


def build(**options):
    hetero_classifier(hetero_module(DATA), **options)


MISTAKES = {
    "an unknown arch": Mistake(lambda: build(arch="rgcm"), value="'rgcm'", rule="arch one gat han", remedy="mean rgcn?"),
    "no channels": Mistake(lambda: build(hidden_channels=0), value="over 0", rule="layers channels heads least", remedy="1"),
    "heads that cannot share the width": Mistake(
        lambda: build(arch="hgt", heads=3), value="hidden_channels 8", rule="divided 3 heads", remedy="multiple heads"
    ),
    "bases for another arch": Mistake(
        lambda: build(arch="gat", num_bases=2), value="num_bases is 2", rule="arch gat rgcn 0", remedy="leave out"
    ),
    "fewer bases than none": Mistake(lambda: build(num_bases=-1), value="num_bases is -1", rule="arch rgcn least", remedy="0 leave"),
    "a type without features": Mistake(
        lambda: build(embeddings=False), value="type subject", rule="nodes no features", remedy="embeddings: true 12"
    ),
    "all dropped": Mistake(lambda: build(dropout=1.0), value="dropout is 1.0", rule="share drop [0, 1)", remedy="give 0.5"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
