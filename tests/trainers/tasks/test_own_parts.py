"""A user's own loss, metric, optimiser and schedule, in Python and on the command line, for all tasks."""

import csv
import logging
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from reference.hetero_data import hetero_data, hetero_module
from torch import nn
from torch_geometric.metrics import LinkPredMetricCollection, LinkPredPrecision, LinkPredRecall
from torch_geometric.nn import GraphSAGE, SAGEConv
from torchmetrics import MeanSquaredError, MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision, MulticlassAccuracy, MulticlassAUROC, MulticlassF1Score
from torchmetrics.wrappers import ClasswiseWrapper

from hoptrain.engine import Dataset
from hoptrain.engine.datasets.events import Events
from hoptrain.engine.datasets.triples import Triples
from hoptrain.samplers import LinkSampler, MVSSampler, NeighborSampler, SaintNodeSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.cli import main
from hoptrain.trainers.tasks.edges import EdgeDataModule, EdgePredictor
from hoptrain.trainers.tasks.items.images import ImageClassifier, ImageDataModule
from hoptrain.trainers.tasks.items.sign import SIGNClassifier, SIGNDataModule
from hoptrain.trainers.tasks.kg import TripleDataModule, TriplePredictor
from hoptrain.trainers.tasks.links.data import LinkDataModule
from hoptrain.trainers.tasks.links.task import LinkPredictor
from hoptrain.trainers.tasks.nodes.task import HeteroClassifier
from hoptrain.trainers.tasks.temporal_links import EventDataModule, EventPredictor

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "use_distributed_sampler": False}
F1 = partial(MulticlassF1Score, 3, average="macro")


def data(**changed):
    """Return 60 nodes of three classes, which noisy features reveal."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = np.eye(3, 7, dtype=np.float32)[y] + rng.normal(0, 0.5, (60, 7)).astype(np.float32)
    splits = {"train": np.arange(38), "val": np.arange(38, 50), "test": np.arange(50, 60)}
    return Dataset(**{"name": "nodes", "edge_index": rng.integers(0, 60, (2, 300)), "x": x, "y": y, "splits": splits} | changed)


def nodes(sampler=None, batch_size=8, **changed):
    return NodeDataModule(data(**changed), sampler or NeighborSampler([3, 3]), batch_size=batch_size, num_workers=0, seed=4)


def edges():
    sampler = LinkSampler(NeighborSampler([3]), num_negatives=0)
    return EdgeDataModule(data(edge_y=np.arange(300) % 3), sampler, batch_size=32, num_workers=0, seed=4)


def links(eval_negatives="uniform", **options):
    return LinkDataModule(
        data(), LinkSampler(NeighborSampler([3])), eval_negatives=eval_negatives, batch_size=64, num_workers=0, seed=4, **options
    )


def triples(num_negatives=None):
    rng = np.random.default_rng(0)
    rows = np.unique(rng.integers(0, [20, 2, 20], (80, 3)), axis=0)
    made = Triples(splits={"train": rows[:60], "val": rows[60:]}, num_nodes=20, num_relations=2)
    return TripleDataModule(made, num_negatives=num_negatives, allow_unseen=True, batch_size=20, num_workers=0, seed=4)


def events():
    made = Events(src=np.arange(120) % 7, dst=7 + np.arange(120) % 5, t=np.arange(120))
    return EventDataModule(made, num_neighbors=3, batch_size=20, num_workers=0, seed=4)


SMALL = {"memory_channels": 8, "time_channels": 8, "hidden_channels": 8}
TASKS = {
    "nodes": (nodes, NodeClassifier, {"hidden_channels": 8}),
    "hetero": (lambda: hetero_module(hetero_data()), HeteroClassifier, {"hidden_channels": 8, "embeddings": True}),
    "edges": (edges, EdgePredictor, {"hidden_channels": 8, "out_channels": 8}),
    "links": (links, LinkPredictor, {"hidden_channels": 8, "out_channels": 8}),
    "kg": (triples, TriplePredictor, {"hidden_channels": 8}),
    "temporal_links": (events, EventPredictor, SMALL),
    "sign": (lambda: SIGNDataModule(data(), num_hops=1, batch_size=16, seed=4), SIGNClassifier, {"hidden_channels": 8}),
    "images": (
        lambda: ImageDataModule("digits", batch_size=400, seed=4),
        ImageClassifier,
        {"patch": 4, "num_blocks": 1, "width": 8, "head_width": 8, "neighbors": 3},
    ),
}
"""Data module, model and small sizes by task."""
TASK_LOSSES = {"links": nn.BCEWithLogitsLoss, "temporal_links": nn.BCEWithLogitsLoss}


def fit(module, model, callbacks=(), ckpt_path=None, **options):
    options = {"max_epochs": 1, "enable_checkpointing": bool(callbacks), "num_sanity_val_steps": 0, "accelerator": "cpu"} | QUIET | options
    trainer = Trainer(**options, callbacks=list(callbacks))
    trainer.fit(model, module, ckpt_path=ckpt_path)
    return trainer


def made(name, module=None, **options):
    """Return a task's data module, and its model with initial weights drawn by a seed."""
    make, kind, small = TASKS[name]
    module = module or make()
    torch.manual_seed(0)
    return module, kind.from_data(module, **small | options)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def logged(trainer):
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


