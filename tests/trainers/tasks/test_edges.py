"""Edge labels: splits, training, and full-neighbour evaluation against a loop over edges."""

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Trainer

from hoptrain.engine import Dataset
from hoptrain.engine.transforms.link_split import share_out_edges
from hoptrain.samplers import LinkSampler, NeighborSampler
from hoptrain.trainers import EdgeDataModule, EdgePredictor

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run


def sampler(**options):
    return LinkSampler(NeighborSampler([4]), **{"num_negatives": 0, "exclude": "none"} | options)


def data(kind="classes", **changed):
    """Return 60 nodes; half of the edges have a reverse. A label depends on the ends' and the edge's own features."""
    rng = np.random.default_rng(4)
    src, dst = rng.integers(0, 60, (2, 300))
    edge_index = np.array([np.r_[src, dst[:150]], np.r_[dst, src[:150]]])
    x, edge_attr = rng.normal(size=(60, 4)).astype(np.float32), rng.normal(size=(450, 2)).astype(np.float32)
    target = x[edge_index[0], 0] + x[edge_index[1], 1] + edge_attr[:, 0]
    y = {"classes": (target > 0).astype(np.int64), "targets": target, "labels": np.stack([target > 0, target > 1], 1).astype(np.uint8)}[
        kind
    ]
    return Dataset(**{"x": x, "edge_index": edge_index, "edge_attr": edge_attr, "edge_y": y} | changed)


def fitted(given, epochs=1, **options):
    module = EdgeDataModule(given, sampler(), batch_size=64, num_workers=0, seed=1, **options.pop("data", {}))
    torch.manual_seed(1)
    sizes = (module.num_features, module.num_classes, module.num_hops, module.is_multilabel, module.num_edge_features)
    model = EdgePredictor(*sizes, hidden_channels=16, out_channels=16, **{"lr": 0.01} | options)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
    trainer = Trainer(max_epochs=epochs, accelerator="cpu", use_distributed_sampler=False, num_sanity_val_steps=0, **quiet)
    trainer.fit(model, module)
    return trainer.callback_metrics, model.eval(), module


@pytest.mark.parametrize(("kind", "metric"), [("classes", "acc"), ("targets", "rmse"), ("labels", "macro_f1")])
def test_evaluation_is_edge_by_edge(kind, metric):
    given = data(kind)
    logged, model, module = fitted(given, metric=metric, data={"val_ratio": 0.2})
    vectors, outputs, ids = model.infer(np.arange(60)), [], module.edges["val"]
    with torch.no_grad():
        for edge in ids:
            place = given.graph.csc_positions([edge])[0]
            u, v = given.graph.indices[place], given.graph.destinations()[place]
            outputs.append(model.decoder(vectors[u], vectors[v], torch.from_numpy(given.edge_attr[edge])))
    outputs, y = torch.stack(outputs), torch.from_numpy(given.edge_y[ids])
    losses = model.labels.losses(outputs, model.labels.prepare(y))
    assert float(logged["val_loss"]) == pytest.approx(losses.mean().item(), rel=1e-4)
    expected = {
        "acc": lambda: (outputs.argmax(1) == y).float().mean().item(),
        "rmse": lambda: ((outputs[:, 0] - y) ** 2).mean().sqrt().item(),
        "macro_f1": lambda: model.labels.make_score(metric)(outputs, y).item(),
    }
    assert float(logged[f"val_{metric}"]) == pytest.approx(expected[metric](), rel=1e-4)


def test_a_batch_names_its_edges():
    given = data()
    module = EdgeDataModule(given, sampler(), batch_size=64, num_workers=0, seed=1)
    seen = []
    for batch in module.train_dataloader():
        ids, pairs = batch.extra["edge_ids"], batch.node_ids[batch.extra["pairs"]]
        places = given.graph.csc_positions(ids)
        assert (given.graph.indices[places] == pairs[0]).all()
        assert (given.graph.destinations()[places] == pairs[1]).all()
        seen += ids.tolist()
    assert sorted(seen) == module.edges["train"].tolist()


