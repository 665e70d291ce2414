"""SIGTERM ends a run after the current batch, or during a slow operation. ``test_fit_faults.py`` tests several ranks."""

import os
import signal
import time

import pytest
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.utilities.exceptions import SIGTERMException

from hoptrain.samplers import NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.callbacks.termination import Termination


class Asked(Callback):
    """A callback that sends SIGTERM to its own process within a batch, or before validation, and then calls ``then``."""

    def __init__(self, hook, then=lambda: None):
        self.hook, self.then = hook, then

    def ask(self):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        self.then()

    def on_before_optimizer_step(self, trainer, *_):
        if self.hook == "step" and trainer.global_step == 3:
            self.ask()

    def on_validation_batch_start(self, *_):
        if self.hook == "validation":
            self.ask()


@pytest.fixture
def fit(dataset, tmp_path, monkeypatch):
    dataset.save(tmp_path / "data")
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Termination, "asked", False)

    def run(*callbacks):
        module = NodeDataModule(str(tmp_path / "data"), NeighborSampler([3]), batch_size=16, num_workers=0, seed=4)
        model = NodeClassifier(module.num_features, module.num_classes, module.num_hops, hidden_channels=8)
        options = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
        callbacks = [Termination(), *callbacks]
        trainer = Trainer(
            max_epochs=2, accelerator="cpu", callbacks=callbacks, num_sanity_val_steps=0, use_distributed_sampler=False, **options
        )
        with pytest.raises(SIGTERMException):
            trainer.fit(model, module)
        assert trainer.interrupted
        return trainer, module

    yield run
    signal.signal(signal.SIGTERM, before)
    os.close(signal.set_wakeup_fd(-1))
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run


def test_the_batch_under_way_is_finished(fit):
    """At SIGTERM the current batch is finished, and a resumed run continues after it."""
    trainer, module = fit(Asked("step"))
    assert trainer.global_step == 4
    assert trainer.fit_loop.epoch_loop.batch_progress.current.completed == 4
    assert module.state_dict().items() >= {"epoch": 0, "step": 4, "ended": False}.items()


@pytest.mark.parametrize("hook", ["step", "validation"])
def test_what_takes_long_is_left(fit, hook):
    end = time.monotonic() + 60
    fit(Asked(hook, then=lambda: time.sleep(120)))
    assert time.monotonic() < end


def test_a_signal_while_a_failure_ends_the_run_ends_the_process(fit):
    """A SIGTERM that arrives while a failure ends the run ends the process at once, as without a handler."""
    termination = Termination()
    termination.setup(Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, barebones=True), None, "fit")
    termination.on_exception(None, None, RuntimeError())
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGTERM
