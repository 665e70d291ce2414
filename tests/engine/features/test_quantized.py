"""Quantised features: scales of the columns, dequantised values, files, and input errors."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from reference import quantized as reference

from hoptrain.engine import BFLOAT16, Dataset, HeteroDataset, HeteroGraph, to_bfloat16
from hoptrain.engine.arrays import as_float32
from hoptrain.engine.features.quantized import FORMATS, QuantizedRows, QuantParams, quantize
from hoptrain.kernels.cpu.storage import quantized as kernels

TOP = {"int8": 255, "int4": 15}
EDGES = np.array([[3, 0, 2, 0, 3], [1, 1, 0, 1, 3]])
_NUMBERS = st.floats(-1e6, 1e6, width=32) | st.integers(-300, 300).map(float) | st.sampled_from([0.0, 1e-40, -1e-30, 2.0**100, -(2.0**100)])


def single(rows):
    """Return the codes of a quantised table, one code per byte."""
    if rows.columns.format == "int8":
        return rows.codes
    both = np.stack([rows.codes & 15, rows.codes >> 4], 2).reshape(len(rows), -1)
    return both[:, : rows.shape[1]]


@pytest.mark.parametrize("features", TOP)
@settings(max_examples=25)
@given(x=arrays.arrays(np.float32, st.tuples(st.integers(1, 7), st.integers(1, 5)), elements=_NUMBERS))
def test_equals_the_slow_one(features, x):
    rows = quantize(x, features)
    found = reference.columns(x, TOP[features])
    assert [(Fraction(float(s)), Fraction(float(z))) for s, z in zip(rows.columns.scale, rows.columns.zero, strict=True)] == found
    np.testing.assert_array_equal(single(rows), reference.codes(x, found, TOP[features]))
    np.testing.assert_array_equal(np.asarray(rows), reference.numbers(single(rows), found))


@pytest.mark.parametrize("features", TOP)
def test_is_off_by_half_a_step_at_most(features):
    x = np.random.default_rng(0).normal(3, 5, (2000, 9)).astype(np.float32)
    rows = quantize(x, features)
    off = abs(np.asarray(rows).astype(np.float64) - x)
    assert (off <= rows.columns.scale.astype(np.float64) / 2 + abs(x) * 2.0**-23).all()
    assert off.max() > rows.columns.scale.min() / 4  # the quantisation is lossy
    steps = np.ptp(x, axis=0).astype(np.float64) / TOP[features]
    assert (rows.columns.scale >= steps * (1 - 2.0**-22)).all()
    assert (rows.columns.scale <= steps * (1 + 2.0**-14)).all()


@pytest.mark.parametrize("features", TOP)
def test_what_stays_exact(features):
    """Zeros within a column's range, integers within the range of the codes, and constant columns are stored exactly."""
    random = np.random.default_rng(0)
    x = random.normal(0, 1, (300, 6)).astype(np.float32)
    x[random.random(x.shape) < 0.5] = 0
    x[:, 1], x[:, 2], x[:, 3] = random.integers(-7, 8, 300), 0.3, abs(x[:, 3])
    x[:, 4], x[:, 5] = -abs(x[:, 4]), random.integers(1990, 2005, 300)
    back = np.asarray(quantize(x, features))
    assert (back[x == 0] == 0).all()
    assert not np.array_equal(back[:, 0], x[:, 0])
    for column in (1, 2, 5):
        assert np.array_equal(back[:, column], x[:, column])


def test_scale_times_code_is_exact_so_that_fusing_changes_nothing():
    x = np.random.default_rng(1).normal(-40, 9, (500, 40)).astype(np.float32)
    columns = quantize(x, "int8").columns
    products = np.arange(256)[:, None] * columns.scale.astype(np.float64)
    assert np.array_equal(products, products.astype(np.float32))


