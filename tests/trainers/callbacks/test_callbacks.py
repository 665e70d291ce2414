"""Messages of a run: a NaN loss, the table of modules, overlapping splits, and a checkpoint beyond max_epochs."""

import csv
import errno
import re
import sys
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import ModelSummary
from pytorch_lightning.callbacks import ProgressBar as AnyBar
from rich.console import Console
from rich.progress import Progress

from hoptrain.engine import load_dataset
from hoptrain.engine.storage.filler import Filled
from hoptrain.samplers import NeighborSampler
from hoptrain.samplers.loader.feature_cache import FeatureCache
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.callbacks import callbacks
from hoptrain.trainers.callbacks.callbacks import ProgressBar
from hoptrain.trainers.cli import main

QUICK = ("fit", "--config", "quickstart", "--data.num_workers=0", "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_loss_that_is_no_number(capsys):
    assert main([*QUICK, "--model.lr=1e30", "--trainer.max_epochs=3"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "NaN or infinite" in line]
    assert len(said) == 1
    assert "at step" in said[0]
    assert "lower model.lr" in said[0]


def test_the_parts_of_a_model(capsys):
    assert main([*QUICK, "--trainer.max_epochs=1"]) == 0
    out, err = capsys.readouterr()
    assert "GNN" in out
    assert "19,082 parameters, 0.0763 MB" in out
    assert "FLOPs" not in out
    assert "NaN or infinite" not in err
    assert "model summary" not in err


def test_a_checkpoint_from_further_on(capsys):
    assert main([*QUICK, "--trainer.max_epochs=3"]) == 0
    assert main([*QUICK, "--trainer.max_epochs=1", "--ckpt_path=last"]) == 2
    assert "max_epochs=1): raise --trainer.max_epochs to the checkpoint's epoch or more" in capsys.readouterr().err


def test_splits_that_overlap(capsys):
    data = load_dataset("digits-knn")
    splits = dict(data.splits) | {"test": np.r_[data.splits["test"], data.splits["train"][:7]]}
    replace(data, splits=splits, path=None).save(Path("overlapping"))
    assert main([*QUICK, "--data.dataset=overlapping", "--trainer.max_epochs=1"]) == 0
    assert "digits-knn: 7 nodes are in train and test: metrics include examples that were trained on" in capsys.readouterr().err


def test_rows_from_the_disk_are_logged(capsys, monkeypatch):
    """With features from disk, the bar shows the hit rate instead of the queue, the logs contain it, and the last line names the disk."""
    shown = []
    monkeypatch.setattr(ProgressBar, "get_metrics", lambda *args, whole=ProgressBar.get_metrics: (shown.append(whole(*args)), shown[-1])[1])
    monkeypatch.setattr(FeatureCache, "run", slowly(FeatureCache.run))
    load_dataset("digits-knn").save(Path("saved"))
    options = ("--data.feature_cache=500KiB", "--data.batch_size=8", "--trainer.max_epochs=1", "--trainer.enable_progress_bar=true")
    assert main([*QUICK, "--data.dataset=saved", *options]) == 0
    out, err = capsys.readouterr()
    assert "holds 1,574 of 1,797 rows (88 %), prefetch_steps 256" in " ".join(err.split())
    last = [figures for figures in shown if "hit" in figures][-1]
    assert 50 < int(last["hit"].removesuffix("%")) < 100
    assert "queue" not in last
    (table,) = Path("runs").glob("*/metrics.csv")
    assert "hit_%" in table.read_text()
    assert "bottleneck: the disk (trainer waited" in " ".join(out.split())


def test_the_wait_for_the_start_of_a_run_does_not_count():
    """Throughput excludes the wait for a run's first batch, as the last line of the run does."""
    logged = {}
    module = SimpleNamespace(log_dict=lambda figures, **_: logged.update(figures))
    loader = NodeDataModule("digits-knn", NeighborSampler([4]), batch_size=512, num_workers=0).train_dataloader()
    trainer, monitor = SimpleNamespace(train_dataloader=loader), callbacks.ThroughputMonitor()
    monitor.on_train_start(trainer, module)
    monitor.on_train_epoch_start(trainer, module)
    loader.wait_s += 1000.0
    monitor.on_train_batch_end(trainer, module)
    assert logged == {}
    monitor.on_train_batch_end(trainer, module)
    assert logged["wait_%"] == 0
    monitor.on_train_epoch_start(trainer, module)
    loader.wait_s += 1000.0
    monitor.on_train_batch_end(trainer, module)
    assert logged["wait_%"] > 100


def test_figures_are_logged_no_oftener_than_the_bar_is_drawn(monkeypatch):
    """Values are logged no more often than the bar is drawn, as CPU tensors, so that nothing waits for a GPU.

    The first values of an epoch are logged at once, since Lightning drops older ones.
    """
    logged, now = [], [0.0]
    module = SimpleNamespace(log_dict=lambda figures, **_: logged.append((now[0], figures)))
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    loader = NodeDataModule("digits-knn", NeighborSampler([4]), batch_size=512, num_workers=0).train_dataloader()
    trainer, monitor = SimpleNamespace(train_dataloader=loader), callbacks.ThroughputMonitor()
    monitor.on_train_start(trainer, module)
    for begin in (0.0, 1.0):
        monitor.on_train_epoch_start(trainer, module)
        for step in range(8):
            now[0] = begin + step / 32
            monitor.on_train_batch_end(trainer, module)
    assert [at * 32 for at, _ in logged] == [1, 5, 32, 36]
    assert {figure.device.type for _, figures in logged for figure in figures.values()} == {"cpu"}


def slowly(run):
    """Pretend that most of a run was spent waiting for reads."""

    def slow(self, *args):
        for batch in run(self, *args):
            self.wait_s += 1000.0
            self.filled = self.filled.plus(Filled(read_s=1000.0))
            yield batch

    return slow


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_in_a_notebook_the_bar_is_a_line_of_text_that_changes(monkeypatch):
    shown = []

    class Cell:
        def update(self, line, raw):
            shown[-1].append(line["text/plain"])

    def display(line, raw, display_id):
        shown.append([line["text/plain"]])
        return Cell()

    monkeypatch.setattr(callbacks, "get_console", lambda: SimpleNamespace(is_jupyter=True))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    module = NodeDataModule("digits-knn", NeighborSampler([4]), batch_size=512, num_workers=0)
    task = NodeClassifier(module.num_features, module.num_classes, num_layers=1, hidden_channels=8)
    options = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    own = [callbacks.ProgressBar(), callbacks.ThroughputMonitor()]
    Trainer(max_epochs=2, accelerator="cpu", use_distributed_sampler=False, callbacks=own, **options).fit(task, module)
    (lines,) = shown  # one line, printed again
    assert any(line.startswith("epoch 1/2  batch 3/3  wait: ") for line in lines)
    assert re.fullmatch(r"epoch 2/2  done  .*wait: \d+%.*loss: \S+.*val acc: 0\.\d{3}", lines[-1])


def test_where_the_output_is_no_terminal_each_epoch_has_a_line(capsys):
    assert main([*QUICK[:-1], "--trainer.max_epochs=3"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch ")]
    assert len(lines) == 3
    for number, line in enumerate(lines, 1):
        assert re.match(rf"epoch {number}/3  \d+\.\d s  wait: \d+%  loss: [\d.]+  val acc: 0\.\d{{3}}$", line), line
    with next(Path("runs").glob("*/metrics.csv")).open() as file:
        losses = [float(row["train_loss"]) for row in csv.DictReader(file) if row["train_loss"]]
    assert [float(re.search(r"loss: (\S+)", line)[1]) for line in lines] == [float(f"{loss:.3g}") for loss in losses]


@pytest.mark.parametrize(("width", "times"), [(80, b" -:--:-- left"), (200, b"0:00:00 elapsed, -:--:-- left")])
def test_the_bar_is_ascii_where_the_terminal_is(monkeypatch, width, times):
    """On an ASCII terminal the bar is ASCII, since a UnicodeEncodeError would end the run."""
    shown = TextIOWrapper(BytesIO(), encoding="ascii")
    console = Console(file=shown, width=width, force_terminal=True)
    monkeypatch.setattr(callbacks, "get_console", lambda: console)
    bar = callbacks.ProgressBar()
    with Progress(*bar.configure_columns(None), console=console) as progress:
        progress.update(progress.add_task("Epoch 1", total=10, visible=True), advance=5)
    shown.flush()
    assert b"5/10" in shown.buffer.getvalue()
    assert times in shown.buffer.getvalue()


BAR = ("fit", "--config", "quickstart", "--data.num_workers=0", "--trainer.accelerator=cpu", "--trainer.fast_dev_run=true")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), {"ProgressBar", "Summary"}),
        (("--trainer.callbacks+=RichProgressBar",), {"RichProgressBar", "Summary"}),
        (("--trainer.callbacks+=TQDMProgressBar", "--trainer.callbacks.refresh_rate=5"), {"TQDMProgressBar", "Summary"}),
        (("--trainer.callbacks+=RichModelSummary",), {"ProgressBar", "RichModelSummary"}),
        (("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"), set()),
    ],
)
def test_a_bar_or_a_summary_of_the_user_takes_the_place_of_ours(monkeypatch, options, found):
    trainers = []
    monkeypatch.setattr("hoptrain.trainers.commands.lightning.watch_launch", trainers.append)
    assert main([*BAR, *options]) == 0
    shown = [callback for callback in trainers[0].callbacks if isinstance(callback, AnyBar | ModelSummary)]
    assert {type(callback).__name__ for callback in shown} == found
    assert len(shown) == len(found)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--trainer.callbacks+=RichProgressBar", "--trainer.callbacks+=TQDMProgressBar"), "You added multiple progress bar callbacks"),
        (("--trainer.enable_progress_bar=false", "--trainer.callbacks+=RichProgressBar"), "found `RichProgressBar` in callbacks list."),
    ],
)
def test_two_bars_or_one_that_is_switched_off_are_refused(capsys, options, line):
    assert main([*BAR, *options]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


class Broken(StringIO):
    """A stream that fails at each write, as stderr does on a full disk."""

    def __init__(self, number):
        super().__init__()
        self.number, self.tried = number, 0

    def write(self, text):
        self.tried += 1
        raise OSError(self.number, "nothing is taken")

    def flush(self):
        raise OSError(self.number, "nothing is taken")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE, errno.EIO])
def test_a_run_lives_on_where_stderr_takes_nothing(monkeypatch, capsys, number):
    """A run continues if log lines, warnings and the bar cannot be written to stderr."""
    monkeypatch.setattr(sys, "stderr", stream := Broken(number))
    assert main([*BAR[:-1], "--trainer.limit_train_batches=0", "--trainer.callbacks+=TQDMProgressBar"]) == 0
    assert stream.tried
    assert "test accuracy" in capsys.readouterr().out


def test_a_mistake_is_a_mistake_where_stderr_takes_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Broken(errno.ENOSPC))
    assert main(["fit", "--config", "nowhere.yaml"]) == 2
