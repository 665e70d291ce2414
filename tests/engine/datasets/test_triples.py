"""Triples from text files, tables and PyG become edges in both directions, and each input error is reported in one line."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from torch_geometric.data import Data

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
        there, back = graph.csc_positions(np.array([number, 4 + number]))
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
    """In files like WN18RR's, entity names are WordNet offsets, kept as text.

    Some entities occur only in validation and test triples.
    """
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
    ) in files.items():  # as Windows editors write them, with a Unicode line separator within a name
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


def text(folder, content):
    """Write a folder with a text file of triples, and read it."""
    (folder / "words").mkdir()
    (folder / "words" / "train.txt").write_bytes(content)
    return load_triples("words", root=folder)


def file(folder, name, **arrays):
    """Write a file of triples, and read it."""
    np.savez(folder / f"{name}.npz", **arrays)
    return load_triples(name, root=folder)


def broken_file(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    load_triples("broken", root=tmp_path)


MISTAKES = {
    "a relation beyond their number": Mistake(
        lambda: triples(num_relations=1), value="relation of train triple 1 is 1", rule="relations 0", remedy="drop num_relations"
    ),
    "a tail beyond the entities": Mistake(
        lambda: triples(num_nodes=4), value="tail of test triple 0 is 4", rule="entities 0 3", remedy="drop num_nodes"
    ),
    "a negative tail": Mistake(
        lambda: triples(splits={"train": np.array([[0, 0, -1]])}),
        value="tail of train triple 0 is -1",
        rule="entities 0",
        remedy="drop num_nodes",
    ),
    "a triple in two splits": Mistake(
        lambda: triples(splits={"train": np.array(TRAIN), "test": np.array(TRAIN[2:3])}),
        value="(0, 1, 1)",
        rule="train test each once",
        remedy="drop (1",
    ),
    "a triple twice": Mistake(
        lambda: triples(splits={"train": np.array(TRAIN + TRAIN)}), value="(3, 0, 0)", rule="twice train each once", remedy="drop (4"
    ),
    "an unknown split": Mistake(
        lambda: triples(splits={"train": np.array(TRAIN), "valid": np.array(VAL)}),
        value="'valid'",
        rule="split train, val, test",
        remedy="rename",
    ),
    "nothing to train on": Mistake(
        lambda: triples(splits={"val": np.array(VAL)}), value="val", rule="no triples train splits", remedy="add splits['train']"
    ),
    "rows of two numbers": Mistake(
        lambda: triples(splits={"train": np.array(TRAIN)[:, :2]}),
        value="train is int64 of shape (4, 2)",
        rule="triples rows three integers",
        remedy="convert",
    ),
    "triples in halves": Mistake(
        lambda: triples(splits={"train": np.array(TRAIN) / 2}),
        value="train is float64",
        rule="triples rows three integers",
        remedy="convert",
    ),
    "a line without tabs": Mistake(
        lambda tmp_path: text(tmp_path, b"a\tis\tb\n\nc is d\n"),
        value="line 3: 1 fields",
        rule="train.txt head relation tabs",
        remedy="correct",
    ),
    "a text that is not UTF-8": Mistake(
        lambda tmp_path: text(tmp_path, b"\xff"), value="train.txt", rule="read triple line", remedy="fetch"
    ),
    "a file without training": Mistake(
        lambda tmp_path: file(tmp_path, "other", test=np.array(TEST)),
        value="no train",
        rule="other.npz valid test shape",
        remedy="another file",
    ),
    "two numbers as num_relations": Mistake(
        lambda tmp_path: file(tmp_path, "sizes", train=np.array(TEST), num_relations=np.array([2, 3])),
        value="int64 of shape (2,)",
        rule="sizes.npz num_relations integer",
        remedy="convert leave",
    ),
    "a file that is torn": Mistake(broken_file, value="broken.npz", rule="read whole .npz pickles", remedy="fetch"),
    "a name without a file": Mistake(
        lambda tmp_path: load_triples("nowhere", root=tmp_path),
        value="nowhere",
        rule="not machine nowhere.npz",
        remedy="folder train.txt root $HOPTRAIN_DATA",
    ),
    "Data without relations": Mistake(
        lambda: Triples.from_pyg(Data(edge_index=torch.zeros(2, 1, dtype=torch.long), num_nodes=1)),
        value="edge_type",
        rule="Data triples edges relation",
        remedy="PyG knowledge graph",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
