"""NAME.npz files: real files have their published sizes, and generated files test every rule."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of

from hoptrain.engine import Graph
from hoptrain.engine.datasets import load_dataset
from hoptrain.engine.datasets.listing import list_datasets
from hoptrain.engine.datasets.load import REGISTRY
from hoptrain.engine.datasets.npz import convert_npz, load_npz

REAL = Path(os.environ.get("HOPTRAIN_DATA") or Path(__file__).parents[4] / "shared" / "data")

COUNTS = {
    "amazon_computers": (13_752, 491_722, 767, 10),
    "coauthor_physics": (34_493, 495_924, 8_415, 5),
    "debian_deps": (522_213, 7_201_792, 1_024, 58),
    "flickr_attr": (7_575, 479_476, 12_047, 9),
    "karate": (34, 156, 34, 2),
    "ogbl_ddi_train_graph": (4_267, 2_135_822, 0, 0),
    "rec_gowalla": (70_839, 1_620_256, 0, 0),
    "tu_enzymes": (19_580, 74_564, 18, 0),
    "tu_mutag": (3_371, 7_442, 7, 0),
    "tu_proteins": (43_471, 162_088, 3, 0),
    "wordnet31": (117_791, 368_166, 2_048, 45),
    **{name: REGISTRY[name].counts for name in ("cora", "citeseer", "pubmed")},
}
"""Published numbers of nodes, edges, features and classes."""
SPLITS = {
    "cora": (140, 500, 1000),
    "citeseer": (120, 500, 1000),
    "pubmed": (60, 500, 1000),
    "wordnet31": (70_674, 23_558, 23_559),
    "debian_deps": (122_089, 13_604, 10_516),
    "karate": (20, 7, 7),
    "amazon_computers": (8_251, 2_750, 2_751),
    "coauthor_physics": (20_695, 6_899, 6_899),
    "flickr_attr": (4_545, 1_515, 1_515),
}
DTYPES = {"pubmed": np.float32, "tu_enzymes": np.float32}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    yield
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)  # pytest keeps what the last runs wrote, and this is a gigabyte


def real(name):
    path = REAL / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not there: set $HOPTRAIN_DATA to a folder that has it")
    return path


def test_the_list_reads_the_counts_of_real_files():
    found = {entry.name: entry.counts for entry in list_datasets(real("cora").parent) if entry.is_found}
    small = {"tu_enzymes": 6, "tu_mutag": 2, "tu_proteins": 2}  # these files have classes of graphs, not of nodes
    assert {name: found[name] for name in COUNTS} == {name: (*sizes[:3], small.get(name, sizes[3])) for name, sizes in COUNTS.items()}
    assert found["hetero_acm"] is None


@pytest.mark.parametrize("name", COUNTS)
def test_real_files_have_their_published_counts(name):
    real(name)
    data = load_dataset(name, root=REAL)
    graph = data.graph
    num_edges = graph.num_edges - len(data.edge_splits.get("test", ()))  # held-out edges are not in the file's graph
    assert (graph.num_nodes, num_edges, data.num_features, data.num_classes) == COUNTS[name]
    assert tuple(len(data.split(split)) for split in ("train", "val", "test") if data.splits) == SPLITS.get(name, ())
    assert graph.is_sorted
    if data.x is not None:
        assert data.x.dtype == DTYPES.get(name, np.uint8)
    if data.y is not None:
        assert (np.bincount(data.y[data.y >= 0], minlength=data.num_classes) > 0).all()


def test_real_features_are_the_files_own():
    path = real("cora")
    data = load_npz(path)
    with np.load(path) as file:
        row = slice(*file["x_indptr"][41:43])
        assert np.flatnonzero(data.x[41]).tolist() == sorted(file["x_indices"][row].tolist())
        assert np.array_equal(data.y, file["y"])
        assert np.array_equal(data.graph.indices, file["indices"])
        assert np.array_equal(data.split("val"), np.flatnonzero(file["val_mask"]))


def test_a_node_without_a_label_is_in_no_split():
    data = load_npz(real("citeseer"))
    assert (data.y == -1).sum() == 15
    assert all((data.y[ids] >= 0).all() for ids in data.splits.values())


def ring(size=10, **arrays):
    """Return the arrays of a directed ring."""
    indices = np.roll(np.arange(size, dtype=np.int32), 1)
    return {"indptr": np.arange(size + 1), "indices": indices} | arrays


def save(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


def test_features_take_the_narrowest_exact_dtype(tmp_path):
    whole, halves = np.arange(20.0).reshape(10, 2), np.full((10, 2), 0.5)
    for x, dtype in [(whole, np.uint8), (halves, np.float32), (whole + 250, np.float32), (-whole, np.float32)]:
        data = convert_npz(save(tmp_path / "ring.npz", **ring(x=x)))
        assert data.x.dtype == dtype
        assert np.array_equal(data.x, x)


def test_sparse_features_become_dense(tmp_path):
    parts = {"x_indptr": np.array([0, 2, *[3] * 9]), "x_indices": np.array([0, 2, 1]), "x_data": np.array([1, 7, 3.0])}
    data = convert_npz(save(tmp_path / "ring.npz", **ring(x_shape=np.array([10, 3]), **parts)))
    assert data.x[:3].tolist() == [[1, 0, 7], [0, 3, 0], [0, 0, 0]]
    assert data.x.dtype == np.uint8


def test_what_stands_in_for_features(tmp_path):
    kinds = np.array([0, 2] * 5)
    data = convert_npz(save(tmp_path / "kinds.npz", **ring(node_label=kinds)))
    assert data.x.tolist() == [[1, 0, 0], [0, 0, 1]] * 5
    assert data.y is None
    data = convert_npz(save(tmp_path / "plain.npz", **ring(y=np.arange(10) % 2)))
    assert np.array_equal(data.x, np.eye(10))
    assert data.meta["features"].startswith("identity")


def test_labels_without_masks_are_split_at_random_and_that_is_stated(tmp_path):
    y = np.array([-1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    data = convert_npz(save(tmp_path / "ring.npz", **ring(11, y=y, train_mask=y == 0)))
    assert [len(data.split(split)) for split in ("train", "val", "test")] == [6, 2, 2]
    assert sorted(np.concatenate(list(data.splits.values()))) == list(range(1, 11))
    assert data.meta["split"].startswith("random 60/20/20")


def test_splits_of_the_file_s_own_are_kept(tmp_path):
    """Splits in a file, as ids or as masks, are kept as the splits of the data set."""
    mask = np.arange(10) >= 8
    arrays = ring(y=np.arange(10) % 2, split_train=np.array([1, 5, 3]), split_test=mask)
    data = convert_npz(save(tmp_path / "own.npz", **arrays))
    assert {name: ids.tolist() for name, ids in data.splits.items()} == {"train": [1, 5, 3], "test": [8, 9]}
    assert data.meta["split"] == "the file's"
    assert "not_carried" not in data.meta


def test_several_labels_per_node(tmp_path):
    y = np.eye(10, 4, dtype=np.uint8)
    data = convert_npz(save(tmp_path / "ring.npz", **ring(y=y)))
    assert data.is_multilabel
    assert data.num_classes == 4
    assert np.array_equal(data.y, y)


def test_arrays_that_are_not_carried_are_named(tmp_path):
    data = convert_npz(save(tmp_path / "ring.npz", **ring(edge_weight=np.ones(10), meta=np.array('{"licence": "CC0"}'))))
    assert data.meta["not_carried"] == ["edge_weight"]
    assert data.meta["licence"] == "CC0"


def test_a_changed_file_is_converted_again_an_equal_one_is_not(tmp_path):
    first = load_npz(save(tmp_path / "ring.npz", **ring(y=np.zeros(10, int))))
    os.utime(tmp_path / "ring.npz", (0, 0))
    assert load_npz(tmp_path / "ring.npz").path == first.path
    changed = load_npz(save(tmp_path / "ring.npz", **ring(y=np.ones(10, int))))
    assert changed.path != first.path
    assert changed.y.tolist() == [1] * 10


def recommendations(path, **changes):
    """Return two users and three items with edges in both directions."""
    graph = Graph.from_edges([0, 0, 1, 2, 3, 4], [2, 3, 4, 0, 0, 1], 5)
    arrays = {"indptr": graph.indptr, "indices": graph.indices, "test_pairs": np.array([[1, 1], [0, 2]]), "meta": json.dumps({"users": 2})}
    np.savez(path, **arrays | changes)
    return path


def test_links_of_users_and_items_that_are_held_out(tmp_path):
    data = load_npz(recommendations(tmp_path / "shop.npz"))
    places = {name: data.graph.csc_positions(ids) for name, ids in data.edge_splits.items()}
    ends = {
        name: list(zip(data.graph.indices[at].tolist(), data.graph.destinations()[at].tolist(), strict=True)) for name, at in places.items()
    }
    assert ends["test"] == [(1, 3), (0, 4)]
    assert sorted(ends["train"]) == [(0, 2), (0, 3), (1, 4), (2, 0), (3, 0), (4, 1)]


def other_kind(name):
    real(name)
    load_dataset(name, root=REAL)


def wrong_ring(folder, **arrays):
    """Read a ring with changed arrays, and check that nothing is left in the cache."""
    try:
        load_npz(save(folder / "ring.npz", **ring() | arrays))
    finally:
        assert not list((folder / "cache" / "datasets").iterdir())


def wrong_sparse_features(folder, **changes):
    parts = {"x_indptr": np.arange(11), "x_indices": np.zeros(10, int), "x_data": np.ones(10), "x_shape": np.array([10, 3])}
    wrong_ring(folder, **parts | changes)


def ring_of(folder, bent):
    """Read a ring's file whose bytes ``bent`` has damaged."""
    path = save(folder / "ring.npz", **ring(x=np.random.default_rng(0).random((10, 100))))
    path.write_bytes(bent(path.read_bytes()))
    load_npz(path)