def test_edges_of_a_pair_are_in_one_split():
    given, is_labelled = data(), np.arange(450) % 7 > 0
    splits = share_out_edges(given.graph, is_labelled, {"val": 0.2, "test": 0.3}, seed=5)
    assert sorted(np.concatenate(list(splits.values())).tolist()) == np.flatnonzero(is_labelled).tolist()
    places = {name: given.graph.csc_positions(ids) for name, ids in splits.items()}
    pairs = {
        name: {frozenset(pair) for pair in zip(given.graph.indices[own].tolist(), given.graph.destinations()[own].tolist(), strict=True)}
        for name, own in places.items()
    }
    pairs["train"] = {pair for pair in pairs["train"] if len(pair) == 2}
    total = sum(map(len, pairs.values()))
    assert len(set().union(*pairs.values())) == total
    assert {name: len(own) for name, own in pairs.items()} == {
        "val": int(0.2 * total),
        "test": int(0.3 * total),
        "train": total - int(0.2 * total) - int(0.3 * total),
    }
    again = share_out_edges(given.graph, is_labelled, {"val": 0.2, "test": 0.3}, seed=5)
    assert all((again[name] == splits[name]).all() for name in splits)


def test_labels_and_splits_of_edges_are_kept_on_disk(tmp_path):
    splits = {"train": np.arange(300), "val": np.arange(300, 320), "test": np.arange(320, 450)}
    negatives = {"val": np.zeros((2, 20, 3), np.int64), "test": np.ones((2, 7), np.int64)}
    made = data("targets", edge_splits=splits, negatives=negatives)
    made.save(tmp_path / "data")
    opened = Dataset.open(tmp_path / "data")
    assert (opened.edge_y == made.edge_y).all()
    for field in ("edge_splits", "negatives", "splits"):
        assert {name: ids.tolist() for name, ids in getattr(opened, field).items()} == {
            name: ids.tolist() for name, ids in getattr(made, field).items()
        }
    module = EdgeDataModule(str(tmp_path / "data"), sampler(), num_workers=0)
    assert module.edges["val"].tolist() == splits["val"].tolist()


@pytest.mark.promise
def test_labels_are_learnt():
    assert fitted(data(), epochs=40)[0]["val_acc"] > 0.8
    assert fitted(data("targets"), epochs=40, metric="r2")[0]["val_r2"] > 0.5


SPLITS = {"val": np.arange(20)}


MISTAKES = {
    "a sampler of nodes": Mistake(
        lambda: EdgeDataModule(data(), NeighborSampler([4])),
        value="is NeighborSampler(fanouts=[4]",
        rule="sampler must",
        remedy="LinkSampler num_negatives 0 without edges",
    ),
    "a sampler with negatives": Mistake(
        lambda: EdgeDataModule(data(), sampler(num_negatives=1)),
        value="num_negatives=1",
        rule="sampler must",
        remedy="LinkSampler num_negatives 0 without edges",
    ),
    "no labels": Mistake(
        lambda: EdgeDataModule(data(edge_y=None), sampler()), value="data", rule="no edge labels", remedy="Dataset edge_y task: links"
    ),
    "splits without one to train on": Mistake(
        lambda: EdgeDataModule(data(edge_splits=SPLITS), sampler()),
        value="edge_splits val:",
        rule="splits include train",
        remedy="add split leave out",
    ),
    "a share beside a split to train on": Mistake(
        lambda: EdgeDataModule(data(edge_splits=SPLITS | {"train": [40]}), sampler(), val_ratio=0.1),
        value="edge_splits val, train:",
        rule="splits include train",
        remedy="add split leave out",
    ),
    "an edge of two splits": Mistake(
        lambda: EdgeDataModule(data(edge_splits=SPLITS | {"train": [3]}), sampler()),
        value="edge from 30 to 55",
        rule="splits val train data share",
        remedy="remove from one",
    ),
    "fewer labels than edges": Mistake(lambda: data(edge_y=np.zeros(449)), value="(449,)", rule="y shape 450 edges", remedy="reshape"),
    "labels below -1": Mistake(
        lambda: data(edge_y=np.full(450, -2)), value="y[0] is -2", rule="data edges labels", remedy="correct num_classes"
    ),
    "a split of an unknown edge": Mistake(
        lambda: data(edge_splits={"val": [450]}), value="edge 450", rule="split val 0 449", remedy="drop split"
    ),
    "an edge twice in a split": Mistake(
        lambda: data(edge_splits={"val": [4, 4]}), value="val", rule="split edge twice", remedy="np.unique(ids)"
    ),
    "negatives of fewer links": Mistake(
        lambda: data(edge_splits=SPLITS, negatives={"val": np.zeros((2, 19, 3), int)}),
        value="(2, 19, 3)",
        rule="negatives val int64 20",
        remedy="reshape",
    ),
    "negatives of missing nodes": Mistake(
        lambda: data(negatives={"val": np.full((2, 9), 60)}), value="val", rule="negatives leave nodes 0 59", remedy="drop"
    ),
    "classes scored as targets": Mistake(
        lambda: fitted(data(), metric="r2"),
        value="2 targets",
        rule="model data 2 classes",
        remedy="metric num_classes multilabel",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
