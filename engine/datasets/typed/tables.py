"""A folder of tables, one for each type of vertices and one for each relation: ``.csv``, ``.csv.gz`` or ``.parquet`` (by pyarrow).

``nodes/paper.csv`` has a column ``id``, numbers or texts, no two alike: vertices are numbered in the order of rows. ``label`` holds classes, whole
numbers from 0 on or names, empty for none, or in its place ``target`` what a regression learns; ``split`` the name of a vertex's split, empty for none;
all other columns are features, in their order, of Parquet also columns of lists of equal length. ``edges/author__writes__paper.csv`` has ``src`` and
``dst``, ids of both types, and perhaps ``weight`` and ``time``; ids of edges count its rows. Other columns of edges are not carried over. ``nodes.csv``
and ``edges.csv`` in place of these folders are a plain graph, whose edges may have features, too. A message counts rows from 1 on, below the header.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.build import narrow_features
from hoptrain.engine.datasets.cache import fingerprint, open_cached, open_cached_typed
from hoptrain.engine.errors import InputError, reason_of
from hoptrain.engine.graph import Graph
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph, Relation

_VERSION = 2
_ROWS = 1 << 18
"""Rows that are read at a time."""
_SUFFIXES = (".csv", ".csv.gz", ".parquet")
_OF_VERTICES, _OF_EDGES = ("id", "label", "target", "split"), ("src", "dst", "weight", "time")


def is_tables(folder: Path) -> bool:
    """Whether a folder holds tables of vertices and of edges."""
    return bool(table_files(folder))


def table_files(folder: Path) -> list[Path]:
    """The tables of a folder; none unless there are some of vertices and some of edges."""
    parts = [
        sorted(path for place in (folder, folder / name) for path in _tables(place, name if place == folder else None))
        for name in ("nodes", "edges")
    ]
    return [*parts[0], *parts[1]] if all(parts) else []


def _tables(place: Path, stem: str | None) -> Iterator[Path]:
    """The tables in a folder; those of one stem."""
    for path in place.iterdir() if place.is_dir() else ():
        if path.name.endswith(_SUFFIXES) and stem in (None, _stem(path)):
            yield path


def _stem(path: Path) -> str:
    return path.name[: -len(next(suffix for suffix in _SUFFIXES if path.name.endswith(suffix)))]


def load_tables(folder: Path, seed_type: str | None = None) -> Dataset | HeteroDataset:
    """Convert a folder once, then open that; the key changes with the tables and with ``seed_type``, as of ``read_tables``.

    Raises:
        InputError: as ``read_tables``.
    """
    files = table_files(folder)
    key = f"{folder.resolve().name}-tables{_VERSION}-{fingerprint(files)}"
    if seed_type is not None:
        key += f"-{zlib.crc32(seed_type.encode()):08x}"  # a type may be called anything
    is_plain = any(path.parent == folder for path in files)
    open_one: Any = open_cached if is_plain else open_cached_typed
    data: Dataset | HeteroDataset = open_one(key, lambda writer: read_tables(folder, seed_type).write_to(writer))
    return data


def read_tables(folder: Path, seed_type: str | None = None) -> Dataset | HeteroDataset:
    """The data set in a folder, in memory, validated: one on a typed graph, or a ``Dataset`` of ``nodes.csv`` and ``edges.csv``.

    Args:
        folder: of the tables.
        seed_type: the type of a typed graph that is trained on; by default the only one with labels or targets.

    Raises:
        InputError: tables that are missing, or a row of one that cannot be: it names file, row, value and rule.
    """
    files = table_files(folder)
    if not files:
        raise InputError(f"{folder} has no tables: nodes/TYPE.csv and edges/TYPE__NAME__TYPE.csv, or nodes.csv and edges.csv; add them")
    by_stem: dict[tuple[bool, str], Path] = {}
    for path in files:
        other = by_stem.setdefault((path.parent == folder, _stem(path)), path)
        if other != path:
            raise InputError(f"{path} and {other.name} are two tables of one name: remove one")
    plain = {_stem(path): path for path in files if path.parent == folder}
    if plain and len(plain) != len(files):
        raise InputError(
            f"{folder} has {', '.join(path.name for path in plain.values())} beside folders of tables: remove one or the other"
        )
    if plain:
        vertices = _Vertices(plain["nodes"])
        src, dst, options, left = _edges(plain["edges"], vertices, vertices, keep_others=True)
        attr = options.pop("others", None)
        graph = Graph.from_edges(src, dst, len(vertices.ids), **options)
        return Dataset(
            name=folder.name,
            graph=graph,
            x=vertices.x,
            y=vertices.y,
            splits=vertices.splits,
            edge_attr=attr,
            meta=vertices.meta(folder, left),
        )
    return _typed(
        folder, [path for path in files if path.parent.name == "nodes"], [p for p in files if p.parent.name == "edges"], seed_type
    )


def _typed(folder: Path, of_nodes: list[Path], of_edges: list[Path], seed_type: str | None) -> HeteroDataset:
    types = {_stem(path): _Vertices(path) for path in of_nodes}
    seed_type = _seed_type(folder, {name: own.y is not None for name, own in types.items()}, seed_type)
    edges: dict[Relation, tuple[Array, Array]] = {}
    options: dict[str, dict[Relation, Array]] = {"weights": {}, "times": {}}
    left: list[str] = []
    for path in of_edges:
        relation = _relation(path, types)
        src, dst, own, others = _edges(path, types[relation[0]], types[relation[2]])
        edges[relation] = src, dst
        left += [f"{path.name}: {name}" for name in others]
        for name, values in own.items():
            options[name][relation] = values
    seeds = types[seed_type]
    return HeteroDataset(
        name=folder.name,
        graph=HeteroGraph.from_edges({name: len(own.ids) for name, own in types.items()}, edges, **options),
        seed_type=seed_type,
        x={name: own.x for name, own in types.items() if own.x is not None},
        y=seeds.y,
        splits=seeds.splits,
        meta=seeds.meta(folder, left),
    )


def _seed_type(folder: Path, is_labelled: dict[str, bool], seed_type: str | None) -> str:
    """The type that is trained on, among all types."""
    labelled = [name for name, has in is_labelled.items() if has]
    if seed_type is None and len(labelled) != 1:
        raise InputError(
            f"{folder}: labels of {', '.join(labelled) or 'no type'}: vertices of one type are trained on; "
            + ("name it by data.seed_type" if labelled else "give one table a column label or target")
        )
    if seed_type is not None and seed_type not in is_labelled:
        raise InputError(f"seed_type is {seed_type!r}: {folder} has tables of {', '.join(is_labelled)}; name one of these types")
    return seed_type or labelled[0]


def _relation(path: Path, types: dict[str, _Vertices]) -> Relation:
    parts = _stem(path).split("__")
    if len(parts) != 3:
        raise InputError(f"{path} names no relation: a table of edges is called SOURCE__NAME__DESTINATION; rename it")
    for name in (parts[0], parts[2]):
        if name not in types:
            raise InputError(f"{path} joins type {name}: there is no table nodes/{name}.csv; add one with a column id")
    return parts[0], parts[1], parts[2]


class _Vertices:
    """What a table of vertices holds: ``ids`` as an index of pandas, ``x``, ``y``, ``splits`` and the names of the classes, where they have some."""

    def __init__(self, path: Path) -> None:
        """Read it."""
        import pandas  # type: ignore[import-untyped]

        self.path = path
        self.classes: Array | None = None
        texts, x, _ = _read(path, ("id",), _OF_VERTICES)
        self.x = None if x is None else narrow_features(x)
        self.is_number = _is_whole(texts["id"])
        self.ids: Any = pandas.Index(texts["id"].astype(np.int64) if self.is_number else texts["id"])
        twice = np.flatnonzero(self.ids.duplicated() | (texts["id"] == ""))
        if len(twice):
            row = twice[0]
            raise InputError(
                f"{path}, row {row + 1}: id is {texts['id'][row]!r}: each vertex has one of its own; correct it or drop the row"
            )
        if "label" in texts and "target" in texts:
            raise InputError(
                f"{path} has a column label and a column target: its vertices have classes or targets; drop one of the columns"
            )
        self.y = self._labels(texts["label"]) if "label" in texts else self._targets(texts["target"]) if "target" in texts else None
        names = texts.get("split", np.zeros(0, object))
        self.splits = {str(name): np.flatnonzero(names == name) for name in dict.fromkeys(names) if name != ""}

    def _labels(self, texts: Array) -> Array:
        given = texts != ""
        y = np.full(len(texts), -1, np.int64)
        if _is_whole(texts[given]):
            y[given] = texts[given].astype(np.int64)
            wrong = np.flatnonzero(y < -1)
            if len(wrong):
                raise InputError(
                    f"{self.path}, row {wrong[0] + 1}: label is {y[wrong[0]]}: classes count from 0 on, and empty or -1 is none; correct it"
                )
            return y
        self.classes, y[given] = np.unique(texts[given].astype(str), return_inverse=True)
        return y

    def _targets(self, texts: Array) -> Array:
        given = texts != ""
        y = np.full(len(texts), np.nan, np.float32)
        y[given] = _numbers(self.path, "target", np.where(given, texts, "0"), 0)[given]
        return y

    def meta(self, folder: Path, left: list[str]) -> dict[str, Any]:
        """Of the data set whose labels these are; ``left`` are columns of edges that were not carried over."""
        meta: dict[str, Any] = {"source": f"tables in {folder.name}"}
        return meta | ({} if self.classes is None else {"classes": self.classes.tolist()}) | ({"not_carried": left} if left else {})

    def numbers_of(self, path: Path, column: str, texts: Array, first: int) -> Array:
        """The numbers (N,) of the vertices that a piece of a table of edges names, whose first row is ``first``."""
        asked = texts
        if self.is_number and _is_whole(texts):
            asked = texts.astype(np.int64)
        numbers: Array = self.ids.get_indexer(asked)
        if (numbers < 0).any():
            row = int(np.flatnonzero(numbers < 0)[0])
            raise InputError(
                f"{path}, row {first + row + 1}: {column} is {texts[row]!r}: no vertex of {self.path.name} has this id; add it there, or drop the row"
            )
        return numbers


def _edges(
    path: Path, sources: _Vertices, destinations: _Vertices, keep_others: bool = False
) -> tuple[Array, Array, dict[str, Array], list[str]]:
    """Ends (E,), weights, times and other columns of a table of edges; the names of those columns where they are not wanted."""
    texts, others, names = _read(path, ("src", "dst"), _OF_EDGES, keep_others, {"src": sources, "dst": destinations})
    options: dict[str, Array] = {}
    if "weight" in texts:
        options["weights"] = _numbers(path, "weight", texts["weight"], 0).astype(np.float32)
        wrong = np.flatnonzero(~(options["weights"] >= 0) | np.isinf(options["weights"]))
        if len(wrong):
            raise InputError(
                f"{path}, row {wrong[0] + 1}: weight is {texts['weight'][wrong[0]]}: weights are finite and not negative; correct it"
            )
    if "time" in texts:
        wrong = np.flatnonzero(~_whole(texts["time"]))
        if len(wrong):
            raise InputError(
                f"{path}, row {wrong[0] + 1}: time is {texts['time'][wrong[0]]!r}: times are whole numbers; count a smaller unit"
            )
        options["times"] = texts["time"].astype(np.int64)
    if others is not None:
        options["others"] = others
    return texts["src"], texts["dst"], options, [] if keep_others else names


def _read(
    path: Path, needed: tuple[str, ...], known: tuple[str, ...], keep_others: bool = True, ends: dict[str, _Vertices] | None = None
) -> tuple[dict[str, Array], Array | None, list[str]]:
    """A table in pieces: its known columns as texts, ends of edges as numbers, and all others as one array (N, F), and their names."""
    texts: dict[str, list[Array]] = {}
    others: list[Array] = []
    names: list[str] = []
    first = 0
    for piece in _pieces(path, known):
        missing = [name for name in needed if name not in piece]
        if missing or not piece.columns.is_unique:
            what = f"no column {missing[0]}" if missing else "two columns of one name"
            raise InputError(f"{path} has {what}: its columns are {', '.join(map(str, piece.columns))}; correct the header")
        for name in (name for name in known if name in piece):
            values = piece[name].to_numpy(object)
            texts.setdefault(name, []).append(ends[name].numbers_of(path, name, values, first) if ends and name in ends else values)
        names = [str(name) for name in piece.columns if name not in known]
        if names and keep_others:
            columns = [_numbers(path, name, piece[name].to_numpy(), first) for name in names]
            others.append(
                np.concatenate([column if column.ndim == 2 else column[:, None] for column in columns], axis=1).astype(np.float32)
            )
        first += len(piece)
    return {name: np.concatenate(parts) for name, parts in texts.items()}, np.concatenate(others) if others else None, names


def _pieces(path: Path, known: tuple[str, ...]) -> Iterator[Any]:
    """A table's rows as frames of pandas, of which known columns are texts, empty ones for nothing; at least one frame.

    Raises:
        InputError: it cannot be read.
    """
    import pandas

    try:
        if path.suffix != ".parquet":
            texts = {"dtype": str, "keep_default_na": False, "na_values": [], "index_col": False}
            with warnings.catch_warnings():
                warnings.simplefilter("error", pandas.errors.ParserWarning)  # rows with more cells than the header
                yield from pandas.read_csv(path, chunksize=_ROWS, **texts)
            return
        parquet = _parquet().ParquetFile(path)
        for name in known:
            if (
                name in parquet.schema_arrow.names
                and str(parquet.schema_arrow.field(name).type) in ("double", "float", "halffloat")
                and name not in ("weight", "target")
            ):
                raise InputError(f"{path}: column {name} is of floating numbers: it holds whole numbers or texts; convert it")
        batches = parquet.iter_batches(batch_size=_ROWS) if parquet.metadata.num_rows else [parquet.schema_arrow.empty_table()]
        for batch in batches:
            frame = batch.to_pandas(integer_object_nulls=True)
            for name in (name for name in known if name in frame):
                frame[name] = [("" if value is None or value != value else str(value)) for value in frame[name].to_numpy(object)]
            yield frame
    except InputError:
        raise
    except (OSError, EOFError, ValueError, pandas.errors.ParserWarning) as error:  # those of pyarrow and pandas are ValueErrors
        raise InputError(f"{path} cannot be read ({reason_of(error)}): correct it or write it anew") from None


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            "tables in Parquet are read by pyarrow, which is not installed: pip install hoptrain[parquet], or give .csv"
        ) from None
    return parquet


def _numbers(path: Path, name: str, values: Array, first: int) -> Array:
    """Features (N,) or (N, D) of a column of numbers, or of texts that are some, or of lists."""
    if values.dtype.kind in "fiub":
        return _finite(path, name, values.astype(np.float64), values, first)
    if len(values) and isinstance(values[0], np.ndarray):
        widths = {len(value) if isinstance(value, np.ndarray) else -1 for value in values}
        if len(widths) > 1:
            raise InputError(
                f"{path}: column {name} has lists of {len(widths)} lengths: features are as many for each vertex; correct them"
            )
        return _finite(path, name, np.stack(values.tolist()).astype(np.float64), values, first)
    try:
        numbers = values.astype(np.float64)
    except (ValueError, TypeError):
        import pandas

        numbers = pandas.to_numeric(pandas.Series(values), errors="coerce").to_numpy(np.float64)
    return _finite(path, name, numbers, values, first)


def _finite(path: Path, name: str, numbers: Array, values: Array, first: int) -> Array:
    is_good = np.isfinite(numbers)
    wrong: Array = np.flatnonzero(~(is_good if is_good.ndim == 1 else is_good.all(axis=1)))
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"{path}, row {first + row + 1}: {name} is {str(values[row])[:60]!r}: it has to be a finite number; encode it, or leave the column out"
        )
    return numbers


def _whole(texts: Array) -> Array:
    """Which texts (N,) are whole numbers as they are written by themselves: 7, not 007 or 7.0."""
    import pandas

    found: Array = pandas.Series(texts, dtype=object).astype(str).str.fullmatch(r"0|-?[1-9]\d{0,17}").to_numpy(bool)
    return found


def _is_whole(texts: Array) -> bool:
    return bool(_whole(texts).all())
