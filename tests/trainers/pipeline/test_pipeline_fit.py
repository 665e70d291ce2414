"""``hoptrain fit`` gives the same run with and without a pipeline, and checkpoints are interchangeable."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pytorch_lightning.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from ranks.command import in_ranks
from ranks.forked import Forked
from ranks.on_machines import launched

from hoptrain.trainers import NodeClassifier
from hoptrain.trainers.cli import main

QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"
STRATEGY = "--trainer.strategy=hoptrain.trainers.pipeline.PipelineStrategy"
SMALL = (
    "--trainer.accelerator=cpu",
    "--trainer.enable_model_summary=false",
    "--data.num_workers=0",
    "--trainer.enable_progress_bar=false",
    "--trainer.log_every_n_steps=1",
)
START_S = 200  # a busy machine takes a minute to start two ranks
pytestmark = [pytest.mark.timeout(3 * START_S), pytest.mark.usefixtures("forkserver")]


def column(folder, name):
    """Return a column of all runs' metrics.csv, without empty cells."""
    found = []
    for path in sorted(folder.glob("runs/version_*/metrics.csv")):
        with open(path) as file:
            found += [float(row[name]) for row in csv.DictReader(file) if row.get(name)]
    return found


def pipeline(**options):
    return [STRATEGY, *(f"--trainer.strategy.{name}={value}" for name, value in options.items())]


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_a_run_in_a_pipeline_is_the_run_without_it(tmp_path, monkeypatch, capsys):
    """One epoch with two replicas of two stages and one without a pipeline have the metrics of two epochs on one rank."""
    monkeypatch.setenv(
        "JSONARGPARSE_DEPRECATION_WARNINGS", "off"
    )  # Lightning's load_from_checkpoint uses deprecated functions of jsonargparse
    model = ("--model.dropout=0", "--model.norm=layer", "--data.sampler.init_args.fanouts=[-1,-1]")
    (tmp_path / "mixed").mkdir()
    mixed = (*pipeline(stages=2, data=2, chunks=3), "--trainer.devices=4", "--data.batch_size=64", "--trainer.max_epochs=1")
    run = in_ranks("fit", f"--config={QUICKSTART}", *SMALL, *model, *mixed, number=4, cwd=tmp_path / "mixed")
    assert run.out.count("test accuracy 0.") == 1
    last = tmp_path / "mixed/runs/version_0/checkpoints/last.ckpt"
    loaded, content = NodeClassifier.load_from_checkpoint(last, weights_only=True), torch.load(last, weights_only=True)
    assert list(content["optimizer_states"][0]["state"]) == list(range(len(list(loaded.parameters()))))
    one = ["fit", f"--config={QUICKSTART}", *SMALL, *model, "--trainer.max_epochs=2"]
    for name, more in (("plain", ()), ("mixed", (f"--ckpt_path={last}",))):
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / name)
        assert main([*one, *more]) == 0
    for name in ("train_loss", "train_acc", "val_loss", "val_acc", "test_acc"):
        mine, other = (column(tmp_path / folder, name) for folder in ("mixed", "plain"))
        assert len(mine) == len(other) + (name == "test_acc")
        assert mine[-len(other) :] == pytest.approx(other, rel=5e-3), name
    assert 0 < column(tmp_path / "mixed", "padding_%")[0] < 60


FAILING = """
import os, signal, sys, time
import hoptrain.trainers.models.gnn as gnn
from hoptrain.trainers.cli import main
whole, calls, due = gnn.GNN.layer, [], None
def layer(self, i, *inputs):
    global due
    if self.training and i == 1:
        due = due if calls else time.monotonic() + 3  # others know by then where this rank works
        calls.append(i)
        if len(calls) % 4 == 3 and time.monotonic() > due:  # chunk 2
            {fault}
    return whole(self, i, *inputs)
gnn.GNN.layer = layer
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (
            "raise RuntimeError('this layer fails')",
            "rank 1 failed: StageError: rank 1, stage 1 (layer 1), chunk 2: RuntimeError: this layer fails",
        ),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "rank 1 was killed by SIGKILL, by hand or because memory ran out (last seen at rank 1, stage 1 (layer 1), chunk",
        ),
    ],
)
def test_a_stage_that_fails_ends_all_ranks_with_its_place(tmp_path, fault, cause):
    """Lightning starts the ranks of the first case; those of the second are forked."""
    program, options = FAILING.format(fault=fault), pipeline(stages=2, chunks=4, balance=[1, 1])
    command = ["fit", f"--config={QUICKSTART}", *SMALL, *options, "--trainer.devices=2", "--trainer.max_epochs=500"]
    if fault.startswith("raise"):
        script = tmp_path / "failing.py"
        script.write_text(program)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([sys.executable, str(script), *command], cwd=tmp_path, env=environment, **pipes)]
    else:
        shared = os.environ | launched(2)
        ranks = [Forked(program, *command, cwd=tmp_path, env=shared | {"RANK": rank, "LOCAL_RANK": rank}) for rank in "01"]
    outputs = [rank.communicate(timeout=START_S) for rank in ranks]
    assert all(rank.returncode != 0 for rank in ranks)
    assert f"hoptrain: rank 0 ends, because {cause}" in outputs[0][1], outputs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (pipeline(stages=2, data=2), "2 processes for data 2 x stages 2: start 4 (trainer.devices)"),
        (pipeline(stages=2, chunks=200), "200 chunks of a batch of 54 seeds: every chunk needs a seed; use at most 54 chunks"),
        (pipeline(stages=2, balance=[2, 0]), "balance [2, 0] leaves a stage empty"),
        (pipeline(stages=2, schedule="interleaved-1f1b"), "2 layers for 4 runs of layers"),
        ([*pipeline(stages=2), "--model.norm=batch"], "norms.0 is a BatchNorm1d"),
        ([*pipeline(stages=2), "--trainer.accumulate_grad_batches=2"], "accumulate_grad_batches with a pipeline"),
        ([*pipeline(stages=2), "--trainer.gradient_clip_val=1"], "gradient_clip_val by norm with a pipeline"),
        ([*pipeline(stages=2), "--trainer.precision=bf16-mixed"], "precision bf16-mixed with a pipeline"),
    ],
)
def test_wrong_plans_are_named_in_one_line(tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_SubprocessScriptLauncher, "_call_children_scripts", lambda self: pytest.fail("a rank is started"))
    assert main(["fit", f"--config={QUICKSTART}", *SMALL, "--trainer.devices=2", *options]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hoptrain: ")]
    assert words in line