def test_expands_to_what_numpy_gives_from_any_layout():
    random = np.random.default_rng(2)
    for features, width in (("int8", 7), ("int4", 4)):
        columns = QuantParams(features, random.random(7).astype(np.float32), random.random(7).astype(np.float32))
        codes = random.integers(0, 256, (33, 2 * width)).astype(np.uint8)[::3, ::2]
        codes[:, -1] &= 15 if features == "int4" else 255
        rows = QuantizedRows(codes, columns)
        expected = columns.zero + columns.scale * single(rows).astype(np.float32)
        np.testing.assert_array_equal(columns.expand(codes), expected)
        out = np.empty((11, 7), np.float32)
        assert columns.expand(codes, out) is out
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("features", TOP)
def test_is_in_the_place_of_an_array(features):
    rows = quantize(np.random.default_rng(3).random((10, 5)), features)
    x = np.asarray(rows)
    assert (rows.shape, rows.ndim, rows.size, rows.dtype, len(rows)) == (x.shape, 2, 50, x.dtype, 10)
    ids = np.array([3, 3, 0, 9])
    assert np.array_equal(np.take(rows, ids, axis=0), x[ids])
    assert np.array_equal(np.take(rows, 4, axis=0), x[4])
    assert np.array_equal(rows[ids], x[ids])
    assert np.array_equal(rows[-1], x[-1])
    assert np.array_equal(rows[x[:, 0] > 0.5], x[x[:, 0] > 0.5])
    view = rows[2:6]
    assert np.shares_memory(view.codes, rows.codes)
    assert np.array_equal(view, x[2:6])
    assert np.array_equal(np.array(rows, np.float64), x)
    assert repr(rows) == f"QuantizedRows({features}, shape=(10, 5))"
    with pytest.raises(IndexError):
        np.take(rows, [10], axis=0)
    with refused("axis 1", "np.take quantised rows", "asarray np.asarray"):
        np.take(rows, ids, axis=1)
    with refused("(0, 0)", "index quantised rows", "np.asarray"):
        rows[0, 0]
    with refused("copy=False", "quantised features without copy", "leave out", ValueError):
        np.asarray(rows, copy=False)


def test_large_tables_go_by_pieces(monkeypatch):
    x = np.random.default_rng(4).random((50, 3)).astype(np.float32)
    whole = {features: quantize(x, features) for features in FORMATS}
    monkeypatch.setattr("hoptrain.engine.features.quantized.PIECE", 21)
    for features, rows in whole.items():
        parts = quantize(x, features)
        if features in TOP:
            assert np.array_equal(parts.codes, rows.codes)
        assert np.asarray(parts).tobytes() == np.asarray(rows).tobytes()


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64, BFLOAT16])
def test_takes_all_that_features_may_be(dtype):
    x = np.random.default_rng(5).integers(-1000, 1000, (40, 3)).astype(np.float32)
    given = to_bfloat16(x) if dtype == BFLOAT16 else x.astype(dtype)
    assert np.array_equal(quantize(given, "int8").codes, quantize(as_float32(given), "int8").codes)
    assert quantize(given[:0], "int4").shape == (0, 3)


def test_floating_formats_round_to_the_nearest():
    x = np.array([[1 + 2.0**-11, 1 + 3 * 2.0**-11], [-(1 + 2.0**-8), 0.1]], np.float32)
    assert quantize(x, "float16").tolist() == x.astype(np.float16).tolist()
    assert quantize(x, "float16")[0].tolist() == [1, 1 + 2.0**-9]
    assert np.array_equal(quantize(x, "bfloat16"), to_bfloat16(x))


def graphs(x, edge_attr):
    return Dataset(name="small", edge_index=EDGES, x=x, edge_attr=edge_attr, y=np.arange(4) % 2, splits={"train": np.arange(2)})


@pytest.mark.parametrize("features", FORMATS)
def test_folders_hold_the_narrow_table(tmp_path, features):
    random = np.random.default_rng(6)
    data = graphs(random.random((4, 5)).astype(np.float32), random.random((5, 3)))
    data.save(tmp_path / "narrow", features=features)
    opened = Dataset.open(tmp_path / "narrow", verify=True)
    for name in ("x", "edge_attr"):
        expected, found = quantize(getattr(data, name), features), getattr(opened, name)
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
        if features in TOP:
            assert isinstance(found.codes.base, np.memmap) or isinstance(found.codes, np.memmap)
            assert (tmp_path / "narrow" / f"{name}_{features}.npy").stat().st_size == 128 + found.codes.nbytes
            assert not (tmp_path / "narrow" / f"{name}.npy").exists()
    assert (opened.num_features, opened.num_edge_features, opened.y.tolist()) == (5, 3, data.y.tolist())
    copied = opened.in_memory()
    assert np.array_equal(np.asarray(copied.x), np.asarray(opened.x))
    opened.save(tmp_path / "again")
    assert np.asarray(Dataset.open(tmp_path / "again").x).tobytes() == np.asarray(opened.x).tobytes()
    made = Dataset(graph=opened.graph, x=opened.x, edge_attr=opened.edge_attr)  # checked without dequantising
    assert made.x is opened.x


