"""Lightning's own options work as documented, or are rejected before training."""

import pytest
import torch
from cases.mistakes import refused
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.trainer.states import RunningStage
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from hoptrain.samplers import NeighborSampler, SampleLoader
from hoptrain.trainers import NodeClassifier, NodeDataModule

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run

# Options, and the number of batches in training (2 epochs of 4), validation, test and predict: with hoptrain's data
# module, whose evaluation is one batch, and with loaders of 2 batches.
COUNTS = [
    ({}, (8, 2, 1, 1), (8, 4, 2, 2)),
    ({"limit_train_batches": 0}, (0, 0, 1, 1), (0, 0, 2, 2)),
    ({"limit_train_batches": 3}, (6, 2, 1, 1), (6, 4, 2, 2)),
    ({"limit_train_batches": 0.5}, (4, 2, 1, 1), (4, 4, 2, 2)),
    ({"limit_val_batches": 0}, (8, 0, 1, 1), (8, 0, 2, 2)),
    ({"limit_val_batches": 1}, (8, 2, 1, 1), (8, 2, 2, 2)),
    ({"limit_test_batches": 0}, (8, 2, 0, 1), (8, 4, 0, 2)),
    ({"limit_test_batches": 1.0}, (8, 2, 1, 1), (8, 4, 2, 2)),
    ({"limit_predict_batches": 0}, (8, 2, 1, 0), (8, 4, 2, 0)),
    ({"limit_predict_batches": 1}, (8, 2, 1, 1), (8, 4, 2, 1)),
    ({"overfit_batches": 1}, (2, 2, 1, 1), (2, 2, 2, 2)),
    (
        {"overfit_batches": 0.5, "limit_val_batches": 0},
        ["trainer.overfit_batches is 0.5", "share less one batch validation", "number batches"],
        (4, 2, 2, 2),
    ),
    (
        {"overfit_batches": 0.1},
        ["trainer.overfit_batches is 0.1", "share less one batch validation 1", "number"],
        "0.1 of the `train_dataloader`",
    ),
    ({"limit_val_batches": 0.5}, "0.5 of the `val_dataloader`", (8, 2, 2, 2)),
    ({"val_check_interval": 2}, (8, 4, 1, 1), (8, 8, 2, 2)),
    ({"val_check_interval": 0.5}, (8, 4, 1, 1), (8, 8, 2, 2)),
    ({"val_check_interval": 5}, "val_check_interval", "val_check_interval"),
    ({"val_check_interval": 5, "check_val_every_n_epoch": None}, (8, 1, 1, 1), (8, 2, 2, 2)),
    ({"fast_dev_run": True}, (1, 1, 1, 1), (1, 1, 1, 1)),
    ({"fast_dev_run": 2}, (2, 1, 1, 1), (2, 2, 2, 2)),
    ({"num_sanity_val_steps": -1}, (8, 3, 1, 1), (8, 6, 2, 2)),
    ({"reload_dataloaders_every_n_epochs": 1}, (8, 2, 1, 1), (8, 4, 2, 2)),
    ({"use_distributed_sampler": True}, (8, 2, 1, 1), (8, 4, 2, 2)),
    ({"barebones": True}, (8, 2, 1, 1), (8, 4, 2, 2)),
    ({"inference_mode": False}, (8, 2, 1, 1), (8, 4, 2, 2)),
    ({"detect_anomaly": True}, (8, 2, 1, 1), (8, 4, 2, 2)),
    ({"profiler": "simple"}, (8, 2, 1, 1), (8, 4, 2, 2)),
]
CASES = [(switches, wanted, is_of_loaders) for switches, *both in COUNTS for is_of_loaders, wanted in enumerate(both)]


class Counted:
    """A mixin that counts the batches of each stage, and records the training seeds."""

    def on_train_batch_start(self, batch, batch_idx):
        self.seeds.append(batch.node_ids[: batch.num_seeds].tolist())

    def on_validation_batch_start(self, batch, batch_idx, dataloader_idx=0):
        self.counts["validate"] += 1

    def on_test_batch_start(self, batch, batch_idx, dataloader_idx=0):
        self.counts["test"] += 1

    def on_predict_batch_start(self, batch, batch_idx, dataloader_idx=0):
        self.counts["predict"] += 1


class OfData(Counted, NodeClassifier):
    """hoptrain's own task model."""


class Plain(Counted, LightningModule):
    """A user's own model."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch):
        return self.weight * torch.as_tensor(batch.x).mean()

    def validation_step(self, batch):
        assert len(batch.x)

    test_step = predict_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def trainer_of(**options):
    quiet = {} if "barebones" in options else {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {} if "barebones" in options else {"enable_model_summary": False, "num_sanity_val_steps": 0}
    return Trainer(accelerator="cpu", max_epochs=2, **quiet | options)


def model_and_data(dataset, is_of_loaders):
    """Return the model, and the arguments of each stage."""
    if is_of_loaders:
        model, loaders = Plain(), {split: (lambda split=split: loader(dataset, split)) for split in ("train", "val", "test")}
    else:
        data = NodeDataModule(dataset, NeighborSampler([3]), batch_size=30, num_workers=0, seed=1)
        model, loaders = OfData(data.num_features, data.num_classes, data.num_hops, hidden_channels=4), {}
    model.counts, model.seeds = dict.fromkeys(("validate", "test", "predict"), 0), []
    if not loaders:
        return model, {stage: {"datamodule": data} for stage in ("fit", "test", "predict")}
    given = {"fit": {"train_dataloaders": loaders["train"](), "val_dataloaders": loaders["val"]()}}
    return model, given | {stage: {"dataloaders": loaders["test"]()} for stage in ("test", "predict")}


def loader(dataset, split):
    size = 30 if split == "train" else len(dataset.split(split)) // 2
    return SampleLoader(dataset, NeighborSampler([3]), split=split, batch_size=size, shuffle=split == "train")


@pytest.mark.parametrize(("switches", "wanted", "is_of_loaders"), CASES, ids=lambda value: str(value).replace("'", ""))
def test_each_switch_works_or_is_refused(dataset, switches, wanted, is_of_loaders, capfd):
    model, given = model_and_data(dataset, is_of_loaders)
    if not isinstance(wanted, tuple):  # a list holds words of hoptrain's message, a text is Lightning's message
        of_lightning = isinstance(wanted, str)
        with pytest.raises((MisconfigurationException, ValueError), match=wanted) if of_lightning else refused(*wanted):
            trainer_of(**switches).fit(model, **given["fit"])
        assert not model.seeds
        return
    for stage in ("fit", "test", "predict"):
        getattr(trainer_of(**switches), stage)(model, **given[stage])
    assert (len(model.seeds), *model.counts.values()) == wanted
    if "overfit_batches" in switches and not is_of_loaders:
        assert model.seeds[0] == model.seeds[-1]


def test_lightning_does_not_shard_what_the_data_module_has_sharded(dataset):
    """Lightning does not shard the data module's loaders again, although ``use_distributed_sampler`` is True by default."""
    data = NodeDataModule(dataset, NeighborSampler([3]), num_workers=0)
    data.trainer = trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False)
    evaluated = data.val_dataloader()
    assert trainer._data_connector._prepare_dataloader(evaluated, shuffle=False, mode=RunningStage.VALIDATING) is evaluated
