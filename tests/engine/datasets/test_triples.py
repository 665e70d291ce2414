"""Triples: read from both kinds of files and from PyG, as edges in both directions, and every mistake in one line."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from hoptrain.engine import InputError
from hoptrain.engine.datasets.triples import Triples, load_triples

REAL = Path(os.environ.get("HOPTRAIN_DATA") or Path(__file__).parents[4] / "shared" / "data") / "kg_fb15k237.npz"
TRAIN, VAL, TEST = [[0, 0, 1], [1, 1, 2], [0, 1, 1], [3, 0, 0]], [[2, 0, 0]], [[0, 0, 4]]


def triples(**changes):
    return Triples(**{"splits": {"train": np.array(TRAIN), "val": np.array(VAL, np.int32), "test": torch.tensor(TEST)}} | changes)


def same(one, other):
    return one.splits.keys() == other.splits.keys() and all(np.array_equal(one.splits[name], other.splits[name]) for name in one.splits)


def test_the_graph_has_each_triple_in_both_directions():
    data = triples()
    graph = data.graph()
    found = zip(graph.indices.tolist(), data.relations_of_edges(graph).tolist(), graph.destinations().tolist(), strict=True)
    assert sorted(found) == sorted([(h, r, t) for h, r, t in TRAIN] + [(t, 2 + r, h) for h, r, t in TRAIN])
    for number, (head, _, tail) in enumerate(TRAIN):
        there, back = graph.places_of(np.array([number, 4 + number]))
        assert (graph.indices[there], graph.indices[back]) == (head, tail)
    assert data.queries("val").tolist() == [[2, 0, 0], [0, 2, 2]]
    assert (data.num_nodes, data.num_relations, data.unseen().tolist()) == (5, 2, [4])


def test_both_kinds_of_files(tmp_path):
    data = triples()
    np.savez(tmp_path / "small.npz", train=data.splits["train"].astype(np.int32), valid=data.splits["val"], test=data.splits["test"])
    assert same(load_triples("small", root=tmp_path), data)
    assert same(load_triples(str(tmp_path / "small.npz")), data)
    (tmp_path / "words").mkdir()
    names, verbs = ["a", "b b", "c", "d", "é"], ["is", "made of"]
    for file, split in (("train", "train"), ("valid", "val"), ("test", "test")):
        lines = [f"{names[h]}\t{verbs[r]}\t{names[t]}\n" for h, r, t in data.splits[split]]
        (tmp_path / "words" / f"{file}.txt").write_text("".join(lines), encoding="utf-8")
    for read in (load_triples("words", root=tmp_path), load_triples(str(tmp_path / "words"))):
        assert same(read, data)
        assert (read.num_nodes, read.num_relations, read.name) == (5, 2, "words")
    (tmp_path / "words" / "test.txt").unlink()
    assert load_triples("words", root=tmp_path).splits.keys() == {"train", "val"}


def test_files_as_wn18rr_has_them(tmp_path):
    """Names are places in WordNet's files, kept as texts, and some entities are in triples of validation and test alone."""
    files = {
        "train": "00260881\t_hypernym\t00260622\n01332730\t_derivationally_related_form\t03122748\n06066555\t_hypernym\t00260881\n",
        "valid": "02174461\t_hypernym\t02176268\n",
        "test": "00260622\t_derivationally_related_form\t06066555\n",
    }
    (tmp_path / "WN18RR").mkdir()
    for name, text in files.items():
        (tmp_path / "WN18RR" / f"{name}.txt").write_bytes(text.encode())
    data = load_triples(str(tmp_path / "WN18RR"))
    assert (data.num_nodes, data.num_relations) == (7, 2)
    assert data.splits["train"].tolist() == [[1, 1, 0], [2, 0, 5], [6, 1, 1]]
    assert (data.splits["val"].tolist(), data.splits["test"].tolist()) == ([[3, 1, 4]], [[0, 0, 6]])
    assert data.unseen().tolist() == [3, 4]
    assert data.unseen("relations").tolist() == []
    for (
        name,
        text,
    ) in files.items():  # as editors on Windows write them, with a name that holds a mark by which str.splitlines would part it
        (tmp_path / "WN18RR" / f"{name}.txt").write_bytes(text.replace("\n", "\r\n").replace("0026", "\x8526").encode("utf-8-sig"))
    again = load_triples(str(tmp_path / "WN18RR"))
    assert (again.num_nodes, len(again.splits["train"]), again.unseen().tolist()) == (7, 3, [1, 2])


