"""A run that is stopped in the middle of an epoch and resumed ends with the weights of one that was not, to the bit."""

import pytest
import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint

from hoptrain.samplers import NeighborSampler
from hoptrain.trainers import GraphDataModule, NodeClassifier


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


def fit(folder, num_workers, *, callbacks=(), ckpt_path=None):
    torch.manual_seed(0)
    module = GraphDataModule(str(folder / "data"), NeighborSampler([3, 3]), batch_size=16, num_workers=num_workers, seed=4)
    model = NodeClassifier(module.num_features, module.num_classes, module.num_hops, arch="sage", hidden_channels=8)
    checkpoints = ModelCheckpoint(folder / "checkpoints", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    trainer = Trainer(
        max_epochs=3,
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


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
@pytest.mark.parametrize(("stop", "workers"), [(1, 0), (11, 2), (15, 0), (16, 1)])
def test_killed_at_any_step_and_resumed(folder, stop, workers):
    """8 steps an epoch: in the first, in the middle of the second, before its last, at its end; another number of workers afterwards."""
    whole, steps = fit(folder, 0)
    assert steps == 24
    for file in (folder / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(KeyError):
        fit(folder, 1 if workers == 0 else 0, callbacks=[Stop(stop + 1)])
    resumed, steps = fit(folder, workers, ckpt_path=folder / "checkpoints" / f"step={stop}.ckpt")
    assert steps == 24
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
