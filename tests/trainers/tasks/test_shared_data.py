"""No sampler process remains, however ``fit`` ends, in a process that continues."""

from pathlib import Path

import pytest
from pytorch_lightning import Callback, Trainer

from hoptrain.samplers import NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.tasks.shared_data import NodeBatch


class Model(NodeClassifier):
    """A model that fails at a given point."""

    failing = ""

    def training_step(self, batch: object, batch_idx: int):
        if batch_idx == 2 and self.failing == "training step":
            raise RuntimeError("failed")
        if batch_idx == 2 and self.failing == "interrupt":
            raise KeyboardInterrupt
        return super().training_step(batch, batch_idx)

    def evaluate(self, stage: str, batch: NodeBatch) -> None:
        if self.failing == "validation":
            raise RuntimeError("failed")
        super().evaluate(stage, batch)


class Data(NodeDataModule):
    """A data module that can fail in ``setup`` of the second ``fit``, while workers of the first ``fit`` run."""

    failing = ""

    def setup(self, stage: str) -> None:
        if self.failing == "setup":
            self.pids = pids_of(self)
            raise RuntimeError("failed")


def pids_of(module):
    return module.loader.pids()


class Watch(Callback):
    """A callback that records the sampler processes."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        trainer.datamodule.pids = pids_of(trainer.datamodule)


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
@pytest.mark.parametrize("failing", ["", "training step", "interrupt", "validation", "setup"])
def test_no_worker_is_left_by_a_fit(dataset, tmp_path, failing):
    dataset.save(tmp_path / "data")
    module = Data(str(tmp_path / "data"), NeighborSampler([3]), batch_size=16, num_workers=1, seed=4)
    model = Model(module.num_features, module.num_classes, module.num_hops, hidden_channels=8)
    module.failing, model.failing = failing, failing
    options = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[Watch()], num_sanity_val_steps=0, use_distributed_sampler=False, **options
    )
    if failing == "setup":
        module.loader = module.make_loader(0, 1, 0)
        next(iter(module.loader))
    error = {"": None, "interrupt": SystemExit}.get(failing, RuntimeError)
    if error is None:
        trainer.fit(model, module)
    else:
        with pytest.raises(error):
            trainer.fit(model, module)
    assert module.loader.pids() == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in module.pids)
