"""Heterogeneous graphs with custom modules, including PyG's ``to_hetero``, and with labels other than classes."""

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from pytorch_lightning import Trainer
from reference.hetero_data import hetero_classifier, hetero_data, hetero_module, sizes_of
from sklearn.metrics import average_precision_score, f1_score, r2_score
from torch import nn
from torch_geometric.nn import GAT, GIN, GraphSAGE, to_hetero

from hoptrain.engine import HeteroGraph
from hoptrain.trainers import HeteroClassifier
from hoptrain.trainers.models.hetero.gnn import HeteroGNN

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run

X = {"paper": hetero_data().x["paper"], "author": hetero_data().x["author"], "subject": np.eye(12, dtype=np.float32)}
DATA = hetero_data(x=X)
METADATA = (list(DATA.graph.num_nodes), list(DATA.graph.relations))


def trainer(epochs=1, **options):
    return Trainer(
        accelerator="cpu", max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False, num_sanity_val_steps=0, **options,
    )  # fmt: skip


def edges_of(graph):
    return {
        relation: torch.from_numpy(np.stack([of.indices, np.repeat(np.arange(of.num_nodes), np.diff(of.indptr))])).long()
        for relation, of in graph.relations.items()
    }


def on_the_whole_graph(module, data=DATA):
    module.eval()
    with torch.no_grad():
        return module({name: torch.from_numpy(rows) for name, rows in data.x.items()}, edges_of(data.graph))["paper"]


@pytest.mark.parametrize("kind", [GraphSAGE, GIN, GAT])
def test_to_hetero_is_trained_and_evaluated_as_on_the_whole_graph(kind):
    torch.manual_seed(0)
    options = {"add_self_loops": False} if kind is GAT else {}
    module = to_hetero(kind((-1, -1) if kind is not GIN else 8, 8, 2, 3, **options), METADATA) if kind is not GIN else Mapped(kind)
    on_the_whole_graph(module)  # initialises lazy layers
    data = hetero_module(DATA)
    model = HeteroClassifier(model=module, forward_inputs="edge_index", lr=0.02)
    before = on_the_whole_graph(module)
    run = trainer()
    run.fit(model, data)
    after = on_the_whole_graph(module)
    assert not torch.allclose(before, after)
    found = torch.cat(run.predict(model, data))
    torch.testing.assert_close(found, after, rtol=1e-4, atol=1e-5)
    assert run.validate(model, data, verbose=False)[0]["val_acc"] == pytest.approx(
        (after.argmax(1).numpy() == DATA.y)[DATA.split("val")].mean(), abs=1e-6
    )


def test_han_along_metapaths_learns():
    """HAN learns authors' classes from metapaths, since an author's papers have its class; node types that end no metapath are unused."""
    torch.manual_seed(0)
    random, authors = np.random.default_rng(0), np.arange(300) % 60
    papers = authors % 3 + 3 * random.integers(0, 30, 300)
    others = {relation: edges for relation, edges in edges_of(DATA.graph).items() if "subject" in relation}
    edges = {("author", "writes", "paper"): (authors, papers), ("paper", "by", "author"): (papers, authors)} | others
    graph = HeteroGraph.from_edges(DATA.graph.num_nodes, {relation: (own[0], own[1]) for relation, own in edges.items()})
    paths = [["paper", "author", "paper"], ["paper", "subject", "paper"]]
    data = hetero_module(hetero_data(graph=graph), fanouts=(5,), metapaths=paths)
    assert (data.num_nodes, list(data.num_features), len(data.relations)) == ({}, ["paper"], 2)
    model = hetero_classifier(data, arch="han", embeddings=False, dropout=0.0, lr=0.02, hidden_channels=16)
    run = trainer(10)
    run.fit(model, data)
    assert run.test(model, data, verbose=False)[0]["test_acc"] > 0.8
    assert torch.cat(run.predict(model, data)).shape == (90, 3)


class Mapped(nn.Module):
    """A GIN with a linear map per type, since GIN needs equal widths."""

    def __init__(self, kind):
        super().__init__()
        self.maps = nn.ModuleDict({name: nn.Linear(rows.shape[1], 8) for name, rows in X.items()})
        self.gnn = to_hetero(kind(8, 8, 2, 3), METADATA)

    def forward(self, x_dict, edge_index_dict):
        return self.gnn({name: self.maps[name](rows) for name, rows in x_dict.items()}, edge_index_dict)


class OfBlocks(nn.Module):
    """A module with the inputs of ``HeteroGNN``."""

    def __init__(self, module):
        super().__init__()
        self.gnn = hetero_classifier(module).model

    def forward(self, x, node_ids, blocks):
        return self.gnn(x, node_ids, blocks)


def test_a_module_of_blocks():
    """A custom module over blocks gives the logits of ``HeteroGNN`` with the same weights."""
    data = hetero_module(hetero_data())
    inner, model = hetero_classifier(data), HeteroClassifier(model=OfBlocks(data))
    model.model.gnn.load_state_dict(inner.model.state_dict())
    model.model.gnn.tables["subject"].sparse = False
    run = trainer()
    torch.testing.assert_close(torch.cat(run.predict(model, data)), torch.cat(run.predict(inner, data)), rtol=1e-4, atol=1e-5)
    run.fit(model, data)
    assert isinstance(inner.model, HeteroGNN)
    assert model.hparams["model"] == "OfBlocks"


class Returns(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.weight, self.value = nn.Parameter(torch.zeros(1)), value

    def forward(self, *inputs):
        return self.value


TEST = DATA.split("test")


def fitted(y, **options):
    """Return outputs for the test split, its labels and the logged metric after one epoch."""
    data = hetero_module(hetero_data(y=y))
    assert sizes_of(data)["num_classes"] == (y.shape[1] if y.ndim == 2 else 1 if y.dtype.kind == "f" else 3)
    model = hetero_classifier(data, multilabel=data.is_multilabel, **options)
    run = trainer(2)
    run.fit(model, data)
    found = run.test(model, data, verbose=False)[0]
    return torch.cat(run.predict(model, data))[TEST].numpy(), y[TEST], found[f"test_{options['metric']}"]


def test_several_labels_a_node():
    y = (np.random.default_rng(0).random((90, 4)) < 0.4).astype(np.uint8)
    outputs, labels, metric = fitted(y, metric="macro_f1")
    assert metric == pytest.approx(f1_score(labels, outputs > 0, average="macro"), abs=1e-5)
    outputs, labels, metric = fitted(y, metric="ap")
    assert metric == pytest.approx(average_precision_score(labels, outputs, average="macro"), abs=1e-5)


def test_targets():
    y = np.random.default_rng(0).normal(size=90).astype(np.float32)
    outputs, targets, metric = fitted(y, metric="rmse")
    assert metric == pytest.approx(np.sqrt(((outputs[:, 0] - targets) ** 2).mean()), abs=1e-5)
    outputs, targets, metric = fitted(np.stack([y, -y], 1), metric="r2")
    assert metric == pytest.approx(r2_score(targets, outputs), abs=1e-4)


def test_class_weights(monkeypatch):
    """With class weights, the loss of a step is the mean of each node's cross-entropy times N / (C n).

    C is the number of classes, and n the number of the N training nodes with the node's class.
    """
    y = np.where(np.arange(90) % 10 == 0, 2, np.arange(90) % 2)
    data = hetero_module(hetero_data(y=y))
    model = hetero_classifier(data, class_weight="balanced", dropout=0.0)
    trainer(limit_train_batches=1).fit(model, data)
    batch = next(iter(data.train_dataloader())).to("cpu")
    monkeypatch.setattr(model, "log", lambda *arguments, **options: None)
    train = y[data.data.split("train")]
    weights = torch.tensor([len(train) / (3 * (train == number).sum()) for number in range(3)], dtype=torch.float32)
    losses = nn.functional.cross_entropy(model(batch), batch.y, reduction="none")
    torch.testing.assert_close(model.training_step(batch, 0), (losses * weights[batch.y]).mean())
    with refused("class_weight is balanced", "labels targets only classes", "leave out"):
        fitted(y.astype(np.float32) + 0.5, metric="rmse", class_weight="balanced")


def fit(model, data=DATA):
    trainer().fit(model, hetero_module(data))


def fit_three_classes_to_targets():
    data = hetero_module(hetero_data(y=np.random.default_rng(0).random(90)))
    trainer().fit(hetero_classifier(data, num_classes=3), data)


MISTAKES = {
    "a dict without the type of the seeds": Mistake(
        lambda: fit(HeteroClassifier(model=Returns({"author": torch.zeros(3, 3)}), forward_inputs="edge_index")),
        value="NoneType",
        rule="Returns returned type paper",
        remedy="tensor logits row seed",
    ),
    "a tuple in place of scores": Mistake(
        lambda: fit(HeteroClassifier(model=Returns((1, 2)), forward_inputs="blocks")),
        value="tuple",
        rule="Returns returned type paper",
        remedy="tensor logits row seed",
    ),
    "scores for fewer classes": Mistake(
        lambda: fit(HeteroClassifier(model=Returns(torch.zeros(16, 2)), forward_inputs="blocks")),
        value="(16, 2)",
        rule="returned torch.float32 floating logits",
        remedy="16, 3) forward",
    ),
    "an unknown argument of a module": Mistake(
        lambda: HeteroClassifier(model=Returns(1), forward_inputs="edges"),
        value="'edges'",
        rule="forward_inputs one",
        remedy="blocks edge_index",
    ),
    "a type without features for PyG's models": Mistake(
        lambda: fit(HeteroClassifier(model=Returns(1), forward_inputs="edge_index"), hetero_data()),
        value="type subject",
        rule="forward_inputs edge_index no features PyG",
        remedy="model blocks",
    ),
    "a model for seeds of another type": Mistake(
        lambda: fit(HeteroClassifier(model=Returns(1), seed_type="author")),
        value="author",
        rule="model seed_type mixed paper",
        remedy="data sampler",
    ),
    "a score of other labels": Mistake(
        lambda: hetero_classifier(hetero_module(DATA), embeddings=True, metric="ap"),
        value="'ap'",
        rule="metric labels classes",
        remedy="acc macro_f1 auc",
    ),
    "targets for a model of classes": Mistake(
        fit_three_classes_to_targets,
        value="3 classes",
        rule="mixed 1 targets node",
        remedy="metric num_classes multilabel",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
