"""Small graphs with targets, several labels, edge features and categories, in this process and with workers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Trainer
from sklearn import metrics
from torch_geometric.data import Batch, Data

from hoptrain.engine.datasets.small_graphs import SmallGraphs
from hoptrain.trainers.commands.lightning import run
from hoptrain.trainers.tasks.items.feed import ItemLoader
from hoptrain.trainers.tasks.items.graphs import Categories, GraphClassifier, GraphDataModule

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
SPLITS = {"train": np.arange(40), "val": np.arange(40, 50), "test": np.arange(50, 60)}


def pyg_graphs(y, x=None, edges=True):
    """Return sixty rings with chords; the labels are ``y`` of a graph's index and its features."""
    generator = torch.Generator().manual_seed(2)
    graphs = []
    for number in range(60):
        size = 3 + number % 5
        ring = torch.arange(size)
        edge_index = torch.cat([torch.stack([ring, ring.roll(1)]), torch.randint(0, size, (2, 2), generator=generator)], 1)
        rows = torch.randn(size, 4, generator=generator) if x is None else x(size, generator)
        edge_attr = torch.randint(0, 3, (size + 2, 2), generator=generator) if edges else None
        graphs.append(Data(x=rows, edge_index=edge_index, edge_attr=edge_attr, y=y(number, rows)))
    return graphs