@pytest.mark.parametrize("name", TASKS)
def test_the_task_s_loss_given_as_an_own_one_trains_the_same(name):
    """The task's loss trains the same weights if it is given as a torch loss or as a function that returns a mean."""
    loss = TASK_LOSSES.get(name, nn.CrossEntropyLoss)()
    trained = []
    for own in (None, loss, lambda outputs, y: loss(outputs, y)):
        module, model = made(name, **({} if own is None else {"loss": own}))
        trained.append((logged(fit(module, model, limit_train_batches=3)), weights(model)))
    (expected, by_task), *others = trained
    assert {"train_loss", "train_loss_step", "val_loss"} <= expected.keys()
    for found, by_own in others:
        assert found == pytest.approx(expected, rel=1e-3, nan_ok=True)
        torch.testing.assert_close(by_own, by_task, rtol=1e-3, atol=1e-5)
    assert loss.reduction == "mean", "the user's loss was changed"


def test_weights_and_smoothing_are_the_loss_s():
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 4.0]), label_smoothing=0.1)
    module, model = made("nodes", loss=loss)
    found = logged(fit(module, model))["val_loss"]
    ids = module.data.splits["val"]
    with torch.no_grad():
        outputs = model.eval().infer(ids)
    rows = F.cross_entropy(outputs, torch.from_numpy(module.data.y[ids]), loss.weight, label_smoothing=0.1, reduction="none")
    assert found == pytest.approx(rows.mean().item(), rel=1e-5)
    assert model.hparams["loss"] == "CrossEntropyLoss"


def test_several_labels_of_which_some_are_unknown():
    """Unknown labels are left out of the default loss and of ``BCEWithLogitsLoss``, which has a value for each label."""
    y = np.random.default_rng(1).integers(-1, 2, (60, 4))
    trained = []
    for own in ({}, {"loss": nn.BCEWithLogitsLoss()}):
        module, model = made("nodes", nodes(y=y), **own)
        fit(module, model)
        trained.append(weights(model))
    assert torch.equal(*trained)


def test_targets_with_an_own_loss_and_metric():
    """With a custom metric and loss, targets are a regression: metrics equal those of ``rmse``, and a smaller value is better."""
    targets = data().x[:, 0]
    trained = {}
    for name, own in {"rmse": {"metric": "rmse"}, "own": {"metric": MeanSquaredError(squared=False), "loss": nn.MSELoss()}}.items():
        module, model = made("nodes", nodes(y=targets), **own)
        trained[name] = logged(fit(module, model))
        assert model.monitor_mode == "min"
    assert trained["own"]["val_MeanSquaredError"] == pytest.approx(trained["rmse"]["val_rmse"], rel=1e-5)
    assert trained["own"]["train_MeanSquaredError"] == pytest.approx(trained["rmse"]["train_rmse"], rel=1e-5)