def damaged(content):
    place = content.index(b"x.npy") + 500
    return content[:place] + bytes(byte ^ 0xFF for byte in content[place : place + 50]) + content[place + 50 :]


def pipe(tmp_path):
    os.mkfifo(tmp_path / "ring.npz")
    load_npz(tmp_path / "ring.npz")


def pickled_objects(tmp_path):
    np.savez(tmp_path / "ring.npz", **ring(meta=np.array([{"a": 1}], dtype=object)))
    load_npz(tmp_path / "ring.npz")


MISTAKES = {
    "a temporal graph": Mistake(
        lambda: other_kind("temporal_jodie_wikipedia"),
        value="temporal_jodie_wikipedia.npz",
        rule="temporal graph not homogeneous",
        remedy="task: temporal_links TemporalSampler",
    ),
    "a knowledge graph": Mistake(
        lambda: other_kind("kg_fb15k237"),
        value="kg_fb15k237.npz",
        rule="knowledge graph not homogeneous",
        remedy="task: kg",
    ),
    "images": Mistake(
        lambda: other_kind("cifar10_lossless4k"),
        value="cifar10_lossless4k.npz",
        rule="samples without edges homogeneous",
        remedy="task: images",
    ),
    "an edge beyond the nodes": Mistake(
        lambda tmp_path: wrong_ring(tmp_path, indices=np.full(10, 10)),
        value="node 10",
        rule="edge 0 10 nodes",
        remedy="drop larger num_nodes",
    ),
    "an indptr of zeros": Mistake(
        lambda tmp_path: wrong_ring(tmp_path, indptr=np.zeros(11, int)), value="indptr runs from 0 to 0", rule="10 edges run"
    ),
    "labels as fractions": Mistake(
        lambda tmp_path: wrong_ring(tmp_path, y=np.zeros(10)),
        value="y is float64 of shape (10,)",
        rule="labels integers one node",
        remedy="convert",
    ),
    "fewer labels than nodes": Mistake(
        lambda tmp_path: wrong_ring(tmp_path, y=np.zeros(9, int)),
        value="y is int64 of shape (9,)",
        rule="integers 10 nodes targets",
    ),
    "fewer features than nodes": Mistake(
        lambda tmp_path: wrong_ring(tmp_path, x=np.zeros((9, 2))), value="(9, 2)", rule="features row 10 nodes", remedy="reshape x"
    ),
    "features that are no numbers": Mistake(
        lambda tmp_path: wrong_ring(tmp_path, x=np.full((10, 2), np.nan)),
        value="x[0, 0] is nan",
        rule="features finite",
        remedy="replace np.nan_to_num(x)",
    ),
    "negative kinds of nodes": Mistake(
        lambda tmp_path: wrong_ring(tmp_path, node_label=np.full(10, -1)),
        value="node_label is int64 of shape (10,)",
        rule="0 integer node",
        remedy="convert",
    ),
    "kinds of nodes as fractions": Mistake(
        lambda tmp_path: wrong_ring(tmp_path, node_label=np.zeros(10)),
        value="node_label is float64",
        rule="0 integer node",
        remedy="convert",
    ),
    "a meta that is a plain text": Mistake(
        lambda tmp_path: wrong_ring(tmp_path, meta=np.array("no json")), value="meta", rule="JSON object text", remedy="correct remove"
    ),
    "a meta nested without end": Mistake(
        lambda tmp_path: wrong_ring(tmp_path, meta=np.array("[" * 100_000)),
        value="meta",
        rule="JSON object text",
        remedy="correct remove",
    ),
    "a mask of fractions": Mistake(
        lambda tmp_path: wrong_ring(
            tmp_path, y=np.zeros(10, int), train_mask=np.ones(10), val_mask=np.zeros(10, bool), test_mask=np.zeros(10, bool)
        ),
        value="train_mask is float64 of shape (10,)",
        rule="mask one bool node",
        remedy="convert",
    ),
    "sparse features beyond the columns": Mistake(
        lambda tmp_path: wrong_sparse_features(tmp_path, x_indices=np.full(10, 3)),
        value="[10, 3]",
        rule="x_indices x_shape column F",
        remedy="fetch again",
    ),
    "sparse features of fewer rows": Mistake(
        lambda tmp_path: wrong_sparse_features(tmp_path, x_indptr=np.arange(9)),
        value="size 9",
        rule="x_indptr CSR matrix 11",
        remedy="fetch again",
    ),
    "sparse features of a million million columns": Mistake(
        lambda tmp_path: wrong_sparse_features(tmp_path, x_shape=np.array([10, 10**12])),
        value="[10, 1000000000000]",
        rule="x_shape dense 10,000.0 memory",
        remedy="keep fewer columns",
    ),
    **{
        f"sparse features of shape {shape}": Mistake(
            lambda tmp_path, shape=shape: wrong_sparse_features(tmp_path, x_shape=np.array(shape)),
            value=str(shape),
            rule="x_indices x_shape column F",
            remedy="fetch again",
        )
        for shape in ([10, -1], [10.5, 3.0])
    },
    **{
        f"a file of which {what}": Mistake(
            lambda tmp_path, bent=bent: ring_of(tmp_path, bent), value="ring.npz", rule="read whole .npz pickles", remedy="fetch again"
        )
        for what, bent in (
            ("half is missing", lambda content: content[: len(content) // 2]),
            ("a part is damaged", damaged),
            ("nothing is a zip", lambda content: b"no zip at all"),
            ("nothing is there", lambda content: b""),
        )
    },
    "a pipe": Mistake(pipe, value="ring.npz", rule="read regular file", remedy="fetch again"),
    "an array of objects": Mistake(pickled_objects, value="object", rule="ring.npz read not numbers", remedy="fetch again"),
    **{
        f"the pair {pair} to test": Mistake(
            lambda tmp_path, pair=pair: load_npz(recommendations(tmp_path / "wrong.npz", test_pairs=np.array([pair]))),
            value=f"test_pairs 0 is {pair}",
            rule="users 1 items 2",
            remedy="drop",
        )
        for pair in ([1, 3], [2, 1])
    },
    "pairs without the number of users": Mistake(
        lambda tmp_path: load_npz(recommendations(tmp_path / "wrong.npz", meta="{}")),
        value="users None",
        rule="test_pairs meta number integers",
        remedy="give",
    ),
    "pairs of three": Mistake(
        lambda tmp_path: load_npz(recommendations(tmp_path / "wrong.npz", test_pairs=np.zeros((2, 3), int))),
        value="test_pairs is int64 of shape (2, 3)",
        rule="integers user item",
        remedy="give",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
