import dataclasses
import json
import os

import numpy as np
import pytest
from cases.damage import changed, put
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine import Dataset, Graph, HeteroDataset, HeteroGraph, to_bfloat16

GRAPH = Graph.from_edges(np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))
X = np.arange(8, dtype=np.float32).reshape(4, 2)
Y = np.array([0, 1, -1, 2])


def make(**changes):
    """Return a data set of four nodes, two features and three classes; node 2 has no label."""
    fields = {
        "name": "tiny",
        "graph": GRAPH,
        "x": X,
        "y": Y,
        "splits": {"train": np.array([0, 1]), "val": np.array([3])},
        "num_classes": 3,
        "meta": {"source": "made up", "year": 2024},
    }
    return Dataset(**fields | changes)


def test_properties():
    data = make()
    assert (data.num_features, data.num_classes, data.is_multilabel, data.path) == (2, 3, False, None)
    assert data.split("train").tolist() == [0, 1]


def test_graph_alone():
    data = Dataset(name="bare", graph=GRAPH)
    assert (data.num_features, data.num_classes, data.is_multilabel) == (0, 0, False)
    assert data.arrays().keys() == {"indptr", "indices", "edge_ids"}


def test_multilabel():
    data = make(y=np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]], np.uint8))
    assert data.is_multilabel


# Round trip.


def assert_same(one, other):
    assert (one.name, one.num_classes, dict(one.meta)) == (other.name, other.num_classes, dict(other.meta))
    assert one.graph.is_sorted == other.graph.is_sorted
    assert one.arrays().keys() == other.arrays().keys()
    for name, array in one.arrays().items():
        assert array.dtype == other.arrays()[name].dtype, name
        assert np.array_equal(array, other.arrays()[name]), name


UNSORTED = Graph(np.array([0, 2, 2, 2, 2]), np.array([3, 1]))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"x": X.astype(np.float16)},
        {"x": X.astype(np.uint8)},
        {"x": None, "y": None, "splits": {}, "num_classes": 0},
        {"y": np.eye(4, 3, dtype=np.uint8)},
        {"splits": {"train": np.array([], np.int64), "fold_1_train": np.array([3])}},
        {"graph": UNSORTED},
    ],
)
def test_round_trip(tmp_path, changes):
    data = make(**changes)
    data.save(tmp_path / "tiny")
    opened = Dataset.open(tmp_path / "tiny")
    assert_same(data, opened)
    assert opened.path == tmp_path / "tiny"


def is_mapped(array):
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(array, np.memmap)


def test_opened_arrays_are_mapped(tmp_path):
    make().save(str(tmp_path / "tiny"))
    opened = Dataset.open(str(tmp_path / "tiny"))
    for name, array in opened.arrays().items():
        assert is_mapped(array), name
        assert not array.flags.writeable, name
        assert not array.flags.writeable, name


def test_save_does_not_overwrite(tmp_path):
    make().save(tmp_path / "tiny")
    with refused(str(tmp_path / "tiny"), "exists dataset written over", "remove name another"):
        make(name="other").save(tmp_path / "tiny")
    assert Dataset.open(tmp_path / "tiny").name == "tiny"


# Validated, or not.


def test_a_path_is_no_reason_to_trust(tmp_path):
    with refused("node 99", "split train 0 to 3", "drop"):
        make(splits={"train": np.array([99])}, path=tmp_path)
    assert make(splits={"train": np.array([99])}, validate=False).split("train").tolist() == [99]


def test_a_changed_copy_of_an_opened_data_set_is_validated(tmp_path):
    make().save(tmp_path / "tiny")
    opened = Dataset.open(tmp_path / "tiny")
    with refused("node 99", "split train 0 to 3", "drop"):
        dataclasses.replace(opened, splits={"train": np.array([99])})
    assert dataclasses.replace(opened, name="other").path == tmp_path / "tiny"


# Dtypes.


