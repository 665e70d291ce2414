import dataclasses
import json
import os
import re

import numpy as np
import pytest
from cases.damage import changed, put

from hoptrain.engine import Dataset, Graph, InputError

GRAPH = Graph.from_edges(np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))
X = np.arange(8, dtype=np.float32).reshape(4, 2)
Y = np.array([0, 1, -1, 2])


def make(**changes):
    """Four vertices, two features, three classes; vertex 2 has no label."""
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
    with pytest.raises(InputError, match="tiny exists: dataset folders are not written over; remove it"):
        make(name="other").save(tmp_path / "tiny")
    assert Dataset.open(tmp_path / "tiny").name == "tiny"


@pytest.mark.parametrize("key", ["name", "is_sorted", "num_classes", "info"])
def test_missing_key_of_the_header(tmp_path, key):
    make().save(tmp_path / "tiny")
    file = tmp_path / "tiny" / "header.json"
    header = json.loads(file.read_text())
    del header["meta"][key]
    file.write_text(json.dumps(header))
    with pytest.raises(InputError, match=f"tiny has no '{key}' in its header"):
        Dataset.open(tmp_path / "tiny")


def test_missing_array(tmp_path):
    make().save(tmp_path / "tiny")
    file = tmp_path / "tiny" / "header.json"
    header = json.loads(file.read_text())
    del header["arrays"]["indptr"]
    file.write_text(json.dumps(header))
    with pytest.raises(InputError, match="tiny has no 'indptr' in its header"):
        Dataset.open(tmp_path / "tiny")


def test_damaged_file(tmp_path):
    make().save(tmp_path / "tiny")
    file = tmp_path / "tiny" / "indices.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(InputError, match=r"indices\.npy does not match its checksum"):
        Dataset.open(tmp_path / "tiny")


# Mistakes.


def features_with(value, row, column, num_nodes=4):
    x = np.zeros((num_nodes, 2), np.float32)
    x[row, column] = value
    return x


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_features_that_are_not_finite(value, dtype):
    with pytest.raises(InputError, match=rf"tiny: x\[2, 1\] is {value}: features are finite.*nan_to_num"):
        make(x=features_with(value, 2, 1).astype(dtype))


def test_a_nan_far_down_is_named_by_its_row():
    graph = Graph.from_edges(np.array([0]), np.array([1]), num_nodes=70_000)
    with pytest.raises(InputError, match=r"x\[69999, 0\] is nan"):
        Dataset(name="long", graph=graph, x=features_with(np.nan, 69_999, 0, 70_000))


@pytest.mark.parametrize("shape", [(3, 2), (5, 2), (4,), (4, 2, 1)])
def test_features_of_a_wrong_shape(shape):
    with pytest.raises(InputError, match=rf"tiny: x has shape {re.escape(str(shape))}: .*each of the 4 vertices; reshape"):
        make(x=np.zeros(shape, np.float32))


@pytest.mark.parametrize("y", [np.array([0, 1, 2]), np.zeros((4, 3, 1), np.int64), np.array(1), np.zeros(4, bool)])
def test_labels_of_a_wrong_kind(y):
    with pytest.raises(InputError, match=rf"tiny: y is {y.dtype} of shape {re.escape(str(y.shape))}: labels are integers"):
        make(y=y)


@pytest.mark.parametrize("label", [-2, 3, 2**40])
def test_label_out_of_range(label):
    with pytest.raises(InputError, match=rf"tiny: y\[1\] is {label}: labels are in \[-1, 3\); correct it or num_classes \(3\)"):
        make(y=np.array([0, label, -1, 2]))


@pytest.mark.parametrize("label", [-2, 2])
def test_multilabel_out_of_range(label):
    with pytest.raises(InputError, match=rf"tiny: y\[3, 1\] is {label}: labels are in \[-1, 2\)"):
        make(y=np.array([[0, 1, 0]] * 3 + [[0, label, 0]]))


def test_multilabel_columns():
    with pytest.raises(InputError, match="tiny: y has 2 columns, but num_classes is 3"):
        make(y=np.zeros((4, 2), np.uint8))


@pytest.mark.parametrize("vertex", [-1, 4, 2**32])
def test_split_out_of_range(vertex):
    with pytest.raises(InputError, match=rf"tiny: split train names vertex {vertex}: vertices are 0 to 3; drop it"):
        make(splits={"train": np.array([0, vertex])})


