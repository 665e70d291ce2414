"""``hoptrain data``: its output, its files, and the arguments that it rejects."""

import argparse

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.engine import Dataset, Graph
from hoptrain.trainers.commands import data as command


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOPTRAIN_DATA", raising=False)


def hoptrain(*arguments):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["data", *map(str, arguments)])
    return args.run(args)


@pytest.fixture
def small(tmp_path):
    """Save a data set in which node 4 is isolated, node 3 has only an outgoing edge, and node 0 has a self loop."""
    graph = Graph.from_edges(np.array([0, 1, 2, 3]), np.array([0, 0, 1, 2]), 5)
    splits = {"test": np.array([2]), "train": np.array([0, 1]), "extra": np.array([4])}
    data = Dataset(name="small", graph=graph, x=np.ones((5, 3), np.float16), y=np.zeros(5, int), num_classes=2, splits=splits)
    data.save(tmp_path / "small")
    return tmp_path / "small"


def test_list_shows_what_is_known_and_what_is_present(tmp_path, capsys):
    np.savez(tmp_path / "karate.npz", indptr=np.array([0, 0]), indices=np.zeros(0, np.int32))
    assert hoptrain("list", "--root", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    states = {line.split()[0]: line.split()[1:6] for line in lines[1 : lines.index("")]}
    assert "karate" not in states
    assert lines[-1].split() == ["karate", "1", "-", "-", "-", "a", "graph"]
    assert states["ogbn-arxiv"][-1] == "absent"
    assert states["synthetic:reddit"] == ["232,965", "114,615,892", "602", "41", "present"]


def test_info_states_what_is_in_a_folder(small, capsys):
    assert hoptrain("info", small) == 0
    output = capsys.readouterr().out
    facts = dict(line.split("  ", 1) for line in output.splitlines() if "  " in line)
    facts = {key: value.strip() for key, value in facts.items()}
    assert facts["nodes"] == "5"
    assert facts["edges"] == "4"
    assert facts["in-degree"] == "min 0, mean 0.80, max 2"
    assert facts["isolated"] == "1"
    assert facts["self loops"] == "1"
    assert facts["sorted"] == "yes"
    assert facts["array x"] == "float16 (5, 3), 0.00 MB"
    assert [key for key in facts if key.startswith("split")] == ["split train", "split test", "split extra"]
    assert output.endswith("checksums ok\n")


def test_info_verifies_folders_above_the_limit_too(small, monkeypatch):
    monkeypatch.setattr("hoptrain.engine.store.VERIFY_LIMIT", 0)
    content = bytearray((small / "x.npy").read_bytes())
    content[-1] ^= 1
    (small / "x.npy").write_bytes(content)
    Dataset.open(small)
    with refused("x.npy", "checksum altered damaged", "remove convert"):
        hoptrain("info", small)


def test_info_takes_root_and_scale(small, capsys):
    assert hoptrain("info", "small", "--root", small.parent) == 0
    assert hoptrain("info", "synthetic:arxiv", "--scale", "0.01") == 0
    assert "1,693" in capsys.readouterr().out


def test_convert_writes_a_folder_that_opens(tmp_path, capsys):
    np.savez(tmp_path / "ring.npz", indptr=np.arange(4), indices=np.array([1, 2, 0], np.int32))
    assert hoptrain("convert", tmp_path / "ring.npz", tmp_path / "ring") == 0
    assert "3 nodes, 3 edges written" in capsys.readouterr().out
    assert Dataset.open(tmp_path / "ring").graph.indices.tolist() == [1, 2, 0]


def test_convert_takes_a_name_and_a_scale(tmp_path):
    hoptrain("convert", "synthetic:arxiv", tmp_path / "arxiv", "--scale", "0.01")
    data = Dataset.open(tmp_path / "arxiv")
    assert (data.name, data.graph.num_nodes, data.meta["scale"]) == ("synthetic:arxiv", 1693, 0.01)


def test_convert_does_not_write_over_anything(small):
    before = {file.name: file.read_bytes() for file in small.iterdir()}
    with refused("small exists", "folders written over", "remove another"):
        hoptrain("convert", "digits-knn", small)
    assert {file.name: file.read_bytes() for file in small.iterdir()} == before


def test_mistakes_reach_the_caller():
    with refused("'digits'", "no data set file folder", "digits-knn"):
        hoptrain("info", "digits")


def test_partition_writes_parts_and_info_shows_them(small, tmp_path, capsys):
    with refused("parts is 0", "graph 5 nodes 1", "give"):
        hoptrain("partition", small, tmp_path / "parts", "--parts", 0)
    assert capsys.readouterr().out == ""
    assert hoptrain("partition", small, tmp_path / "parts", "--parts", 2, "--method", "range") == 0
    written = capsys.readouterr().out.splitlines()
    assert hoptrain("info", tmp_path / "parts") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.pop() == "checksums ok"
    assert written[-len(lines) :] == lines
    assert lines[2].split(maxsplit=1) == ["partitions", "2, by range"]
    assert lines[3].startswith("edge cut")
    assert "of 4 edges are between two partitions" in lines[3]
    assert [line.split(maxsplit=2)[:2] for line in lines[5:]] == [["partition", "0"], ["partition", "1"]]