@pytest.mark.parametrize("dtype", [np.int32, np.int8, ">i8"])
def test_splits_and_labels_become_int64(dtype):
    data = make(y=Y.astype(dtype), splits={"train": np.array([0], dtype)})
    assert (data.y.dtype, data.split("train").dtype) == (np.int64, np.int64)
    assert (data.y.tolist(), data.split("train").tolist()) == (Y.tolist(), [0])


def test_several_labels_become_uint8():
    data = make(y=np.eye(4, 3, dtype=np.int64))
    assert data.y.dtype == np.uint8
    assert np.array_equal(data.y, np.eye(4, 3))


def test_arrays_of_the_right_dtype_are_not_copied():
    ids, labels = np.array([0, 1]), np.eye(4, 3, dtype=np.uint8)
    data = make(splits={"train": ids})
    assert data.x is X
    assert data.y is Y
    assert data.split("train") is ids
    assert make(y=labels).y is labels


def test_in_memory(dataset, tmp_path):
    """A data set that is copied into memory has the same contents and uses no memory map."""
    dataset.save(tmp_path / "data")
    opened = Dataset.open(tmp_path / "data")
    copied = opened.in_memory()
    assert isinstance(opened.x, np.memmap)
    assert not isinstance(copied.x, np.memmap)
    for a, b in ((copied.x, opened.x), (copied.graph.indices, opened.graph.indices), (copied.graph.indptr, opened.graph.indptr)):
        assert np.array_equal(a, b)
        assert not np.shares_memory(a, b)
    assert (copied.name, copied.num_classes, copied.split("val").tolist()) == (
        opened.name,
        opened.num_classes,
        opened.split("val").tolist(),
    )


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))


WRONG_CONTENTS = {
    "plain": {
        "indices too large": ("indices", lambda own: changed(own, 17, 2_000_000_000), "node 2000000000", "source edge 17 200 nodes"),
        "indices negative": ("indices", lambda own: changed(own, 17, -1), "node -1", "source edge 17 200 nodes"),
        "indices unsorted": ("indices", lambda own: own[::-1].copy(), "header", "sources ascend column convert"),
        "indices of floats": ("indices", lambda own: own.astype(np.float32), "float32", "indices node ids integer"),
        "indptr beyond": ("indptr", lambda own: changed(own, -1, own[-1] + 5), "0 to 3005", "indptr runs 3,000 edges"),
        "indptr descends": ("indptr", lambda own: changed(own, 3, own[2] - 1), "674 to 673", "indptr falls node 2"),
        "x too short": ("x", lambda own: own[:10].copy(), "(10, 7)", "x features row 200 nodes"),
        "x of text": ("x", lambda own: own.astype(str), "<U32", "x.npy arrays numbers"),
        "x of records": ("x", lambda own: np.zeros(200, [("a", "<f4")]), "[('a', '<f4')]", "x.npy arrays numbers"),
        "x not finite": ("x", lambda own: changed(own, (5, 2), np.nan), " nan", "x[5, 2] features finite"),
        "y too large": ("y", lambda own: changed(own.astype(np.int64), 3, 10**12), "1000000000000", "y[3] labels [-1, 3)"),
        "y too short": ("y", lambda own: own[:5].copy(), "(5,)", "y labels integers one"),
        "split beyond": ("split_val", lambda own: changed(own, 0, 200), "node 200", "split val 0 to 199"),
    },
    "hetero": {
        "indices too large": ("indices_0", lambda own: changed(own, 0, 4), "node 4", "a:r:b source edge 0"),
        "indptr too short": ("indptr_0", lambda own: own[:2].copy(), "0 to 1", "a:r:b indptr 2 edges"),
        "x too short": ("x_0", lambda own: own[:1].copy(), "(1, 3)", "b: x features row 2 nodes"),
        "y too large": ("y", lambda own: changed(own.astype(np.int64), 0, 10**12), "1000000000000", "y[0] labels [-1, 3)"),
        "split negative": ("split_train", lambda own: changed(own, 0, -2), "node -2", "split train 0 to 3"),
    },
}