def test_a_metric_is_logged_by_its_name():
    module, model = made("nodes", metric=F1())
    found = logged(fit(module, model))
    by_name = logged(fit(*made("nodes", metric="macro_f1")))
    assert (model.score_name, model.score_title, model.monitor_mode) == ("MulticlassF1Score", "MulticlassF1Score", "max")
    assert found["val_MulticlassF1Score"] == pytest.approx(by_name["val_macro_f1"])
    assert found["train_MulticlassF1Score"] == pytest.approx(by_name["train_macro_f1"])
    assert not {"val_acc", "train_acc"} & found.keys()


def test_a_collection_is_logged_by_its_names():
    """A metric collection is logged by its names, and its first metric selects the checkpoint.

    If a metric stores all outputs, no metric is computed in training.
    """
    metrics = MetricCollection([F1(), ClasswiseWrapper(MulticlassAccuracy(3, average=None), prefix="class_")])
    module, model = made("nodes", metric=metrics)
    found = logged(fit(module, model))
    names = {"MulticlassF1Score", "class_0", "class_1", "class_2"}
    assert {f"{stage}_{name}" for stage in ("train", "val") for name in names} <= found.keys()
    assert model.score_name == "MulticlassF1Score"
    found = logged(fit(*made("nodes", metric=MetricCollection({"f1": F1(), "auc": MulticlassAUROC(3)}))))
    assert {name for name in found if "f1" in name or "auc" in name} == {"val_f1", "val_auc"}


def test_metrics_of_links():
    """Custom metrics of links get the pairs; PyG's metrics get the best destinations of each source."""
    by_name = {name: logged(fit(*made("links", metric=name)))[f"val_{name}"] for name in ("auc", "ap")}
    found = logged(fit(*made("links", metric=MetricCollection({"a": BinaryAUROC(), "b": BinaryAveragePrecision()}))))
    assert (found["val_a"], found["val_b"]) == pytest.approx((by_name["auc"], by_name["ap"]), rel=1e-4)
    of_pyg = LinkPredMetricCollection([LinkPredPrecision(5), LinkPredRecall(20)])
    found = logged(fit(*made("links", links("all"), metric=of_pyg)))
    expected = logged(fit(*made("links", links("all"), metric="recall@20")))
    assert found["val_LinkPredRecall@20"] == pytest.approx(expected["val_recall@20"])
    assert found["val_LinkPredPrecision@5"] == pytest.approx(
        logged(fit(*made("links", links("all"), metric="precision@5")))["val_precision@5"]
    )


def test_metrics_of_triples_and_events():
    """Custom metrics of triples get the logits of all entities except other known answers, so the accuracy of the best ten is hits@10."""
    found = logged(fit(*made("kg", metric=MulticlassAccuracy(20, top_k=10, average="micro"))))
    assert found["val_MulticlassAccuracy"] == pytest.approx(found["val_hits@10"])
    assert found.keys() - {"val_MulticlassAccuracy"} == logged(fit(*made("kg"))).keys()
    found = logged(fit(*made("temporal_links", metric=BinaryAUROC())))
    assert found["val_BinaryAUROC"] == pytest.approx(found["val_auc"], rel=1e-4)
    for name, metric in (("kg", "hits@3"), ("temporal_links", "mrr")):
        expected, module = logged(fit(*made(name))), made(name, metric=metric)
        assert logged(fit(*module)) == pytest.approx(expected)
        assert module[1].score_name == metric


