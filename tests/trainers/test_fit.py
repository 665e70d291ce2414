"""The command line end to end: training runs, their reproducibility, and the files they write."""

import csv
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
from ranks.command import TWO_RANKS, here, hoptrain, in_ranks
from ranks.on_machines import QUICKSTART, START_S

from hoptrain.engine import Dataset, Graph, load_dataset

pytestmark = [pytest.mark.timeout(2 * START_S), pytest.mark.filterwarnings("ignore")]  # Lightning's warnings about a small run


def quick_fit(*arguments, epochs=2):
    options = ("--trainer.max_epochs", epochs, "--trainer.enable_progress_bar", "false", "--trainer.log_every_n_steps", 1)
    return ("fit", "--config", QUICKSTART, *options, *arguments)


@pytest.fixture
def run_here(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command in this process, in the test's folder."""
    monkeypatch.chdir(tmp_path)
    return partial(here, capsys)


def column(folder, name, version=0):
    """Return a column of the run's metrics.csv without empty cells."""
    with open(folder / "runs" / f"version_{version}" / "metrics.csv") as file:
        return [row[name] for row in csv.DictReader(file) if row.get(name)]


@pytest.fixture(scope="module")
def inline_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inline")
    return folder, hoptrain(*quick_fit("--data.num_workers", 0), cwd=folder)


def test_a_run_prints_its_folder_first_and_what_it_wrote_last(inline_run):
    first, *_, score, last = inline_run[1].splitlines()
    assert first == "run folder: runs/version_0"
    name, value = score.rsplit(" ", 1)
    assert name == "test accuracy"
    assert 0.7 < float(value) <= 1
    place, _, files = last.partition(": ")
    assert place == "written to runs/version_0"
    assert {"config.yaml", "metrics.csv", "checkpoints/last.ckpt"} < set(files.split(", "))
    assert all((inline_run[0] / "runs" / "version_0" / file).is_file() for file in files.split(", "))


def test_a_run_leaves_logs_and_checkpoints(inline_run):
    folder = inline_run[0] / "runs" / "version_0"
    assert (folder / "config.yaml").exists()
    assert (folder / "checkpoints" / "last.ckpt").exists()
    assert bool(list(folder.glob("events.out.tfevents.*"))) == bool(find_spec("tensorboard"))
    assert len(column(inline_run[0], "train_loss_step")) == 18
    for name in ("train_loss", "train_acc", "val_loss", "val_acc"):
        assert len(column(inline_run[0], name)) == 2
    assert all(float(v) > 0 for v in column(inline_run[0], "Medges/s"))
    assert all(0 <= float(v) <= 100 for v in column(inline_run[0], "wait_%"))


@pytest.mark.promise
def test_four_workers_give_a_bit_identical_loss_curve(inline_run, run_here, tmp_path):
    run_here(*quick_fit("--data.num_workers", 4))
    for name in ("train_loss_step", "val_loss", "val_acc"):
        assert column(tmp_path, name) == column(inline_run[0], name)


def test_another_seed_gives_another_curve(inline_run, run_here, tmp_path):
    run_here(*quick_fit("--data.num_workers", 0, "--seed_everything", 2, epochs=1))
    assert column(tmp_path, "train_loss_step") != column(inline_run[0], "train_loss_step")[:9]


@pytest.mark.promise
def test_a_resumed_run_has_the_same_batches(inline_run, run_here, tmp_path):
    """One epoch, and a second one resumed from its checkpoint with two workers, have the losses of two epochs in one run."""
    run_here(*quick_fit("--data.num_workers", 0, epochs=1))
    last = tmp_path / "runs" / "version_0" / "checkpoints" / "last.ckpt"
    run_here(*quick_fit("--data.num_workers", 2, "--ckpt_path", last))
    curve = column(tmp_path, "train_loss_step") + column(tmp_path, "train_loss_step", version=1)
    assert curve == column(inline_run[0], "train_loss_step")


def test_a_run_at_its_end_says_that_nothing_is_left_to_train(run_here):
    said = "nothing left to train: the checkpoint is at the last step (9)"
    assert said not in run_here(*quick_fit("--data.num_workers", 0, epochs=1)).err
    assert said in run_here(*quick_fit("--data.num_workers", 0, "--ckpt_path", "last", epochs=1)).err
    assert said not in run_here(*quick_fit("--data.num_workers", 0, "--ckpt_path", "last", epochs=2)).err


def test_a_run_that_stopped_early_says_only_how_to_make_it_longer(run_here, caplog):
    early = ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "val_loss", "--trainer.callbacks.mode", "max")
    command = quick_fit("--data.num_workers", 0, *early, "--trainer.callbacks.patience", 1, epochs=4)
    run_here(*command)
    said = run_here(*command, "--ckpt_path", "last").err
    assert (
        "EarlyStopping had ended this run, so it does not train further: raise the patience of EarlyStopping to continue" in caplog.messages
    )
    assert "max_epochs" not in said


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        (("--trainer.limit_test_batches", 0), "nothing was tested: trainer.limit_test_batches is 0"),
        (("--trainer.limit_train_batches", 0), "so the initial weights are tested; trainer.limit_train_batches is 0"),
    ],
)
def test_a_limit_of_no_batch_is_obeyed_and_named(run_here, limits, line):
    printed = run_here(*quick_fit("--data.num_workers", 0, "--trainer.limit_val_batches", 0, *limits, epochs=1))
    assert line in printed.err
    assert ("test accuracy" in printed.out) == ("nothing was tested" not in line)