@pytest.fixture
def hetero():
    return HeteroDataset(
        graph=HeteroGraph.from_edges({"a": 4, "b": 2}, {("a", "r", "b"): ([0, 3], [1, 0])}),
        seed_type="a",
        x={"b": np.ones((2, 3), np.float32)},
        y=np.array([0, 1, -1, 2]),
        splits={"train": np.array([3, 0])},
    )


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind, own in WRONG_CONTENTS.items() for case in own])
@pytest.mark.usefixtures("cache")
def test_wrong_contents_are_refused_though_checksums_are_right(dataset, hetero, tmp_path, kind, case):
    """Opening a data set with ids out of range fails even if checksums match; such ids would crash the process or read foreign memory."""
    (name, change, value, words), data = WRONG_CONTENTS[kind][case], hetero if kind == "hetero" else dataset
    data.save(folder := tmp_path / "folder")
    assert len(type(data).open(folder).y) == len(data.y)
    put(folder, name, change(np.load(folder / f"{name}.npy")))
    for _ in range(2):  # a failed check must not be remembered as passed
        with refused(value, words) as raised:
            type(data).open(folder)
        assert str(folder) in str(raised.value)


@pytest.mark.usefixtures("cache")
def test_contents_are_validated_once_and_again_when_a_file_changes(dataset, tmp_path, monkeypatch):
    dataset.save(folder := tmp_path / "folder")
    validated = []
    monkeypatch.setattr("hoptrain.engine.dataset.check_features", lambda *_: validated.append(1))
    for expected in (1, 1):
        Dataset.open(folder)
        assert len(validated) == expected
    Dataset.open(folder, verify=True)
    assert len(validated) == 2
    os.utime(folder / "x.npy", ns=(1, 1))
    Dataset.open(folder)
    assert len(validated) == 3


# Input errors.


def opened_without(part, key, tmp_path):
    """Open a saved data set whose header lacks a key."""
    make().save(tmp_path / "tiny")
    file = tmp_path / "tiny" / "header.json"
    header = json.loads(file.read_text())
    del header[part][key]
    file.write_text(json.dumps(header))
    Dataset.open(tmp_path / "tiny")


def opened_with_a_damaged_file(tmp_path):
    make().save(tmp_path / "tiny")
    file = tmp_path / "tiny" / "indices.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    Dataset.open(tmp_path / "tiny")


def features_with(value, row, column, num_nodes=4):
    x = np.zeros((num_nodes, 2), np.float32)
    x[row, column] = value
    return x


def nan_far_down():
    graph = Graph.from_edges(np.array([0]), np.array([1]), num_nodes=70_000)
    Dataset(name="long", graph=graph, x=features_with(np.nan, 69_999, 0, 70_000))


FOLDERS = {
    **{
        f"a header without {key}": Mistake(
            lambda tmp_path, part=part, key=key: opened_without(part, key, tmp_path),
            value=f"'{key}'",
            rule="tiny no header",
            remedy="convert",
        )
        for part, key in (("meta", "name"), ("meta", "is_sorted"), ("meta", "num_classes"), ("meta", "info"), ("arrays", "indptr"))
    },
    "a damaged file": Mistake(
        opened_with_a_damaged_file, value="indices.npy", rule="match checksum altered damaged", remedy="remove convert"
    ),
}