@pytest.mark.parametrize("name", TASKS)
def test_an_own_optimiser_and_schedule(name, caplog):
    """A custom optimiser and schedule are used; embeddings get dense gradients if the optimiser does not support sparse ones."""
    caplog.set_level(logging.INFO)
    optimizer = partial(torch.optim.RMSprop, lr=0.01)
    module, model = made(name, optimizer=optimizer, lr_scheduler=partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5))
    before = weights(model)
    trainer = fit(module, model, max_epochs=2, limit_train_batches=2)
    assert type(trainer.optimizers[0]) is torch.optim.RMSprop
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.0025
    assert not torch.equal(weights(model), before)
    assert any("RMSprop with lr 0.01" in line for line in caplog.messages)
    assert any("dense gradients" in line for line in caplog.messages) == (name in ("hetero", "kg"))


def test_sparse_gradients_stay_for_an_optimiser_that_takes_them():
    module, model = made("kg", optimizer=partial(torch.optim.SGD, lr=0.1))
    fit(module, model)
    assert model.encoder.table.sparse


def test_a_schedule_by_the_loss():
    module, model = made("nodes", lr_scheduler=partial(torch.optim.lr_scheduler.ReduceLROnPlateau, patience=0, threshold=1e9))
    trainer = fit(module, model, max_epochs=3)
    assert trainer.lr_scheduler_configs[0].monitor == "val_loss"
    assert trainer.optimizers[0].param_groups[0]["lr"] < 0.003


class Stop(Callback):
    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 8:
            raise KeyError("power cut")


def test_a_run_with_all_of_them_resumes_in_mid_epoch(tmp_path):
    """A resumed run with a custom loss, metric, optimiser and schedule has the weights and metrics of an uninterrupted one."""

    def run(*callbacks, ckpt_path=None):
        options = {"loss": nn.CrossEntropyLoss(label_smoothing=0.1), "metric": MetricCollection([F1(), MulticlassAccuracy(3)])}
        options |= {"optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9)}
        options |= {"lr_scheduler": partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)}
        module, model = made("nodes", **options)
        checkpoints = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
        return logged(fit(module, model, [checkpoints, *callbacks], ckpt_path, max_epochs=3, default_root_dir=tmp_path)), weights(model)

    expected, whole = run()
    for file in tmp_path.glob("*.ckpt"):
        file.unlink()
    with pytest.raises(KeyError):
        run(Stop())
    found, resumed = run(ckpt_path=tmp_path / "step=7.ckpt")
    assert found == expected
    assert torch.equal(whole, resumed)


CONFIGURATIONS = {
    "nodes": {
        "data": {"dataset": "digits-knn", "sampler": {"class_path": "NeighborSampler", "init_args": {"fanouts": [3, 3]}}, "num_workers": 0},
        "model": {
            "hidden_channels": 8,
            "loss": {"class_path": "torch.nn.CrossEntropyLoss", "init_args": {"label_smoothing": 0.1}},
            "metric": {
                "class_path": "torchmetrics.MetricCollection",
                "init_args": {
                    "metrics": {
                        "f1": {
                            "class_path": "torchmetrics.classification.MulticlassF1Score",
                            "init_args": {"num_classes": 10, "average": "macro"},
                        }
                    },
                },
            },
            "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.5, "momentum": 0.9}},
            "lr_scheduler": {"class_path": "torch.optim.lr_scheduler.StepLR", "init_args": {"step_size": 1}},
        },
    },
    "links": {
        "data": {
            "dataset": "digits-knn",
            "sampler": {
                "class_path": "LinkSampler",
                "init_args": {"sampler": {"class_path": "NeighborSampler", "init_args": {"fanouts": [3]}}},
            },
            "num_workers": 0,
            "batch_size": 4096,
        },
        "model": {
            "hidden_channels": 8,
            "out_channels": 8,
            "loss": {"class_path": "torch.nn.SoftMarginLoss"},
            "metric": {"class_path": "torchmetrics.classification.BinaryAveragePrecision"},
            "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.5}},
            "lr_scheduler": {
                "class_path": "pytorch_lightning.cli.ReduceLROnPlateau",
                "init_args": {"monitor": "val_BinaryAveragePrecision", "mode": "min", "patience": 0, "threshold": 1e9},
            },
        },
    },
}


