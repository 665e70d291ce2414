"""Losses and metrics of classes, several labels and targets equal scikit-learn's, and runs learn each kind."""

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from pytorch_lightning import Trainer
from sklearn import metrics
from sklearn.utils.class_weight import compute_class_weight

from hoptrain.engine import Dataset
from hoptrain.samplers import MVSSampler, NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.metrics.labels import Labels, class_weights

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
RNG = np.random.default_rng(0)
OUTPUTS = torch.from_numpy(RNG.normal(size=(80, 4)).astype(np.float32))
CLASSES = torch.from_numpy(RNG.integers(0, 4, 80))
SEVERAL = torch.from_numpy(RNG.integers(0, 2, (80, 4)).astype(np.uint8))
TARGETS = torch.from_numpy(RNG.normal(size=(80, 4)).astype(np.float32))


def found(kind, name, y):
    """Return the value of the metric ``name`` after two batches."""
    labels = Labels(kind, 4)
    metric = labels.make_score(name)
    for rows in (slice(0, 50), slice(50, 80)):
        metric.update(OUTPUTS[rows], labels.prepare(y[rows]))
    return metric.compute().item()


def test_scores_are_scikit_learns():
    chosen, above = OUTPUTS.argmax(1), OUTPUTS > 0
    assert found("classes", "acc", CLASSES) == pytest.approx(metrics.accuracy_score(CLASSES, chosen))
    assert found("classes", "macro_f1", CLASSES) == pytest.approx(metrics.f1_score(CLASSES, chosen, average="macro"))
    for name in ("acc", "micro_f1"):
        assert found("labels", name, SEVERAL) == pytest.approx(metrics.f1_score(SEVERAL, above, average="micro"))
    assert found("labels", "macro_f1", SEVERAL) == pytest.approx(metrics.f1_score(SEVERAL, above, average="macro"))
    assert found("labels", "ap", SEVERAL) == pytest.approx(metrics.average_precision_score(SEVERAL, OUTPUTS, average="macro"), rel=1e-5)
    assert found("targets", "rmse", TARGETS) == pytest.approx(metrics.mean_squared_error(TARGETS, OUTPUTS) ** 0.5, rel=1e-5)
    assert found("targets", "mae", TARGETS) == pytest.approx(metrics.mean_absolute_error(TARGETS, OUTPUTS), rel=1e-5)
    assert found("targets", "r2", TARGETS) == pytest.approx(metrics.r2_score(TARGETS, OUTPUTS), rel=1e-4)


def test_scores_of_each_label():
    """ROC AUC and average precision with unknown and constant labels equal OGB's evaluator, and scikit-learn's for classes."""
    evaluator = pytest.importorskip("ogb.graphproppred").Evaluator
    several = torch.from_numpy(np.where(RNG.random((80, 4)) < 0.3, -1, SEVERAL).astype(np.int8))
    several[:, 3] = several[:, 3].clamp(max=0)
    theirs = {"y_pred": OUTPUTS, "y_true": torch.where(several < 0, torch.nan, several.float())}
    for name, data, key in (("ap", "ogbg-molmuv", "ap"), ("auc", "ogbg-molclintox", "rocauc")):
        judge = evaluator(data)
        judge.num_tasks = 4
        assert found("labels", name, several) == pytest.approx(judge.eval(theirs)[key], rel=1e-6)
    shares = OUTPUTS.softmax(1)
    assert found("classes", "auc", CLASSES) == pytest.approx(metrics.roc_auc_score(CLASSES, shares, multi_class="ovr"))
    one = (CLASSES > 1).long()
    metric = Labels("classes", 2).make_score("auc")
    metric.update(OUTPUTS[:, :2], one)
    assert metric.compute().item() == pytest.approx(metrics.roc_auc_score(one, OUTPUTS[:, 1] - OUTPUTS[:, 0]))
    assert Labels("classes", 2).make_score("auc").compute().isnan()


def test_losses():
    weights = torch.tensor([0.5, 1.0, 2.0, 0.0])
    plain = -torch.log_softmax(OUTPUTS, 1)[torch.arange(80), CLASSES]
    assert torch.allclose(Labels("classes", 4).losses(OUTPUTS, CLASSES), plain)
    assert torch.allclose(Labels("classes", 4).losses(OUTPUTS, CLASSES, weights), plain * weights[CLASSES])
    right = torch.where(SEVERAL > 0, torch.sigmoid(OUTPUTS), torch.sigmoid(-OUTPUTS))
    assert torch.allclose(Labels("labels", 4).losses(OUTPUTS, SEVERAL), -right.log().mean(1), atol=1e-6)
    assert torch.allclose(Labels("targets", 4).losses(OUTPUTS, TARGETS), ((OUTPUTS - TARGETS) ** 2).mean(1))
    one = Labels("targets", 1)
    assert torch.allclose(one.losses(OUTPUTS[:, :1], one.prepare(TARGETS[:, 0])), (OUTPUTS[:, 0] - TARGETS[:, 0]) ** 2)


