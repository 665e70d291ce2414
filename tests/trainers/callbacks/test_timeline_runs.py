"""The timelines of whole runs: the output, logs and files of a run, even if it ends early."""

import csv
import json
import signal
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from pytorch_lightning import Callback, Trainer

from hoptrain.samplers import NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.callbacks.timeline import BatchTraceCallback, _DeviceClock
from hoptrain.trainers.cli import main

QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"


@pytest.fixture
def tiny(dataset, tmp_path):
    """Return a folder with the random data set, which has 8 batches of 16."""
    dataset.save(tmp_path / "tiny")
    return str(tmp_path / "tiny")


def spans_of(path):
    """Return the spans of a trace, its row names by number, and all events. Spans are (begin, end) by (epoch, batch), then by stage."""
    events = json.loads(path.read_text())["traceEvents"]
    spans = defaultdict(dict)
    for event in events:
        if event["ph"] == "X":
            spans[event["args"]["epoch"], event["args"]["batch"]][event["name"]] = event["ts"], event["ts"] + event["dur"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    return spans, rows, events


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_run_of_the_command_line(tiny, tmp_path, monkeypatch, capsys, num_workers):
    monkeypatch.chdir(tmp_path)
    options = [f"--data.dataset={tiny}", "--data.batch_size=16", f"--data.num_workers={num_workers}", "--trainer.max_epochs=2"]
    assert main(["fit", "--config", str(QUICKSTART), *options, "--trainer.enable_progress_bar=false", "--timeline", "out.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("bottleneck: ") for line in lines) == 1
    spans, rows, events = spans_of(tmp_path / "out.json")
    _check_order(spans, rows, events)
    assert sorted(spans) == [(epoch, batch) for epoch in range(2) for batch in range(8)]
    samplers = [name for name in rows.values() if name.startswith("sampler")]
    assert len(samplers) == 2 if num_workers else all(name.startswith("sampler (this process") for name in samplers)
    depths = [event["args"]["ready"] for event in events if event["ph"] == "C"]
    assert len(depths) == 16
    assert 0 <= min(depths) <= max(depths) <= 3 * num_workers  # the number of slots of a ring
    _check_logs(tmp_path / "runs" / "version_0", num_workers)


def _check_order(spans, rows, events):
    slack = 0.01  # microseconds, for rounding
    for stages in spans.values():
        assert stages["sample"][1] == pytest.approx(stages["gather"][0], abs=slack)
        assert stages["gather"][1] <= stages["wait"][1], "a batch is made before its wait ends"
        assert stages["wait"][1] <= stages["copy"][0] + slack
        assert stages["copy"][1] == pytest.approx(stages["train"][0], abs=slack)
    for row in rows:
        mine = sorted((event["ts"], event["ts"] + event["dur"]) for event in events if event["ph"] == "X" and event["tid"] == row)
        assert all(begin <= end for begin, end in mine)
        assert all(before[1] <= after[0] + slack for before, after in pairwise(mine)), "spans of a row do not overlap"


def _check_logs(folder, num_workers):
    with open(folder / "metrics.csv") as file:
        table = list(csv.DictReader(file))
    for name in ("time/sample", "time/gather", "time/wait", "time/copy", "time/train", "time/step", "queue_mean"):
        values = [float(row[name]) for row in table if row[name]]
        assert len(values) == 2, "one mean an epoch"
        assert name == "queue_mean" or min(values) > 0
    assert ("queue" in table[0]) == (num_workers > 0)
    assert "timeline" not in (folder / "config.yaml").read_text()


class EndsAt(Callback):
    """A callback that raises in the fourth step."""

    def __init__(self, error):
        self.error = error

    def on_before_optimizer_step(self, trainer, module, optimizer):
        if trainer.global_step == 3:
            raise self.error


@pytest.mark.parametrize(("error", "end"), [(RuntimeError("boom"), RuntimeError), (KeyboardInterrupt(), SystemExit)])
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec")  # Lightning uses a deprecated function of torch
def test_the_file_is_complete_when_training_ends_early(tiny, tmp_path, capsys, error, end):
    data = NodeDataModule(tiny, NeighborSampler([3, 2]), batch_size=16, num_workers=0)
    model = NodeClassifier(data.num_features, data.num_classes, data.num_hops, hidden_channels=8)
    monitor = BatchTraceCallback(tmp_path / "out.json")
    options = {"accelerator": "cpu", "num_sanity_val_steps": 0, "use_distributed_sampler": False}
    options |= {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(max_epochs=2, callbacks=[monitor, EndsAt(error)], **options)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(end):
            trainer.fit(model, data)
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning ignores further Ctrl-C
    assert sorted(spans_of(tmp_path / "out.json")[0]) == [(0, 0), (0, 1), (0, 2)]
    assert ("bottleneck: " in capsys.readouterr().out) == isinstance(error, KeyboardInterrupt)


def test_a_file_that_cannot_be_written_is_refused_before_training(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", str(QUICKSTART), "--timeline", "nowhere/out.json"]) == 2
    assert "hoptrain: the timeline nowhere/out.json cannot be written (No such file or directory)" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_help_names_the_option(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--timeline TIMELINE file to write the times of each batch to, for chrome://tracing or Perfetto." in text


class Event:
    """A stub of a CUDA event that completes at ``at`` seconds of the device's clock."""

    def __init__(self, at, passed=True):
        self.at, self.passed = at, passed

    def query(self):
        return self.passed

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


def test_device_times_lie_on_the_hosts_axis(monkeypatch):
    monkeypatch.setattr("hoptrain.trainers.callbacks.timeline.time.perf_counter", lambda: 1000.0)
    clock = _DeviceClock()
    assert clock.read([(Event(5), 100.0), (Event(6), 100.1), (Event(9, passed=False), 100.2)]) is None
    assert clock.read([(Event(5), 100.0), (Event(6), 100.1), (Event(9), 100.2)]) == [100, 101, 104]
    # Queued while the device was busy with the previous batch: it begins when that one ends.
    assert clock.read([(Event(9), 102.0), (Event(10), 102.1), (Event(12), 102.2)]) == [104, 105, 107]
    # The device's clock has fallen behind: an event cannot complete before it is queued.
    assert clock.read([(Event(13), 110.0), (Event(14), 110.1), (Event(15), 110.2)]) == [110, 111, 112]
    # The device's clock has run ahead: an event seen as complete at 1000 was complete by then.
    assert clock.read([(Event(1013), 950.0), (Event(1014), 950.1), (Event(1016), 950.2)]) == [997, 998, 1000]
