"""Outputs of a model are checked before the loss, since torch would broadcast a wrong shape, and count a wrong width as more classes."""

import pytest
import torch
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Trainer
from torch import nn

from hoptrain.samplers import LinkSampler, NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.tasks.items.classifier import ItemClassifier
from hoptrain.trainers.tasks.links.data import LinkDataModule
from hoptrain.trainers.tasks.links.task import LinkPredictor

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run


class Model(NodeClassifier):
    """A classifier that changes its outputs."""

    change = staticmethod(lambda scores: scores)

    def forward(self, batch):
        return self.change(super().forward(batch))


def fit(model, module):
    options = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
    Trainer(max_epochs=1, accelerator="cpu", num_sanity_val_steps=0, limit_val_batches=0, use_distributed_sampler=False, **options).fit(
        model, module
    )


def test_a_loss_counts_each_example_once():
    """The mean loss counts each example once, even if batches differ in size."""
    model = NodeClassifier(4, 3, 1, hidden_channels=8)
    for number, total in ((3, 6.0), (1, 10.0)):
        model.count("val", torch.zeros(number, 3), torch.zeros(number, dtype=torch.int64), torch.tensor(total))
    assert model.losses["val"].compute() == 4


@pytest.mark.parametrize("make", [lambda: NodeClassifier(4, 3, 1), lambda: ItemClassifier(nn.Linear(4, 3), 3)])
def test_weights_on_cuda_are_updated_in_one_kernel(monkeypatch, make):
    """On CUDA, Adam is fused, unless Lightning clips gradients in mixed precision, for which it rejects fused optimisers."""
    model, other = make(), make()
    for each in (model, other):
        each.hparams.update(lr=0.1, weight_decay=0.0)
    options = {"accelerator": "cpu", "precision": "bf16-mixed", "logger": False, "enable_checkpointing": False}
    assert model.configure_optimizers().defaults["fused"] is None
    monkeypatch.setattr(type(model), "device", torch.device("cuda", 0))
    assert model.configure_optimizers().defaults["fused"] is True
    model.trainer, other.trainer = Trainer(**options), Trainer(**options, gradient_clip_val=1.0)
    assert model.configure_optimizers().defaults["fused"] is True
    assert other.configure_optimizers().defaults["fused"] is None


def fit_with_changed_scores(dataset, change):
    module = NodeDataModule(dataset, NeighborSampler([3]), batch_size=16, num_workers=0, seed=4)
    model = Model(module.num_features, module.num_classes, module.num_hops, hidden_channels=8)
    model.change = change
    fit(model, module)


def score_items_by_a_wider_layer():
    model = ItemClassifier(nn.Linear(4, 5), 3)
    model.chunk_loss(model.model(torch.ones(2, 4)), (torch.zeros(2, dtype=torch.int64), 2))


def fit_links_with_narrower_vectors(dataset):
    module = LinkDataModule(dataset=dataset, sampler=LinkSampler(NeighborSampler([3])), batch_size=16, num_workers=0, seed=4)
    model = LinkPredictor(module.num_features, module.num_hops, hidden_channels=8, out_channels=4)
    model.model.register_forward_hook(lambda _, inputs, vectors: vectors[:, :3])
    fit(model, module)


MISTAKES = {
    **{
        name: Mistake(
            lambda dataset, change=change: fit_with_changed_scores(dataset, change),
            value=f"returned {found}:",
            rule="Model floating (16, 3)",
            remedy="change forward",
        )
        for name, change, found in (
            ("no scores", lambda scores: None, "NoneType"),
            ("scores of one class", lambda scores: scores[:, :1], "torch.float32 of shape (16, 1)"),
            ("scores of more classes", lambda scores: torch.cat([scores, scores], 1), "torch.float32 of shape (16, 6)"),
            ("scores of fewer nodes", lambda scores: scores[1:], "torch.float32 of shape (15, 3)"),
            ("classes in place of scores", lambda scores: scores.argmax(1), "torch.int64 of shape (16,)"),
            ("scores in whole numbers", lambda scores: scores.long(), "torch.int64 of shape (16, 3)"),
        )
    },
    "items' scores of more classes": Mistake(
        score_items_by_a_wider_layer, value="(2, 5)", rule="ItemClassifier torch.float32 floating (2, 3)", remedy="forward"
    ),
    "narrower vectors of links": Mistake(
        fit_links_with_narrower_vectors, value=", 3)", rule="LinkPredictor torch.float32 floating , 4)", remedy="forward"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
