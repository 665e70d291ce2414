"""What a model returns is checked before a loss is made of it: a wrong shape could broadcast, a wrong width learn classes that are none."""

from functools import partial

import pytest
import torch
from pytorch_lightning import Trainer
from torch import nn
from torchmetrics.classification import MulticlassF1Score

from hoptrain.engine import InputError
from hoptrain.samplers import LinkSampler, NeighborSampler
from hoptrain.trainers import GraphDataModule, NodeClassifier
from hoptrain.trainers.tasks.items.classifier import ItemClassifier
from hoptrain.trainers.tasks.pairs.link_data import LinkDataModule
from hoptrain.trainers.tasks.pairs.links import LinkPredictor

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small


class Model(NodeClassifier):
    """Returns its scores changed."""

    change = staticmethod(lambda scores: scores)

    def forward(self, batch):
        return self.change(super().forward(batch))


def fit(model, module):
    options = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
    Trainer(max_epochs=1, accelerator="cpu", num_sanity_val_steps=0, limit_val_batches=0, use_distributed_sampler=False, **options).fit(
        model, module
    )


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda scores: None, "NoneType"),
        (lambda scores: scores[:, :1], r"torch.float32 of shape \(16, 1\)"),
        (lambda scores: torch.cat([scores, scores], 1), r"torch.float32 of shape \(16, 6\)"),
        (lambda scores: scores[1:], r"torch.float32 of shape \(15, 3\)"),
        (lambda scores: scores.argmax(1), r"torch.int64 of shape \(16,\)"),
        (lambda scores: scores.long(), r"torch.int64 of shape \(16, 3\)"),
    ],
)
def test_scores_of_vertices(dataset, tmp_path, change, found):
    dataset.save(tmp_path / "data")
    module = GraphDataModule(str(tmp_path / "data"), NeighborSampler([3]), batch_size=16, num_workers=0, seed=4)
    model = Model(module.num_features, module.num_classes, module.num_hops, hidden_channels=8)
    model.change = change
    rule = r"it gives floating scores of shape \(16, 3\), a row for each example of the batch; correct its forward"
    with pytest.raises(InputError, match=f"^the model of Model returned {found}: {rule}$"):
        fit(model, module)


def test_a_loss_counts_each_example_once():
    """Also where batches differ in size."""
    model = NodeClassifier(4, 3, 1, hidden_channels=8)
    for number, total in ((3, 6.0), (1, 10.0)):
        model.count("val", torch.zeros(number, 3), torch.zeros(number, dtype=torch.int64), torch.tensor(total))
    assert model.losses["val"].compute() == 4


def test_scores_of_items():
    model = ItemClassifier(nn.Linear(4, 5), 3)
    with pytest.raises(InputError, match=r"^the model of ItemClassifier returned torch.float32 of shape \(2, 5\): .* shape \(2, 3\)"):
        model.chunk_loss(model.model(torch.ones(2, 4)), (torch.zeros(2, dtype=torch.int64), 2))


def test_vectors_of_links(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    module = LinkDataModule(dataset=str(tmp_path / "data"), sampler=LinkSampler(NeighborSampler([3])), batch_size=16, num_workers=0, seed=4)
    model = LinkPredictor(module.num_features, module.num_hops, hidden_channels=8, out_channels=4)
    model.model.register_forward_hook(lambda _, inputs, vectors: vectors[:, :3])
    with pytest.raises(InputError, match=r"^the model of LinkPredictor returned torch.float32 of shape \(\d+, 3\): .*\(\d+, 4\)"):
        fit(model, module)


@pytest.mark.parametrize("make", [partial(NodeClassifier, num_classes=3), LinkPredictor])
def test_a_metric_is_no_name_of_a_score(make):
    with pytest.raises(
        InputError, match=r"^score is MulticlassF1Score\(\): it takes a name, such as \w+; .* override make_scores in a subclass of"
    ):
        make(7, num_layers=2, score=MulticlassF1Score(3))


def test_a_metric_of_ones_own(dataset, tmp_path):
    """The remedy of the message above."""
    dataset.save(tmp_path / "data")
    module = GraphDataModule(str(tmp_path / "data"), NeighborSampler([3, 3]), batch_size=16, num_workers=0, seed=1)

    class Own(NodeClassifier):
        def make_scores(self, score):
            super().make_scores(lambda: MulticlassF1Score(self.hparams.num_classes))

    fit(model := Own(7, 3, 2), module)
    assert isinstance(model.scores["val"], MulticlassF1Score)