def command(folder, task, name):
    """Run ``fit`` with a configuration, and return the rows of its log and the run's folder."""
    trainer = {"max_epochs": 2, "accelerator": "cpu", "default_root_dir": str(folder), "limit_train_batches": 2, "log_every_n_steps": 1}
    trainer |= {"enable_progress_bar": False, "enable_model_summary": False}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"task": task, "trainer": trainer} | CONFIGURATIONS[task]))
    assert main(["fit", "--config", str(path)]) == 0
    run = folder / "version_0"
    with (run / "metrics.csv").open() as file:
        return list(csv.DictReader(file)), run


@pytest.mark.long
@pytest.mark.parametrize(("task", "metric", "rate"), [("nodes", "f1", 0.005), ("links", "BinaryAveragePrecision", 0.05)])
def test_class_paths_on_the_command_line(tmp_path, capsys, task, metric, rate):
    rows, run = command(tmp_path, task, "own")
    assert f"test {metric} 0." in capsys.readouterr().out
    best = max(float(row[f"val_{metric}"]) for row in rows if row[f"val_{metric}"])
    content = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert content["optimizer_states"][0]["param_groups"][0]["lr"] == pytest.approx(rate)
    (kept,) = [state for name, state in content["callbacks"].items() if "BestAndLast" in name]
    assert float(kept["best_model_score"]) == pytest.approx(best, rel=1e-3)
    checkpoint = yaml.safe_load((run / "config.yaml").read_text())["checkpoint"]
    assert checkpoint["monitor"] == f"val_{metric}"
    found = ["--config", str(run / "config.yaml"), "--ckpt_path", str(run / "checkpoints" / "last.ckpt")]
    assert main(["test", *found, f"--trainer.default_root_dir={tmp_path}", "--trainer.logger=false"]) == 0
    assert f"test_{metric}" in capsys.readouterr().out


def test_a_model_s_inputs_are_taken_from_the_names_of_its_parameters():
    model = NodeClassifier(model=GraphSAGE(7, 8, 2, 3))
    assert model.forward_inputs == model.hparams["forward_inputs"] == "edge_index"
    fit(nodes(), model)


class OtherName(nn.Module):
    """A PyG model whose parameter has a name from which its kind cannot be seen."""

    def __init__(self):
        super().__init__()
        self.layer = SAGEConv(7, 3)

    def forward(self, x, mystery):
        return self.layer(x, mystery)


def test_a_pyg_model_that_gets_blocks_is_told_how_to_get_edge_index():
    with pytest.raises(ValueError, match="edge_index") as failed:
        fit(nodes(), NodeClassifier(model=OtherName()))
    (note,) = failed.value.__notes__
    assert note == "hoptrain passed the batch's blocks as 'mystery': if the model takes edge_index, give forward_inputs='edge_index'"
    fit(nodes(), NodeClassifier(model=OtherName(), forward_inputs="edge_index"))


def test_a_loss_that_is_not_finite_is_logged_once_in_python(caplog):
    module, model = made("nodes", loss=lambda outputs, y: outputs.sum() * torch.nan)
    fit(module, model, max_epochs=3)
    assert [line for line in caplog.messages if "NaN" in line] == [next(line for line in caplog.messages if "at step 5" in line)]


@pytest.mark.parametrize(
    ("y", "words"),
    [(np.eye(3, dtype=np.int64)[np.arange(60) % 3], "exactly one of 3 labels"), (np.arange(60) % 3 * 10, "only 3 of the 21 classes occur")],
)
def test_ambiguous_labels_are_logged_once(caplog, y, words):
    caplog.set_level(logging.INFO)
    trainer = fit(*made("nodes", nodes(y=y)))
    trainer.test(trainer.model, trainer.datamodule, verbose=False)
    assert sum(words in line for line in caplog.messages) == 1


def test_whole_numbers_are_classes_or_targets(caplog):
    y = (np.arange(60) % 3).astype(np.float32)
    assert data(y=y).y.dtype == np.int64
    assert [line for line in caplog.messages if "num_classes=1" in line]
    assert data(y=y[:, None], num_classes=1).is_regression


