"""A run that is stopped within an epoch and resumed ends with bit-identical weights."""

import json

import pytest
import torch
from cases.mistakes import refused
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import EarlyStopping, GradientAccumulationScheduler, ModelCheckpoint, OnExceptionCheckpoint

from hoptrain.samplers import NeighborSampler, SampleLoader
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.callbacks.callbacks import ThroughputMonitor
from hoptrain.trainers.callbacks.timeline import BatchTraceCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run


class Stop(Callback):
    def __init__(self, step):
        self.step = step

    def on_train_batch_end(self, trainer, *arguments):
        if trainer.global_step == self.step:
            raise KeyError("power cut")


@pytest.fixture
def folder(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    return tmp_path


class Addresses(Callback):
    """A callback that records the batches trained on: (epoch, batch)."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen.append((batch.epoch, batch.batch))


def data_of(folder, num_workers=0, batch_size=16, **options):
    options |= {"batch_size": batch_size, "num_workers": num_workers, "seed": 4}
    return NodeDataModule(str(folder / "data"), NeighborSampler([3, 3]), **options)


def fit(folder, num_workers, *, callbacks=(), ckpt_path=None, module=None, lr=0.003, **options):
    torch.manual_seed(0)
    module = module or data_of(folder, num_workers)
    model = NodeClassifier(module.num_features, module.num_classes, module.num_hops, arch="sage", hidden_channels=8, lr=lr)
    checkpoints = ModelCheckpoint(folder / "checkpoints", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    trainer = Trainer(
        **{"max_epochs": 3} | options,
        accelerator="cpu",
        callbacks=[checkpoints, *callbacks],
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        default_root_dir=folder,
    )
    trainer.fit(model, module, ckpt_path=ckpt_path, weights_only=True)
    return {name: value.clone() for name, value in model.state_dict().items()}, trainer.global_step


@pytest.mark.parametrize(("stop", "workers"), [(1, 0), (11, 2), (15, 0), (16, 1)])
def test_killed_at_any_step_and_resumed(folder, stop, workers):
    """A run killed after step 1, 11, 15 or 16 and resumed has the weights of an uninterrupted one; an epoch has 8 steps."""
    whole, steps = fit(folder, 0)
    assert steps == 24
    for file in (folder / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(KeyError):
        fit(folder, 1 if workers == 0 else 0, callbacks=[Stop(stop + 1)])
    resumed, steps = fit(folder, workers, ckpt_path=folder / "checkpoints" / f"step={stop}.ckpt")
    assert steps == 24
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize("workers", [0, 2])
def test_features_beyond_memory_are_read_on_from_where_a_run_was_killed(folder, workers):
    """A run with out-of-core features that is killed and resumed has the weights of an uninterrupted run with features in memory."""
    whole, steps = fit(folder, 0)
    with pytest.raises(KeyError):
        fit(folder, 0, callbacks=[Stop(12)], module=data_of(folder, workers, feature_cache="40KiB"))
    resumed = fit(folder, 0, ckpt_path=folder / "checkpoints/step=11.ckpt", module=data_of(folder, workers, feature_cache="40KiB"))
    assert resumed[1] == steps
    assert all(torch.equal(whole[name], resumed[0][name]) for name in whole)


def test_a_data_module_serves_another_run_from_the_beginning(folder):
    fit(folder, 0, max_epochs=1)
    module, resumed, restarted = data_of(folder), Addresses(), Addresses()
    fit(folder, 0, module=module, callbacks=[resumed], ckpt_path=folder / "checkpoints/step=5.ckpt", max_epochs=1)
    fit(folder, 0, module=module, callbacks=[restarted], max_epochs=1)
    assert resumed.seen == [(0, 5), (0, 6), (0, 7)]
    assert restarted.seen == [(0, step) for step in range(8)]


def test_other_batches_in_the_middle_of_an_epoch_are_refused(folder):
    fit(folder, 0, max_epochs=1)
    with refused("batch_size 16", "checkpoint batch 5 (20", "same end epoch"):
        fit(folder, 0, module=data_of(folder, batch_size=20), ckpt_path=folder / "checkpoints/step=5.ckpt")
    addresses = Addresses()
    fit(folder, 0, module=data_of(folder, batch_size=20), callbacks=[addresses], ckpt_path=folder / "checkpoints/step=8.ckpt", max_epochs=2)
    assert addresses.seen == [(1, step) for step in range(6)]


def test_overfitting_takes_the_same_batches_in_every_epoch(folder):
    addresses = Addresses()
    fit(folder, 0, callbacks=[addresses], overfit_batches=2)
    assert addresses.seen == [(0, 0), (0, 1)] * 3


def test_monitors_of_a_run_resumed_in_mid_epoch(folder):
    """Monitors work in a run resumed in mid-epoch, which skips the start of an epoch, when monitors start their clocks."""
    fit(folder, 0, max_epochs=1)
    monitors = [ThroughputMonitor(), BatchTraceCallback(folder / "trace.json")]
    fit(folder, 0, callbacks=monitors, ckpt_path=folder / "checkpoints/step=5.ckpt", max_epochs=1)
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events].count("train") == 3


class Rates(Callback):
    """A callback that records the learning rate of each step."""

    def __init__(self):
        self.seen = set()

    def on_before_optimizer_step(self, trainer, module, optimizer):
        self.seen |= {group["lr"] for group in optimizer.param_groups}


def test_another_learning_rate_is_taken(folder):
    """A resumed run uses the new rate, not the one in the checkpoint's optimiser state."""
    rates = Rates()
    fit(folder, 0, max_epochs=1)
    fit(folder, 0, max_epochs=1, lr=0.5, callbacks=[rates], ckpt_path=folder / "checkpoints/step=5.ckpt")
    assert rates.seen == {0.5}


class Line(LightningModule):
    """A user's own LightningModule, which is trained on a plain loader."""

    def __init__(self):
        super().__init__()
        self.map = torch.nn.Linear(7, 1)

    def training_step(self, batch, batch_idx):
        return self.map(batch.x).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def test_a_loader_without_the_data_module(dataset, tmp_path):
    """With a ``SampleLoader`` and no data module, a run resumes at the end of an epoch and within it with the right batches."""
    seen = []
    for stop, checkpoint in ((3, None), (2, None), (3, "epoch=1.ckpt"), (3, "step=11.ckpt")):
        torch.manual_seed(0)
        addresses = Addresses()
        keep = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1, save_on_train_epoch_end=True)
        steps = ModelCheckpoint(tmp_path, filename="{step}", save_top_k=-1, every_n_train_steps=1)
        trainer = Trainer(
            max_epochs=stop, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            callbacks=[keep, steps, addresses], use_distributed_sampler=False,
        )  # fmt: skip
        loader = SampleLoader(dataset, NeighborSampler([3]), batch_size=16, seed=4)
        trainer.fit(Line(), loader, ckpt_path=checkpoint and tmp_path / checkpoint, weights_only=True)
        seen.append(addresses.seen)
    whole, first, from_end, from_middle = seen
    assert whole == [(epoch, step) for epoch in range(3) for step in range(8)]
    assert (first, from_end, from_middle) == (whole[:16], whole[16:], whole[11:])


