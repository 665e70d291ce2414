"""A StopIteration that a hook raises does not count as the end of the data."""

import pytest
from cases.mistakes import refused
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import nn, ones, optim

from hoptrain.trainers.callbacks.rank_watch import RankWatch


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.automatic_optimization = True

    def training_step(self, batch, index):
        return self.layer(ones(1, 1)).sum()

    def validation_step(self, batch, index):
        pass

    test_step = predict_step = validation_step

    def configure_optimizers(self):
        return optim.SGD(self.parameters(), 0.1)


class Iterating(Model):
    """A module that takes its batches from the iterator itself, so that its training step ends with StopIteration."""

    def training_step(self, dataloader_iter):
        return super().training_step(*next(dataloader_iter)[:2])


def trainer_with(*callbacks):
    options = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(max_epochs=2, accelerator="cpu", devices=1, num_sanity_val_steps=0, callbacks=[RankWatch(), *callbacks], **options)


def stop(*_, **__):
    raise StopIteration


HOOKS = """setup on_fit_start on_train_start on_train_epoch_start on_train_batch_start on_before_backward on_after_backward on_before_optimizer_step
on_before_zero_grad on_train_batch_end on_train_epoch_end on_validation_start on_validation_epoch_start on_validation_batch_start on_validation_batch_end
on_validation_epoch_end on_validation_end on_train_end on_fit_end"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("hook", HOOKS.split())
def test_a_hook_that_raises_stop_iteration_ends_the_run(hook):
    callback = type("Wrong", (Callback,), {hook: stop})()
    with refused(f"Wrong.{hook}", "StopIteration Lightning end data", error=RuntimeError) as caught:
        trainer_with(callback).fit(Model(), [0] * 2, [0] * 2)
    assert caught.traceback[-1].name == "stop"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("method", "run"),
    [
        ("training_step", "fit"),
        ("validation_step", "fit"),
        ("test_step", "test"),
        ("predict_step", "predict"),
        ("transfer_batch_to_device", "fit"),
    ],
)
def test_a_module_that_raises_stop_iteration_ends_the_run(method, run):
    module = type("Wrong", (Model,), {method: stop})()
    with refused(f".{method}", "StopIteration Lightning end data", error=RuntimeError):
        getattr(trainer_with(), run)(module, [0] * 2, **({"val_dataloaders": [0] * 2} if run == "fit" else {}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", [Model, Iterating])
def test_the_end_of_the_data_is_none_of_it(model):
    trainer = trainer_with()
    trainer.fit(model(), [0] * 3)
    assert (trainer.global_step, trainer.current_epoch) == (6, 2)