def test_split_names_a_vertex_twice():
    with pytest.raises(InputError, match=r"tiny: split val names a vertex twice.*np\.unique"):
        make(splits={"train": np.array([0, 1]), "val": np.array([3, 0, 3])})


def test_split_holds_an_unlabelled_vertex():
    with pytest.raises(InputError, match=r"tiny: vertex 2 of split train has no label \(-1\)"):
        make(splits={"train": np.array([0, 2])})


@pytest.mark.parametrize("ids", [np.array([0.0]), np.array([[0]])])
def test_split_of_a_wrong_kind(ids):
    with pytest.raises(InputError, match=rf"tiny: split train is {ids.dtype} of shape .*flatnonzero"):
        make(splits={"train": ids})


def test_empty_split():
    data = make(splits={"train": np.array([], np.int64)})
    with pytest.raises(InputError, match=r"the train split of tiny is empty.*at least one vertex"):
        data.split("train")


def test_unknown_split():
    with pytest.raises(InputError, match="tiny has no split 'trian': it has train, val; choose one"):
        make().split("trian")
    with pytest.raises(InputError, match="it has none at all"):
        make(splits={}).split("train")


@pytest.mark.parametrize("dtype", [object, bool, np.complex64])
def test_features_of_a_kind_that_cannot_be_stored_or_trained_on(dtype):
    with pytest.raises(InputError, match=rf"tiny: x is {np.dtype(dtype)}: features are real numbers"):
        make(x=X.astype(dtype))


@pytest.mark.parametrize("split", ["../train", "fold.1", "", "a b", "1st"])
def test_a_split_whose_name_is_no_plain_name(split):
    with pytest.raises(InputError, match=rf"tiny: a split is called {re.escape(repr(split))}"):
        make(splits={split: np.array([0])})


def test_a_path_is_no_reason_to_trust(tmp_path):
    with pytest.raises(InputError, match="names vertex 99"):
        make(splits={"train": np.array([99])}, path=tmp_path)
    assert make(splits={"train": np.array([99])}, validate=False).split("train").tolist() == [99]


def test_a_changed_copy_of_an_opened_data_set_is_validated(tmp_path):
    make().save(tmp_path / "tiny")
    opened = Dataset.open(tmp_path / "tiny")
    with pytest.raises(InputError, match="names vertex 99"):
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
    """The same contents, and no longer the files."""
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
    "indices too large": ("indices", lambda own: changed(own, 17, 2_000_000_000), "the source of edge 17 is vertex 2000000000"),
    "indices negative": ("indices", lambda own: changed(own, 17, -1), "the source of edge 17 is vertex -1"),
    "indices unsorted": ("indices", lambda own: own[::-1].copy(), "sources do not ascend within each column"),
    "indices of floats": ("indices", lambda own: own.astype(np.float32), "indices is a float32 array"),
    "indptr beyond": ("indptr", lambda own: changed(own, -1, own[-1] + 5), "indptr runs from 0 to"),
    "indptr descends": ("indptr", lambda own: changed(own, 3, own[2] - 1), "indptr falls from"),
    "x too short": ("x", lambda own: own[:10].copy(), r"x has shape \(10, 7\): features are one row for each of the 200 vertices"),
    "x of text": ("x", lambda own: own.astype(str), "x.npy holds <U.*: arrays are of numbers"),
    "x of records": ("x", lambda own: np.zeros(200, [("a", "<f4")]), "x.npy holds .*: arrays are of numbers"),
    "x not finite": ("x", lambda own: changed(own, (5, 2), np.nan), "x"),
    "y too large": ("y", lambda own: changed(own.astype(np.int64), 3, 10**12), r"y\[3\] is 1000000000000: labels are in"),
    "y too short": ("y", lambda own: own[:5].copy(), "labels are integers, one"),
    "split beyond": ("split_val", lambda own: changed(own, 0, 200), "200"),
}


@pytest.mark.parametrize("case", WRONG_CONTENTS)
@pytest.mark.usefixtures("cache")
def test_wrong_contents_are_refused_though_checksums_are_right(dataset, tmp_path, case):
    """Read out of bounds they would end the process, or give batches of whatever lies behind the file."""
    name, change, message = WRONG_CONTENTS[case]
    dataset.save(folder := tmp_path / "folder")
    assert len(Dataset.open(folder).y) == 200
    put(folder, name, change(np.load(folder / f"{name}.npy")))
    for _ in range(2):  # not remembered as right
        with pytest.raises(InputError, match=message) as refused:
            Dataset.open(folder)
        assert str(folder) in str(refused.value)
        assert "\n" not in str(refused.value)


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