def test_class_weights_are_scikit_learns():
    y = np.array([0, 0, 0, 1, 2, 2])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=y)
    assert class_weights(y, Labels("classes", 3)).tolist() == pytest.approx(expected)
    assert class_weights(y, Labels("classes", 4))[3] == 0
    with refused("class_weight is balanced", "labels targets only classes", "leave out"):
        class_weights(y.astype(float), Labels("targets", 1))


def data(y):
    edges = np.random.default_rng(1).integers(0, 120, (2, 700))
    x = np.random.default_rng(2).normal(size=(120, 8)).astype(np.float32)
    splits = {"train": np.arange(80), "val": np.arange(80, 100), "test": np.arange(100, 120)}
    return Dataset(x=x, y=y(x), edge_index=edges, splits=splits)


def fitted(y, sampler=None, epochs=1, **model):
    module = NodeDataModule(data(y), sampler or NeighborSampler([5]), batch_size=20, num_workers=0, seed=1)
    torch.manual_seed(1)
    classifier = NodeClassifier(1 * module.num_features, module.num_classes, 1, module.is_multilabel, lr=0.02, hidden_channels=16, **model)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
    trainer = Trainer(max_epochs=epochs, accelerator="cpu", use_distributed_sampler=False, num_sanity_val_steps=0, **quiet)
    trainer.fit(classifier, module)
    return trainer, classifier, module


@pytest.mark.parametrize("columns", [1, 2])
def test_targets_are_learnt(columns):
    """A model learns targets (V,) and (V, 2) that are a linear function of a node's own features."""
    trainer, model, module = fitted(lambda x: x[:, 0] if columns == 1 else x[:, :2], epochs=25, metric="r2", dropout=0.0)
    assert module.num_classes == columns
    assert float(trainer.callback_metrics["val_r2"]) > 0.6
    y = torch.from_numpy(module.data.y[80:100]).reshape(20, -1)
    outputs = model.eval().infer(np.arange(80, 100))
    assert float(trainer.callback_metrics["val_r2"]) == pytest.approx(metrics.r2_score(y, outputs), rel=1e-3)
    assert float(trainer.callback_metrics["val_loss"]) == pytest.approx(((outputs - y) ** 2).mean().item(), rel=1e-4)


def several(x):
    return (x[:, :3] > 0).astype(np.uint8)


@pytest.mark.parametrize("metric", ["micro_f1", "macro_f1", "ap"])
def test_several_labels(metric):
    trainer, *_ = fitted(several, metric=metric)
    assert 0 < trainer.callback_metrics[f"val_{metric}"] <= 1
    assert (f"train_{metric}" in trainer.callback_metrics) == (metric != "ap")


def classes(x):
    return (x[:, 0] > 1).astype(np.int64)


def test_classes_that_count_alike():
    trainer, model, module = fitted(classes, class_weight="balanced")
    y = torch.from_numpy(module.data.y[80:100])
    weights = class_weights(module.data.y[:80], Labels("classes", 2))
    outputs = model.eval().infer(np.arange(80, 100))
    expected = torch.nn.functional.cross_entropy(outputs, y, reduction="none") * weights[y]
    assert float(trainer.callback_metrics["val_loss"]) == pytest.approx(expected.mean().item(), rel=1e-5)


def fit_targets_with_norms_of_errors():
    fitted(lambda x: x[:, 0], metric="mae", sampler=MVSSampler(NeighborSampler([3]), num_draws=4))


MISTAKES = {
    "an unknown score": Mistake(
        lambda: fitted(classes, metric="macro"), value="'macro'", rule="metric labels classes", remedy="acc macro_f1 auc"
    ),
    "labels scored as targets": Mistake(
        lambda: fitted(several, metric="r2"),
        value="3 targets",
        rule="model data 3 labels",
        remedy="metric num_classes multilabel",
    ),
    "a target scored as classes": Mistake(
        lambda: fitted(lambda x: x[:, 0]), value="num_classes is 1", rule="metric acc classes two regression", remedy="rmse mae r2"
    ),
    "two targets scored as classes": Mistake(
        lambda: fitted(lambda x: x[:, :2]),
        value="2 classes",
        rule="model data 2 targets",
        remedy="metric num_classes multilabel",
    ),
    "weights of classes for several labels": Mistake(
        lambda: fitted(several, class_weight="balanced"),
        value="balanced",
        rule="class_weight labels only classes",
        remedy="leave out",
    ),
    "a word for the weights": Mistake(
        lambda: fitted(classes, class_weight="equal"),
        value="'equal'",
        rule="class_weight must balanced",
        remedy="loss CrossEntropyLoss(weight=...)",
    ),
    "a sampler by norms for targets": Mistake(
        fit_targets_with_norms_of_errors, value="MVSSampler", rule="regression targets errors probabilities", remedy="another sampler"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