FEATURES_AND_LABELS = {
    **{
        f"a feature that is {value}, in {dtype.__name__}": Mistake(
            lambda value=value, dtype=dtype: make(x=features_with(value, 2, 1).astype(dtype)),
            value=f" {value}",
            rule="tiny x[2, 1] features finite",
            remedy="replace nan_to_num",
        )
        for value in (np.nan, np.inf, -np.inf)
        for dtype in (np.float16, np.float32, np.float64)
    },
    "a feature that is inf, in bfloat16": Mistake(
        lambda: make(x=to_bfloat16(features_with(np.inf, 2, 1))),
        value=" inf",
        rule="tiny x[2, 1] features finite",
        remedy="replace nan_to_num",
    ),
    "a nan far down": Mistake(nan_far_down, value=" nan", rule="x[69999, 0] features finite", remedy="replace nan_to_num"),
    **{
        f"features of shape {shape}": Mistake(
            lambda shape=shape: make(x=np.zeros(shape, np.float32)),
            value=str(shape),
            rule="tiny x row 4 nodes",
            remedy="reshape",
        )
        for shape in ((3, 2), (5, 2), (4,), (4, 2, 1))
    },
    **{
        f"features of {np.dtype(dtype)}": Mistake(
            lambda dtype=dtype: make(x=X.astype(dtype)),
            value=str(np.dtype(dtype)),
            rule="tiny x features numbers",
            remedy="convert astype",
        )
        for dtype in (object, bool, np.complex64)
    },
    **{
        f"labels that are {y.dtype} of shape {y.shape}": Mistake(
            lambda y=y: make(y=y), value=f"{y.dtype} of shape {y.shape}", rule="tiny y labels integers", remedy="4 nodes floating"
        )
        for y in (np.array([0, 1, 2]), np.zeros((4, 3, 1), np.int64), np.array(1), np.zeros(4, bool))
    },
    **{
        f"a label {label}": Mistake(
            lambda label=label: make(y=np.array([0, label, -1, 2])),
            value=f"y[1] is {label}",
            rule="tiny labels [-1, 3)",
            remedy="correct num_classes (3)",
        )
        for label in (-2, 3, 2**40)
    },
    **{
        f"a label {label} of several": Mistake(
            lambda label=label: make(y=np.array([[0, 1, 0]] * 3 + [[0, label, 0]])),
            value=f"y[3, 1] is {label}",
            rule="tiny labels [-1, 2)",
            remedy="correct",
        )
        for label in (-2, 2)
    },
    "fewer columns of labels than classes": Mistake(
        lambda: make(y=np.zeros((4, 2), np.uint8)), value="2 columns", rule="tiny y num_classes 3", remedy="set number columns"
    ),
}

SPLITS = {
    **{
        f"a split with node {node}": Mistake(
            lambda node=node: make(splits={"train": np.array([0, node])}),
            value=f"node {node}",
            rule="tiny split train nodes",
            remedy="0 to 3 drop",
        )
        for node in (-1, 4, 2**32)
    },
    "a split with a node twice": Mistake(
        lambda: make(splits={"train": np.array([0, 1]), "val": np.array([3, 0, 3])}),
        value="val",
        rule="tiny split node twice",
        remedy="np.unique",
    ),
    "a split with a node without a label": Mistake(
        lambda: make(splits={"train": np.array([0, 2])}), value="node 2", rule="tiny split train label", remedy="(-1) labelled drop"
    ),
    **{
        f"a split of {ids.dtype} of shape {ids.shape}": Mistake(
            lambda ids=ids: make(splits={"train": ids}),
            value=f"{ids.dtype} of shape {ids.shape}",
            rule="tiny split train node ids",
            remedy="flatnonzero",
        )
        for ids in (np.array([0.0]), np.array([[0]]))
    },
    "an empty split": Mistake(
        lambda: make(splits={"train": np.array([], np.int64)}).split("train"),
        value="train",
        rule="split tiny empty node",
        remedy="fill another",
    ),
    "an unknown split": Mistake(lambda: make().split("trian"), value="'trian'", rule="tiny no split", remedy="train, val choose"),
    "a split of a data set without any": Mistake(
        lambda: make(splits={}).split("train"),
        value="'train'",
        rule="tiny no split none",
        remedy="with_random_splits() --split random node ids",
    ),
    **{
        f"a split called {split!r}": Mistake(
            lambda split=split: make(splits={split: np.array([0])}),
            value=repr(split),
            rule="tiny split part name",
            remedy="letters digits _ rename",
        )
        for split in ("../train", "fold.1", "", "a b", "1st")
    },
}

MISTAKES = FOLDERS | FEATURES_AND_LABELS | SPLITS


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
