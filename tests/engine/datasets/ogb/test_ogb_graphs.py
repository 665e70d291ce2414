"""OGB's molecules: files in OGB's layout are read as OGB's own reader does."""

import gzip

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine.datasets.load_graphs import load_small_graphs
from hoptrain.engine.datasets.ogb.graphs import MOLECULES, read_molecules

SIZES, EDGES = np.array([3, 1, 4, 2, 5, 3]), np.array([2, 0, 3, 1, 6, 2])


def write(folder, labels, name="ogbg-molpcba"):
    """Write six graphs in OGB's layout, and return the folder of the data set."""
    place, rng = folder / name.replace("-", "_"), np.random.default_rng(0)
    ends = np.concatenate([rng.integers(0, size, (number, 2)) for size, number in zip(SIZES, EDGES, strict=True)])
    tables = {
        "raw/num-node-list": SIZES[:, None],
        "raw/num-edge-list": EDGES[:, None],
        "raw/node-feat": rng.integers(0, 100, (SIZES.sum(), 9)),
        "raw/edge-feat": rng.integers(0, 4, (EDGES.sum(), 3)),
        "raw/edge": ends,
        "split/scaffold/train": np.array([[5], [0], [2]]),
        "split/scaffold/valid": np.array([[1]]),
        "split/scaffold/test": np.array([[4], [3]]),
    }
    for file, table in tables.items():
        path = place / f"{file}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as stream:
            stream.writelines(",".join(map(str, row)) + "\n" for row in table.tolist())
    with gzip.open(place / "raw/graph-label.csv.gz", "wt") as stream:
        stream.write(labels)
    (place / "RELEASE_v1.txt").touch()
    return place


SEVERAL = "1,0\n,1\n0,0\n1,\n,\n0,1\n"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_as_ogb_reads_them(cache):
    read = pytest.importorskip("ogb.io.read_graph_raw").read_csv_graph_raw
    theirs = read(str(write(cache, SEVERAL) / "raw"), add_inverse_edge=True)
    graphs = load_small_graphs("ogbg-molpcba", root=cache)
    assert len(theirs) == len(graphs.y) == 6
    for number, graph in enumerate(theirs):
        made = graphs.join(np.array([number]))
        assert np.array_equal(made["x"], graph["node_feat"])
        destinations = np.repeat(np.arange(len(made["x"])), np.diff(made["indptr"]))
        ours = sorted(zip(made["indices"].tolist(), destinations.tolist(), made["edge_attr"].tolist(), strict=True))
        assert ours == sorted(zip(*graph["edge_index"].tolist(), graph["edge_feat"].tolist(), strict=True))


def test_labels_and_splits(cache):
    write(cache, SEVERAL)
    graphs = load_small_graphs("ogbg-molpcba", root=cache)
    assert graphs.y.tolist() == [[1, 0], [-1, 1], [0, 0], [1, -1], [-1, -1], [0, 1]]
    assert {name: ids.tolist() for name, ids in graphs.splits.items()} == {"train": [0, 2, 5], "val": [1], "test": [3, 4]}


@pytest.mark.parametrize(
    ("name", "labels", "dtype", "num_classes"),
    [("ogbg-molhiv", "1\n0\n0\n1\n0\n1\n", np.int64, 2), ("ogbg-molesol", "1.5\n0\n-2\n1\n0\n1\n", np.float32, 1)],
)
def test_one_label(tmp_path, name, labels, dtype, num_classes):
    graphs = read_molecules(name, write(tmp_path, labels, name))
    assert (graphs.y.dtype, graphs.y.shape, graphs.num_classes) == (dtype, (6,), num_classes)


def test_where_archives_are(cache, monkeypatch):
    assert MOLECULES["ogbg-molhiv"].url == "https://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/hiv.zip"
    monkeypatch.delenv("HOPTRAIN_ACCEPT_OGB_LICENCE", raising=False)
    with refused("ogbg-mollipo", "before licence MIT accepted", "HOPTRAIN_ACCEPT_OGB_LICENCE=1"):
        load_small_graphs("ogbg-mollipo", root=cache)


def more_features_than_edges(cache):
    with gzip.open(write(cache, SEVERAL) / "raw/edge-feat.csv.gz", "at") as stream:
        stream.write("0,0,0\n")
    load_small_graphs("ogbg-molpcba", root=cache)


def without(folder, file):
    """Write a data set without ``file``, and read it."""
    (write(folder, SEVERAL) / file).unlink()
    load_small_graphs("ogbg-molpcba", root=folder)


MISTAKES = {
    "more features than edges": Mistake(
        more_features_than_edges, value="edge-feat.csv.gz has 15 rows", rule="graphs 14", remedy="remove folder downloaded"
    ),
    "no features of edges": Mistake(
        lambda cache: without(cache, "raw/edge-feat.csv.gz"),
        value="edge-feat.csv.gz",
        rule="missing damaged",
        remedy="remove folder downloaded",
    ),
    "no mark of the release": Mistake(
        lambda cache: without(cache, "RELEASE_v1.txt"),
        value="RELEASE_v1.txt",
        rule="not release 1 ogbg-molpcba",
        remedy="remove folder downloaded",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