def test_accumulation_that_changes_is_kept_in_mid_epoch(folder):
    """A changed accumulation factor is kept when a run resumes in mid-epoch.

    Lightning's callback sets the factor at the start of an epoch, which a resumed run skips.
    """
    schedule = {1: 2}
    whole, steps = fit(folder, 0, callbacks=[GradientAccumulationScheduler(dict(schedule))])
    assert steps == 8 + 4 + 4
    _, stopped = fit(folder, 0, callbacks=[GradientAccumulationScheduler(dict(schedule))], max_steps=10)
    resumed, steps = fit(
        folder, 0, callbacks=[GradientAccumulationScheduler(dict(schedule))], ckpt_path=folder / "checkpoints" / "step=10.ckpt"
    )
    assert (stopped, steps) == (10, 16)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


class Worse(Callback):
    """A callback that logs a metric that is best in the first epoch, for EarlyStopping."""

    def on_validation_epoch_end(self, trainer, module):
        module.log("watched", float(trainer.current_epoch))


@pytest.mark.parametrize(("patience", "ends"), [(2, 5), (7, 8)])
def test_a_rule_that_waits_for_min_epochs_ends_a_resumed_run_there(folder, patience, ends):
    """A resumed run ends at ``min_epochs`` if EarlyStopping requested the end before, since it remembers the request.

    EarlyStopping requests the end after epoch 2; ``min_epochs`` delays it.
    """

    def run(patience=2, ckpt_path=None):
        callbacks, every = [Worse(), EarlyStopping("watched", patience=patience)], {"min_epochs": 5, "max_epochs": 20}
        return fit(folder, 0, callbacks=callbacks, ckpt_path=ckpt_path, **every)[1]

    assert run() == 5 * 8
    assert run(patience, folder / "checkpoints" / "step=28.ckpt") == ends * 8


class Fail(Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == (1, 7):
            raise KeyError("in the epoch's last batch")


def test_an_exception_in_the_last_batch_does_not_count_it(folder):
    whole, _ = fit(folder, 0)
    with pytest.raises(KeyError):
        fit(folder, 0, callbacks=[Fail(), OnExceptionCheckpoint(folder)])
    resumed, steps = fit(folder, 0, ckpt_path=folder / "on_exception.ckpt")
    assert steps == 24
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_accumulation_at_an_epochs_end_divides_as_lightning_does(folder):
    """An epoch's last step divides by ``accumulate_grad_batches``, as Lightning does, even if it has fewer batches.

    docs/training.md says how to avoid this.
    """

    class Constant(LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def training_step(self, batch, batch_idx):
            return self.weight

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1.0)

        def on_before_optimizer_step(self, optimizer):
            seen.append(float(self.weight.grad))

    seen = []
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    Trainer(max_epochs=1, accumulate_grad_batches=3, limit_val_batches=0, accelerator="cpu", **options).fit(Constant(), data_of(folder))
    assert seen == pytest.approx([1, 1, 2 / 3])  # 8 batches
