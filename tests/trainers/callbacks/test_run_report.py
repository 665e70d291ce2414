"""What a run prints about its folder and its end."""

import pytest
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import OnExceptionCheckpoint

from hoptrain import NeighborSampler, NodeClassifier, NodeDataModule
from hoptrain.trainers.callbacks.run_folder import make_loggers
from hoptrain.trainers.callbacks.run_report import RunReport
from hoptrain.trainers.resume.checkpoints import BestAndLast


class InterruptedAt(Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.fixture
def fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*callbacks):
        data = NodeDataModule("digits-knn", NeighborSampler([4]), batch_size=512, num_workers=0)
        task = NodeClassifier(data.num_features, data.num_classes, num_layers=1, hidden_channels=8)
        own = [RunReport(), BestAndLast(save_last=True), *callbacks]
        options = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0, "accelerator": "cpu"}
        trainer = Trainer(max_epochs=2, logger=make_loggers("runs"), callbacks=own, use_distributed_sampler=False, **options)
        try:
            trainer.fit(task, data)
        finally:
            own[0].print_files(trainer)

    return run


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
@pytest.mark.parametrize(
    ("epoch", "further", "line"),
    [
        (0, [], "no checkpoint was written yet, so the run cannot be resumed"),
        (1, [], "to resume, run the same command with --ckpt_path last (runs/version_0/checkpoints/last.ckpt)"),
        (0, [OnExceptionCheckpoint("end")], "to resume, run the same command again"),
    ],
)
def test_an_interrupted_run_says_how_to_resume(fit, capsys, epoch, further, line):
    with pytest.raises(SystemExit):
        fit(InterruptedAt(epoch), *further)
    out, err = capsys.readouterr()
    assert f"hoptrain: {line}" in err
    assert out.splitlines()[0] == "run folder: runs/version_0"


@pytest.mark.filterwarnings("ignore")
def test_the_last_line_names_what_was_written(fit, capsys, tmp_path):
    fit()
    _, last = capsys.readouterr().out.splitlines()
    place, _, names = last.partition(": ")
    assert place == "written to runs/version_0"
    assert {"metrics.csv", "checkpoints/last.ckpt"} < set(names.split(", "))
    assert all((tmp_path / "runs" / "version_0" / name).is_file() for name in names.split(", "))
