"""Training with node-wise samplers: edge weights and seed weights reach the model, and the loss decreases."""

import pytest
from pytorch_lightning import Trainer, seed_everything

from hoptrain.samplers import LaborSampler, MVSSampler, NeighborSampler, PinSAGESampler
from hoptrain.trainers import NodeClassifier, NodeDataModule

SAMPLERS = {
    "labor": LaborSampler([5, 5], importance_rounds=1),
    "pinsage": PinSAGESampler([5, 5], num_walks=20, walk_length=3),
    "mvs": MVSSampler(NeighborSampler([5, 5]), num_draws=64),
}


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
@pytest.mark.parametrize("name", SAMPLERS)
def test_two_epochs(name, tmp_path):
    seed_everything(0, verbose=False)
    module = NodeDataModule("digits-knn", SAMPLERS[name], batch_size=128, num_workers=0, seed=0)
    model = NodeClassifier(module.num_features, module.num_classes, module.num_hops, hidden_channels=32, dropout=0.1, lr=0.01)
    trainer = Trainer(
        max_epochs=2, num_sanity_val_steps=0, use_distributed_sampler=False, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(model, module)
    assert trainer.callback_metrics["train_loss"] < 1.2  # log(10) = 2.3 without learning
    assert trainer.callback_metrics["val_acc"] > 0.7