def test_pygs_data_in_parts_and_with_masks():
    def data(rows, **masks):
        head, relation, tail = torch.tensor(rows).T
        return Data(edge_index=torch.stack([head, tail]), edge_type=relation, num_nodes=5, **masks)

    assert same(Triples.from_pyg(data(TRAIN), data(VAL), data(TEST)), triples())
    masks = {f"{split}_mask": torch.tensor([place in own for place in range(6)]) for split, own in SHARES.items()}
    assert same(Triples.from_pyg(data(TRAIN + VAL + TEST, **masks)), triples())
    assert same(Triples.from_pyg(data(TRAIN + VAL + TEST)), triples(splits={"train": np.array(TRAIN + VAL + TEST)}))


SHARES = {"train": range(4), "val": [4], "test": [5]}


def test_fb15k_237_as_published():
    if not REAL.is_file():
        pytest.skip(f"{REAL} is not there: set $HOPTRAIN_DATA to a folder that has it")
    data = load_triples("kg_fb15k237", root=REAL.parent)
    assert (data.num_nodes, data.num_relations) == (14541, 237)
    assert [len(data.splits[split]) for split in ("train", "val", "test")] == [272115, 17535, 20466]
    assert len(data.unseen()) == 36


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"num_relations": 1}, r"triples: the relation of train triple 1 is 1: relations are 0 to 0; .*state num_relations"),
        ({"num_nodes": 4}, "triples: the tail of test triple 0 is 4: entities are 0 to 3; .*state num_nodes"),
        ({"splits": {"train": np.array([[0, 0, -1]])}}, "triples: the tail of train triple 0 is -1"),
        (
            {"splits": {"train": np.array(TRAIN), "test": np.array(TRAIN[2:3])}},
            r"triple \(0, 1, 1\) stands in train and in test: .*\(1 in all\)",
        ),
        ({"splits": {"train": np.array(TRAIN + TRAIN)}}, r"triple \(3, 0, 0\) stands twice in train: .*\(4 in all\)"),
        ({"splits": {"train": np.array(TRAIN), "valid": np.array(VAL)}}, "a split 'valid': triples are split into train, val, test"),
        ({"splits": {"val": np.array(VAL)}}, "triples has no triples to train on: its splits are val"),
        ({"splits": {"train": np.array(TRAIN)[:, :2]}}, r"train is int64 of shape \(4, 2\): triples are rows of three integers"),
        ({"splits": {"train": np.array(TRAIN) / 2}}, "train is float64 of shape"),
    ],
)
def test_mistakes(changes, line):
    with pytest.raises(InputError, match=line) as caught:
        triples(**changes)
    assert "\n" not in str(caught.value)


def test_mistakes_of_files(tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "train.txt").write_text("a\tis\tb\n\nc is d\n")
    with pytest.raises(InputError, match=r"train\.txt, line 3: 1 fields: a line is a head, a relation and a tail, parted by tabs"):
        load_triples("words", root=tmp_path)
    (tmp_path / "words" / "train.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"train\.txt cannot be read"):
        load_triples("words", root=tmp_path)
    np.savez(tmp_path / "other.npz", test=np.array(TEST))
    with pytest.raises(InputError, match=r"other\.npz has no train"):
        load_triples("other", root=tmp_path)
    np.savez(tmp_path / "sizes.npz", train=np.array(TEST), num_relations=np.array([2, 3]))
    with pytest.raises(InputError, match=r"sizes\.npz: num_relations is int64 of shape \(2,\): it is an integer"):
        load_triples("sizes", root=tmp_path)
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"broken\.npz cannot be read"):
        load_triples("broken", root=tmp_path)
    with pytest.raises(InputError, match=r"nowhere is not on this machine: .*a folder nowhere with train\.txt"):
        load_triples("nowhere", root=tmp_path)
    with pytest.raises(InputError, match="Data has no edge_type"):
        Triples.from_pyg(Data(edge_index=torch.zeros(2, 1, dtype=torch.long), num_nodes=1))
