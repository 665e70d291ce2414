"""OGB's heterogeneous graphs, in small files: values equal those of ogb's own reader. No network."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused
from ogb.io.read_graph_raw import read_csv_heterograph_raw, read_node_label_hetero, read_nodesplitidx_split_hetero
from ogb_case import _own_cache, csv  # noqa: F401

from hoptrain.engine import HeteroDataset, load_dataset, load_hetero_dataset
from hoptrain.engine.datasets import list_datasets

SIZES = {"author": 4, "field_of_study": 2, "paper": 5}
EDGES = {
    ("paper", "has_topic", "field_of_study"): [[0, 1], [4, 0], [2, 1]],
    ("author", "writes", "paper"): [[3, 0], [0, 0], [1, 4], [3, 2]],
    ("paper", "cites", "paper"): [[4, 3], [1, 0], [4, 3]],
}
X = np.arange(10, dtype=np.float64).reshape(5, 2) / 4
SPLIT = {"train": [3, 0], "valid": [1], "test": [2]}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "ogbn_mag"
    raw, split = folder / "raw", folder / "split" / "time"
    csv(raw / "num-node-dict.csv.gz", [SIZES.keys(), SIZES.values()])
    csv(raw / "triplet-type-list.csv.gz", EDGES)
    for relation, rows in EDGES.items():
        csv(raw / "relations" / "___".join(relation) / "edge.csv.gz", rows)
        csv(raw / "relations" / "___".join(relation) / "num-edge-list.csv.gz", [[len(rows)]])
        csv(raw / "relations" / "___".join(relation) / "edge_reltype.csv.gz", [[7]] * len(rows))
    for table, place in (("has-feat", raw / "nodetype"), ("has-label", raw / "nodetype"), ("has-split", split / "nodetype")):
        csv(place.with_name(f"nodetype-{table}.csv.gz"), [SIZES.keys(), [kind == "paper" for kind in SIZES]])
    csv(raw / "node-feat" / "paper" / "node-feat.csv.gz", X)
    csv(raw / "node-feat" / "paper" / "node_year.csv.gz", [[2010]] * 5)
    csv(raw / "node-label" / "paper" / "node-label.csv.gz", [[0], [2], [1], [0], ["nan"]])
    for part, ids in SPLIT.items():
        csv(split / "paper" / f"{part}.csv.gz", [[node] for node in ids])
    (folder / "RELEASE_v2.txt").touch()
    return folder


def edges_by_id(columns):
    """Return the ends (2, E) in the order of edge ids, which is the order of the file."""
    ends = np.stack([columns.indices, columns.destinations()])
    return ends[:, np.argsort(columns.ids_of(np.arange(columns.num_edges)))]


def test_it_is_what_ogb_reads(folder, tmp_path):
    data = load_hetero_dataset("ogbn-mag", root=tmp_path)
    theirs = read_csv_heterograph_raw(folder / "raw")[0]
    assert data.graph.num_nodes == theirs["num_nodes_dict"]
    assert list(data.graph.relations) == list(theirs["edge_index_dict"])
    for relation, edge_index in theirs["edge_index_dict"].items():
        assert np.array_equal(edges_by_id(data.graph.relations[relation]), edge_index)
    assert list(data.x) == list(theirs["node_feat_dict"]) == ["paper"]
    assert np.array_equal(data.x["paper"], theirs["node_feat_dict"]["paper"])
    assert data.x["paper"].dtype == theirs["node_feat_dict"]["paper"].dtype
    labels = read_node_label_hetero(folder / "raw")["paper"][:, 0]
    assert data.y.tolist() == np.nan_to_num(labels, nan=-1).tolist() == [0, 2, 1, 0, -1]
    for part, ids in zip(("train", "val", "test"), read_nodesplitidx_split_hetero(folder / "split" / "time"), strict=True):
        assert data.split(part).tolist() == sorted(ids["paper"])
    assert (data.name, data.seed_type, data.num_classes) == ("ogbn-mag", "paper", 3)
    assert data.meta["not_carried"] == ["edge_reltype", "node_year"]


def test_it_is_converted_once_and_its_papers_are_a_set_of_their_own(folder, tmp_path):
    assert load_hetero_dataset("ogbn-mag", root=tmp_path).path == load_hetero_dataset("ogbn-mag", root=tmp_path).path
    assert load_dataset("ogbn-mag-papers", root=tmp_path).graph.num_edges == 4
    present = {entry.name: entry.is_present for entry in list_datasets(tmp_path)}
    assert present["ogbn-mag"]
    assert present["ogbn-mag-papers"]
    assert not present["ogbn-arxiv"]
    with refused("ogbn-mag", "heterogeneous not homogeneous", "task: hetero load_hetero_dataset"):
        load_dataset("ogbn-mag", root=tmp_path)


def test_reverse_relations(folder, tmp_path):
    data = load_hetero_dataset("ogbn-mag", root=tmp_path, add_reverse=True)
    assert isinstance(data, HeteroDataset)
    back = data.graph.relations["paper", "rev_writes", "author"]
    assert np.array_equal(edges_by_id(back), np.array(EDGES["author", "writes", "paper"]).T[::-1])


def changed(folder, file, rows):
    """Read the data set with changed rows in one of its files."""
    csv(folder / f"{file}.csv.gz", rows)
    return load_hetero_dataset("ogbn-mag", root=folder.parent)


def relation_without_edges(folder):
    (folder / "raw/relations/author___writes___paper/edge.csv.gz").unlink()
    load_hetero_dataset("ogbn-mag", root=folder.parent)


MISTAKES = {
    "an unknown destination": Mistake(
        lambda folder: changed(folder, "raw/relations/author___writes___paper/edge", [[3, 0], [0, 5]]),
        value="node 5",
        rule="author:writes:paper destination edge 1",
        remedy="drop larger num_nodes",
    ),
    "a relation without a file": Mistake(
        relation_without_edges,
        value="author___writes___paper/edge.csv.gz",
        rule="missing damaged",
        remedy="remove folder downloaded",
    ),
    "a type without a number of nodes": Mistake(
        lambda folder: changed(folder, "raw/num-node-dict", [["author", "paper"], [4, 5]]),
        value="'field_of_study'",
        rule="paper:has_topic:field_of_study paper type num_nodes",
        remedy="add",
    ),
    "fewer features than papers": Mistake(
        lambda folder: changed(folder, "raw/node-feat/paper/node-feat", X[:4]),
        value="x has shape (4, 2)",
        rule="ogbn-mag paper row 5",
        remedy="reshape x",
    ),
    "fewer labels than papers": Mistake(
        lambda folder: changed(folder, "raw/node-label/paper/node-label", [[0]] * 4),
        value="y is int64 of shape (4,)",
        rule="ogbn-mag integers 5 targets",
    ),
    "an unknown paper to test": Mistake(
        lambda folder: changed(folder, "split/time/paper/test", [[9]]),
        value="node 9",
        rule="ogbn-mag split test 4",
        remedy="drop",
    ),
    "no type with splits": Mistake(
        lambda folder: changed(folder, "split/time/nodetype-has-split", [SIZES, [False] * 3]),
        value="nodetype-has-split.csv.gz",
        rule="no type ogbn-mag labels",
        remedy="download",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
