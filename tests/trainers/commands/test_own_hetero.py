"""Tables with several node types, from a folder to a prediction, with the commands that the output recommends."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from hoptrain.engine import HeteroDataset
from hoptrain.samplers import HeteroSampler
from hoptrain.trainers.cli import main
from hoptrain.trainers.tasks.nodes.data import HeteroDataModule

QUIET = ["--trainer.max_epochs", "2", "--trainer.enable_progress_bar", "false", "--data.num_workers", "0"]


def rows(path, header, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *lines]) + "\n")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Write tables of users with labels, and of items that they buy; no relation leads to users, and items have no features."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    rows(Path("shop/nodes/user.csv"), "id,age,label", [f"u{i},{20 + i},{('red', 'blue')[i % 2]}" for i in range(30)])
    rows(Path("shop/nodes/item.csv"), "id", [f"i{i}" for i in range(6)])
    rows(Path("shop/edges/user__buys__item.csv"), "src,dst", [f"u{i},i{i % 6}" for i in range(30)])


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
def test_the_printed_command_trains(shop, capsys):
    assert main(["data", "convert", "shop", "folder"]) == 0
    command = re.search(r"^train: hoptrain (.+)", capsys.readouterr().out, re.MULTILINE)[1]
    assert command == "fit --config own_hetero --data.dataset folder --data.splits random --model.embeddings true"
    assert main([*shlex.split(command), *QUIET]) == 0
    assert "test accuracy" in capsys.readouterr().out
    checkpoint = next(Path("runs").rglob("*.ckpt"))
    assert main(["predict", "--ckpt_path", str(checkpoint), "--out", "made.csv", "--trainer.enable_progress_bar", "false"]) == 0
    header, first, *_ = Path("made.csv").read_text().splitlines()
    assert header == "id,class,logit_0,logit_1"
    assert re.match(r"u0,(red|blue),", first)


def test_without_splits_the_error_names_both_ways(shop, capsys):
    assert main(["fit", "--config", "own_hetero", "--data.dataset", "shop", "--model.embeddings", "true"]) == 2
    assert re.search(r"no split 'train'.*with_random_splits\(\) in Python or by --data.splits random", capsys.readouterr().err)


def test_random_splits_are_those_of_the_data_set(shop):
    main(["data", "convert", "shop", "folder"])
    module = HeteroDataModule("folder", HeteroSampler([2]), add_reverse=True, splits="random")
    same = HeteroDataset.open("folder").with_random_splits().splits
    assert {name: ids.tolist() for name, ids in module.data.splits.items()} == {name: ids.tolist() for name, ids in same.items()}
    assert [len(same[name]) for name in ("train", "val", "test")] == [18, 6, 6]


def test_splits_of_that_name_come_first(shop):
    main(["data", "convert", "shop", "folder"])
    own = {f"{name}_random": np.array([number]) for number, name in enumerate(("train", "val", "test"))}
    data = HeteroDataset.open("folder")
    stored = HeteroDataset(graph=data.graph.with_reverse(), seed_type="user", y=data.y, splits=own)
    assert HeteroDataModule(stored, HeteroSampler([2]), splits="random").data.splits["test"].tolist() == [2]