def classes(number, x):
    return torch.tensor([number // 2 % 3])


def target(number, x):
    return x[:, 0].mean().reshape(1)


def several(number, x):
    """Return three labels, some of which are unknown."""
    y = (x[:, :3].mean(0) > 0).float()
    y[number % 7 if number % 7 < 3 else 3 :] = float("nan")
    return y.reshape(1, -1)


def module_of(y, **options):
    made = {name: options.pop(name) for name in ("x", "edges") if name in options}
    return GraphDataModule(SmallGraphs.from_pyg(pyg_graphs(y, **made), splits=SPLITS), batch_size=8, seed=1, **options)


def model_of(module, **options):
    torch.manual_seed(1)
    names = ("is_multilabel", "num_edge_features", "node_categories", "edge_categories")
    sizes = dict(zip(("multilabel", "edge_channels", *names[2:]), (getattr(module, name) for name in names), strict=True))
    return GraphClassifier(module.num_features, module.num_classes, **sizes, **{"hidden_channels": 16, "num_layers": 2} | options)


def fitted(module, epochs=1, **options):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
    model = model_of(module, **options)
    trainer = Trainer(max_epochs=epochs, accelerator="cpu", use_distributed_sampler=False, num_sanity_val_steps=0, **quiet)
    trainer.fit(model, module)
    return trainer, model.eval()


def outputs_of(model, module, split):
    items = module.data.splits[split]
    with torch.no_grad():
        return model.model(module.collate(items, None)[0]), torch.from_numpy(module.data.y[items])


def test_targets_are_learnt():
    module = module_of(target, edges=False)
    trainer, model = fitted(module, epochs=12, metric="r2", dropout=0.0, readout="mean", lr=0.01)
    outputs, y = outputs_of(model, module, "val")
    assert float(trainer.callback_metrics["val_r2"]) == pytest.approx(metrics.r2_score(y, outputs), rel=1e-3)
    assert float(trainer.callback_metrics["val_r2"]) > 0.3
    assert float(trainer.callback_metrics["val_loss"]) == pytest.approx(((outputs[:, 0] - y) ** 2).mean().item(), rel=1e-4)


def test_labels_that_are_unknown():
    module = module_of(several, edges=False)
    trainer, model = fitted(module, metric="ap")
    outputs, y = outputs_of(model, module, "val")
    each = [F.binary_cross_entropy_with_logits(own[known >= 0], known[known >= 0].float()) for own, known in zip(outputs, y, strict=True)]
    losses = torch.stack([torch.zeros(()) if (known < 0).all() else loss for loss, known in zip(each, y, strict=True)])
    assert float(trainer.callback_metrics["val_loss"]) == pytest.approx(losses.mean().item(), rel=1e-5)
    known = [(own[y_ >= 0], y_[y_ >= 0]) for own, y_ in zip(outputs.T, y.T, strict=True)]
    wanted = [metrics.average_precision_score(y_, own) for own, y_ in known if 0 < y_.sum() < len(y_)]
    assert float(trainer.callback_metrics["val_ap"]) == pytest.approx(np.mean(wanted), rel=1e-5)
    assert "train_ap" not in trainer.callback_metrics


def test_unknown_labels_are_no_zeros():
    """Unknown labels do not count as 0, and an example without known labels has the loss 0."""
    module = module_of(several, edges=False)
    model = model_of(module, metric="ap").double()
    x, y = module.collate(np.arange(12), None)
    changed = torch.where(y < 0, torch.zeros_like(y), y)
    losses = [model.labels.losses(model.model(x._replace(x=x.x.double())), labels) for labels in (y, changed)]
    assert not torch.allclose(*losses)
    alone = (y >= 0).sum(1) == 0
    assert alone.any()
    assert (losses[0][alone] == 0).all()


@pytest.mark.parametrize("arch", ["gine", "gatv2", "transformer", "nnconv"])
def test_features_of_edges_count(arch):
    """A batch has the logits of its single graphs, and an edge feature changes only the logits of its graph."""
    module = module_of(classes)
    model = model_of(module, arch=arch, heads=2).double().eval()
    items = np.array([5, 2, 9, 33])

    def scores(items, changed=None):
        x, _ = module.collate(items, None)
        edge_attr = x.edge_attr.double()
        if changed is not None:
            edge_attr[changed] += 1
        return model.model(x._replace(x=x.x.double(), edge_attr=edge_attr))

    whole = scores(items)
    torch.testing.assert_close(whole, torch.cat([scores(items[i : i + 1]) for i in range(4)]))
    last = scores(items, changed=-1)
    assert torch.equal(last[:3], whole[:3])
    assert not torch.allclose(last[3], whole[3])


def test_the_model_is_pygs():
    """The outputs of GIN with edge features and sums equal those of PyG's layers and pooling on PyG's batches."""
    from torch_geometric.nn import global_add_pool

    module = module_of(classes)
    model = model_of(module, arch="gine", norm="none", dropout=0.0).eval()
    items = np.array([5, 2, 9, 33])
    batch = Batch.from_data_list([pyg_graphs(classes)[item] for item in items])
    x, edge_attr = batch.x, batch.edge_attr.float()
    first, second = (layer.conv for layer in model.model.gnn.layers)
    vectors = global_add_pool(second(first(x, batch.edge_index, edge_attr).relu(), batch.edge_index, edge_attr), batch.batch)
    torch.testing.assert_close(model.model(module.collate(items, None)[0]), model.model.head(vectors), rtol=1e-4, atol=1e-5)


def test_categories():
    """Each categorical feature has one embedding per category, and a node's embeddings are added up."""
    module = module_of(classes, x=lambda size, generator: torch.randint(0, 5, (size, 2), generator=generator), categorical=True)
    assert module.node_categories == (5, 5)
    assert module.edge_categories == (3, 3)
    layer = Categories((5, 4), 8)
    rows = torch.tensor([[0.0, 3.0], [4.0, 0.0]])
    torch.testing.assert_close(layer(rows), torch.stack([layer.vectors.weight[[0, 8]].sum(0), layer.vectors.weight[[4, 5]].sum(0)]))
    trainer, _ = fitted(module, arch="gine", metric="auc", class_weight="balanced")
    assert 0 <= float(trainer.callback_metrics["val_auc"]) <= 1


@pytest.mark.parametrize("y", [classes, several, target])
def test_workers_put_the_same_batches_together(y):
    loaders = [module_of(y, num_workers=workers).make_loader(1, 2, seed=3) for workers in (0, 2)]
    for _ in range(2):
        for one, other in zip(*loaders, strict=True):
            assert one.address == other.address
            assert one.num_step_items == other.num_step_items
            assert torch.equal(one.y, other.y)
            assert all(torch.equal(*rows) for rows in zip(one.x, other.x, strict=True))
    loaders[1].close()


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    SmallGraphs.from_pyg(pyg_graphs(target), splits=SPLITS).save(tmp_path / "mols")
    options = ("--model.metric=rmse", "--model.arch=gine", "--model.hidden_channels=8", "--trainer.max_epochs=1", "--data.num_workers=1")
    run(["fit", "--task=graphs", "--data.dataset=mols", "--data.root=.", *options, "--trainer.accelerator=cpu"])
    assert "test RMSE" in capsys.readouterr().out


def fit_edge_features_to_a_model_without():
    model = model_of(module_of(classes, edges=False))
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, module_of(classes))


def workers_of_their_own():
    module = module_of(classes)
    ItemLoader(module.make_loader(0, 1, seed=3).schedule, module.collate, None, 2)


MISTAKES = {
    "categories that are no whole numbers": Mistake(
        lambda: module_of(classes, categorical=True).node_categories,
        value="x of float32",
        rule="categorical categories integers",
        remedy="leave out",
    ),
    "layers that read no features of edges": Mistake(
        lambda: fitted(module_of(classes), arch="gin"),
        value="gin",
        rule="edge_channels 2 edge features",
        remedy="gine gatv2 transformer nnconv data.edge_features: false",
    ),
    "an unknown readout": Mistake(
        lambda: fitted(module_of(classes), arch="gine", readout="max"), value="'max'", rule="readout one", remedy="sum mean"
    ),
    "classes scored as targets": Mistake(
        lambda: fitted(module_of(classes), arch="gine", metric="rmse"),
        value="3 targets",
        rule="model graphs 3 classes",
        remedy="metric num_classes multilabel",
    ),
    "targets scored as classes": Mistake(
        lambda: fitted(module_of(target), arch="gine"), value="num_classes is 1", rule="metric acc classes two", remedy="rmse mae r2"
    ),
    "weights of classes for several labels": Mistake(
        lambda: fitted(module_of(several), arch="gine", class_weight="balanced"),
        value="balanced",
        rule="class_weight labels only classes",
        remedy="leave out",
    ),
    "other data than the model's": Mistake(
        fit_edge_features_to_a_model_without, value="edge_channels is 0", rule="model graphs 2", remedy="data"
    ),
    "a list of graphs": Mistake(
        lambda: GraphDataModule(pyg_graphs(classes)), value="list", rule="data", remedy="name SmallGraphs SmallGraphs.from_pyg(data)"
    ),
    "workers for batches of this process": Mistake(workers_of_their_own, value="num_workers is 2", rule="0 process", remedy="give 0"),
    "fewer workers than none": Mistake(
        lambda: module_of(classes, num_workers=-1).make_loader(0, 1, seed=3),
        value="num_workers is -1",
        rule="least 0",
        remedy="give 0",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