def test_hetero_folders(tmp_path):
    graph = HeteroGraph.from_edges({"a": 2, "b": 3}, {("a", "to", "b"): (np.array([0, 1]), np.array([1, 2]))})
    x = {"a": np.random.default_rng(7).random((2, 6)).astype(np.float32), "b": np.arange(3, dtype=np.uint8)[:, None]}
    data = HeteroDataset(graph=graph, seed_type="b", x=x, y=np.zeros(3, int))
    data.save(tmp_path / "mixed", features="int8")
    opened = HeteroDataset.open(tmp_path / "mixed")
    assert np.array_equal(np.asarray(opened.x["a"]), np.asarray(quantize(x["a"], "int8")))
    assert opened.x["b"].dtype == np.uint8  # uint8 features are not quantised
    replace(opened, name="checked", validate=True)


def test_what_is_not_narrowed(tmp_path):
    x = np.random.default_rng(8).random((4, 2)).astype(np.float32)
    graphs(x, None).save(tmp_path / "int8", features="int8")
    for features in FORMATS:
        with refused("already int8", "small x round twice", "convert original data set"):
            Dataset.open(tmp_path / "int8").save(tmp_path / "twice", features=features)
    with refused("uint8", "small features int8 smaller", "leave out narrower format"):
        graphs(np.ones((4, 2), np.uint8), None).save(tmp_path / "twice", features="int8")
    with refused("none", "small features int8 smaller", "leave out"):
        graphs(None, None).save(tmp_path / "twice", features="int8")
    with refused("'int16'", "features one", "int8, int4, float16, bfloat16"):
        graphs(x, None).save(tmp_path / "twice", features="int16")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["int8"]


def test_ranges_stop_at_what_float32_cannot_multiply():
    low, high = np.zeros(1, np.float32), np.zeros(1, np.float32)
    assert kernels.column_ranges(np.array([[kernels.MOST]], np.float32), low, high, np.ones(1, bool))
    assert not kernels.column_ranges(np.array([[-1.01 * kernels.MOST]], np.float32), low, high, np.ones(1, bool))


# Input errors.


def quantized(value, features):
    x = np.zeros((4, 2))
    x[2, 1] = value
    quantize(x, features)


THREE = QuantParams("int4", np.ones(3, np.float32), np.zeros(3, np.float32))
NOT_FINITE = replace(THREE, zero=np.array([0, np.nan, 0], np.float32))

MISTAKES = {
    **{
        f"{value} as {features}": Mistake(
            lambda value=value, features=features: quantized(value, features),
            value=f"x[2, 1] is {shown}",
            rule="features finite float32",
            remedy="replace",
        )
        for value, features, shown in ((np.nan, "int8", "nan"), (1e300, "int4", "inf"), (np.inf, "bfloat16", "inf"))
    },
    **{
        f"{value} as {features}": Mistake(
            lambda value=value, features=features: quantized(value, features),
            value=shown,
            rule=f"x[2, 1] format largest {most}",
            remedy="scale column bfloat16",
        )
        for value, features, shown, most in ((7e4, "float16", "70000", "65504"), (1e38, "int8", "1e+38", "8.50706e+37"))
    },
    "an unknown format": Mistake(lambda: quantized(0, "int2"), value="'int2'", rule="features one", remedy="int8, int4, float16, bfloat16"),
    **{
        f"codes of {shown}": Mistake(
            lambda codes=codes: graphs(QuantizedRows(codes, THREE), None),
            value=shown,
            rule="small x codes 3 columns",
            remedy="int4 uint8 (4, 2) quantise",
        )
        for shown, codes in (("uint8 of shape (4, 3)", np.zeros((4, 3), np.uint8)), ("int8 of shape (4, 2)", np.zeros((4, 2), np.int8)))
    },
    "codes of too few edges": Mistake(
        lambda: graphs(None, QuantizedRows(np.zeros((3, 2), np.uint8), THREE)),
        value="(3, 3)",
        rule="small edge_attr row edge",
        remedy="5 reshape",
    ),
    "a zero of a column that is not finite": Mistake(
        lambda: graphs(QuantizedRows(np.zeros((4, 2), np.uint8), NOT_FINITE), None),
        value="zero",
        rule="small x scale finite",
        remedy="quantise",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