@pytest.mark.promise
def test_two_ranks_share_the_epoch(tmp_path):
    """Both ranks have the same number of steps, and metrics count every node once."""
    printed = hoptrain(*quick_fit(*TWO_RANKS, "--data.num_workers", 1), cwd=tmp_path)
    assert "test accuracy 0." in printed
    assert printed.count("test accuracy") == 1
    assert len(column(tmp_path, "train_loss_step")) == 10  # 1,078 seeds, 2 x 128 a step: five steps an epoch
    # An accuracy over all 359 validation nodes is a multiple of 1/359; over one rank's share it would not be.
    count = len(load_dataset("digits-knn").splits["val"])
    for value in column(tmp_path, "val_acc"):
        assert abs(float(value) * count - round(float(value) * count)) < 1e-3


def checkpoint_of(run):
    return run[0] / "runs" / "version_0" / "checkpoints" / "last.ckpt"


@pytest.mark.parametrize(("command", "score"), [("validate", "val_acc"), ("test", "test_acc")])
def test_a_checkpoint_is_evaluated(inline_run, run_here, command, score):
    assert score in run_here(command, "--ckpt_path", checkpoint_of(inline_run)).out


def test_a_checkpoint_predicts_nodes_of_another_graph_by_the_configuration_beside_it(inline_run, run_here, tmp_path):
    """A checkpoint predicts nodes of another graph, which has more nodes and no labels; config.yaml next to it names all but the data."""
    known = load_dataset("digits-knn")
    graph = Graph.from_edges(np.append(known.graph.indices, 5), np.append(known.graph.destinations(), 1797), 1798)
    Dataset(name="new", graph=graph, x=np.concatenate([known.x, known.x[:1]])).save(tmp_path / "new")
    (tmp_path / "ids.txt").write_text("1797\n3\n")
    options = ("--data.dataset", tmp_path / "new", "--nodes", "ids.txt", "--out", "made.csv")
    assert "made.csv" in run_here("predict", "--ckpt_path", checkpoint_of(inline_run), *options).out
    with open("made.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["1797", "3"]
    assert int(rows[1]["class"]) == known.y[3]
    assert len(rows[0]) == 12


@pytest.mark.usefixtures("forkserver")
def test_predictions_are_the_same_from_one_rank_and_two(inline_run, run_here):
    predict = ("predict", "--config", QUICKSTART, "--ckpt_path", checkpoint_of(inline_run))
    for printed in (run_here(*predict), in_ranks(*predict, *TWO_RANKS)):
        assert printed.out.count("predictions.npy") == 1
    scores = [np.load(f"runs/version_{version}/predictions.npy") for version in range(2)]
    assert scores[0].shape == (1797, 10)
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-4, atol=1e-5)
    assert all(np.array_equal(np.load(f"runs/version_{version}/predictions_ids.npy"), np.arange(1797)) for version in (0, 1))
