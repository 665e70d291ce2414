"""Quantised features on the command line: ``hoptrain data convert --features``, ``data info``, and training."""

import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
from cases.mistakes import check_line

from hoptrain.engine import Dataset
from hoptrain.engine.features.take import take_rows
from hoptrain.engine.partition.rows import open_partitioned
from hoptrain.trainers.cli import main


@pytest.fixture
def real(dataset, tmp_path, monkeypatch):
    """Save a data set with float32 features as ``real`` in the working directory, and return it."""
    monkeypatch.chdir(tmp_path)
    dataset.save(tmp_path / "real")
    return dataset


def hoptrain(line):
    return main(shlex.split(line))


@pytest.mark.parametrize("features", ["int8", "int4", "float16", "bfloat16"])
def test_convert_and_info(real, capsys, features):
    assert hoptrain(f"data convert real narrow --features {features}") == 0
    capsys.readouterr()
    assert hoptrain("data info narrow") == 0
    said = capsys.readouterr().out
    assert [line.split(maxsplit=1)[1] for line in said.splitlines() if line.startswith("features")] == [f"7 ({features})"]
    bytes_of = {path.name: path.stat().st_size for path in (Dataset.open("narrow").path).glob("x*.npy")}
    table = {"int8": 7, "int4": 4}.get(features, 14) * real.graph.num_nodes
    assert table + 128 in bytes_of.values()


def test_what_a_memory_would_give_counts_codes(tmp_path, monkeypatch, capsys):
    """``data info --feature-cache`` predicts the number of cached rows from their stored size: an int8 row takes a quarter of a float32 row, so more fit."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    x, edges = random.random((3000, 40), dtype=np.float32), random.integers(0, 3000, (2, 9000))
    data = Dataset(edge_index=edges, x=x, y=np.zeros(3000, int), splits={"train": np.arange(900)})
    data.save("real")
    data.save("narrow", features="int8")
    kept = {}
    for folder in ("real", "narrow"):
        assert hoptrain(f"data info {folder} --feature-cache 140KiB --fanouts 3,2 --batch-size 64") == 0
        kept[folder] = int(re.search(r"hold ([\d,]+) of 3,000 rows", capsys.readouterr().out)[1].replace(",", ""))
    assert 2 * kept["real"] < kept["narrow"] < 3000


def test_parts_have_the_codes(real, capsys):
    real.save("narrow", features="int8")
    assert hoptrain("data partition narrow parts --parts 2 --method range") == 0
    assert hoptrain("data info parts") == 0
    assert len(re.findall(r"partition \d .* MB of features \(int8\)", capsys.readouterr().out)) == 4
    codes = np.concatenate([np.load(f"parts/part-{part}/x_int8.npy") for part in range(2)])
    assert np.array_equal(codes, Dataset.open("narrow").x.codes)
    ids = np.array([5, 0, 5, real.graph.num_nodes - 1])
    assert np.array_equal(take_rows(open_partitioned("parts").x, ids), Dataset.open("narrow").x[ids])


@pytest.mark.parametrize(
    ("line", "value", "words"),
    [
        ("data convert real narrow --features int2", "'int2'", "unknown one of int8 int4 float16 bfloat16"),
        ("data convert narrow again --features int8", "int8", "random: x already converting round twice"),
        ("data convert bytes again --features int8", "uint8", "format table smaller"),
    ],
    ids=["an unknown format", "twice", "bytes"],
)
def test_mistakes_are_one_line(real, capsys, line, value, words):
    real.save("narrow", features="int8")
    replace(real, x=np.ones((real.graph.num_nodes, 2), np.uint8)).save("bytes")
    assert hoptrain(line) == 2
    check_line(capsys.readouterr().err.removesuffix("\n"), value, words)


@pytest.mark.filterwarnings("ignore")
def test_training_and_exact_evaluation_are_those_of_the_expanded_table(real, capsys):
    real.save("narrow", features="int8")
    narrow = Dataset.open("narrow")
    Dataset(name=real.name, graph=real.graph, x=np.asarray(narrow.x), y=real.y, splits=real.splits, num_classes=real.num_classes).save(
        "expanded"
    )
    said = []
    for folder in ("narrow", "expanded"):
        line = (
            f"fit --data.dataset {folder} --data.sampler hoptrain.samplers.NeighborSampler --data.sampler.fanouts [4,3] --data.batch_size 32 "
            "--data.num_workers 0 --trainer.max_epochs 2 --trainer.accelerator cpu --trainer.enable_progress_bar false --seed_everything 3 "
            f"--trainer.default_root_dir runs_{folder}"
        )
        assert hoptrain(line) == 0
        said.append([text for text in capsys.readouterr().out.splitlines() if text.startswith("test accuracy")])
    assert said[0] == said[1] != []