def pairs_of(name, **options):
    fit(*made(name, **options))


MISTAKES = {
    "a class as the metric": Mistake(
        lambda: made("nodes", metric=MulticlassF1Score), value="MulticlassF1Score", rule="metric name torchmetrics", remedy="(...) give"
    ),
    "a function as the metric": Mistake(lambda: made("links", metric=len), value="len", rule="metric name torchmetrics", remedy="give"),
    "a metric of other outputs": Mistake(
        lambda: pairs_of("nodes", metric=BinaryAUROC(thresholds=5)),
        value="BinaryAUROC",
        rule="rejects (8, 3) int64",
        remedy="metric targets",
    ),
    "a metric of several values": Mistake(
        lambda: pairs_of("nodes", metric=MulticlassAccuracy(3, average=None)),
        value="3 values",
        rule="one number",
        remedy="average ClasswiseWrapper",
    ),
    "a metric of pairs where all are ranked": Mistake(
        lambda: fit(*made("links", links("all"), metric=BinaryAUROC())),
        value="BinaryAUROC",
        rule="ranked all negatives",
        remedy="mrr hits@K uniform",
    ),
    "a metric of triples": Mistake(lambda: made("kg", metric="auc"), value="metric is auc", rule="ranked", remedy="mrr hits@K"),
    "a word for the loss": Mistake(
        lambda: made("nodes", loss="focal"), value="'focal'", rule="loss function outputs", remedy="give load_from_checkpoint(path loss"
    ),
    "a class as the loss": Mistake(
        lambda: made("links", loss=nn.BCEWithLogitsLoss),
        value="BCEWithLogitsLoss'>",
        rule="loss function object",
        remedy="BCEWithLogitsLoss()",
    ),
    "a loss that sums": Mistake(
        lambda: made("nodes", loss=nn.CrossEntropyLoss(reduction="sum")), value="reduction sum", rule="mean rows", remedy="none"
    ),
    "a loss of other targets": Mistake(
        lambda: pairs_of("nodes", loss=nn.MSELoss()), value="MSELoss", rule="rejects (8, 3) (8,) int64", remedy="give"
    ),
    "a loss that returns no losses": Mistake(
        lambda: pairs_of("nodes", loss=lambda outputs, y: outputs.mean(0)),
        value="(3,)",
        rule="loss returned each row mean",
        remedy="change",
    ),
    "a mean where seeds have weights": Mistake(
        lambda: fit(*made("nodes", nodes(SaintNodeSampler(20, num_subgraphs=4), 1), loss=lambda outputs, y: F.cross_entropy(outputs, y))),
        value="of shape ()",
        rule="loss each row weights",
        remedy="change",
    ),
    "a loss with a sampler by gradients": Mistake(
        lambda: fit(*made("nodes", nodes(MVSSampler(NeighborSampler([3]), num_draws=4)), loss=nn.CrossEntropyLoss())),
        value="MVSSampler",
        rule="loss gradient norms own",
        remedy="another sampler leave out",
    ),
    "weights of classes beside a loss": Mistake(
        lambda: made("nodes", loss=nn.CrossEntropyLoss(), class_weight="balanced"), value="balanced", rule="own loss's", remedy="leave out"
    ),
    "an optimiser in place of a function": Mistake(
        lambda: made("nodes", optimizer=torch.optim.SGD([torch.zeros(1)])),
        value="SGD(...)",
        rule="optimizer class function",
        remedy="partial",
    ),
    "a function that makes no optimiser": Mistake(
        lambda: pairs_of("nodes", optimizer=list), value="list(...)", rule="optimizer torch optimiser", remedy="change"
    ),
    "another task's data": Mistake(lambda: LinkPredictor.from_data(nodes()), value="NodeDataModule", rule="LinkDataModule", remedy="give"),
    "a data module for the sizes": Mistake(
        lambda: NodeClassifier(nodes()), value="NodeClassifier", rule="sizes in_channels", remedy="NodeClassifier.from_data"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
