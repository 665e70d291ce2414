"""Reader of folders with a table for each node type and for each relation: ``.csv``, ``.csv.gz`` or ``.parquet`` (read by pyarrow).

* A node table such as ``nodes/paper.csv`` has a column ``id`` of distinct numbers or texts; nodes are numbered in the order of rows. The optional column
  ``label`` has classes (integers from 0, or names), ``split`` the name of the node's split; empty cells stand for none. All other columns are features, in
  their order; Parquet columns may contain lists of equal length.
* An edge table such as ``edges/author__writes__paper.csv`` has columns ``src`` and ``dst`` with ids of both types, and optionally ``weight`` and ``time``.
  Edge ids are row numbers. Other columns are edge features; columns that cannot be converted to numbers (``encodings.py``) are left out with a warning.

Files ``nodes.csv`` and ``edges.csv`` instead of these subfolders define a homogeneous graph (``plain.py``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.cache import fingerprint, open_cached
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.edges import EdgeColumns, features_of
from hoptrain.engine.datasets.tables.encodings import Encoding, Missing
from hoptrain.engine.datasets.tables.nodes import NodeIndex, NodeTable, labels_of, splits_of
from hoptrain.engine.datasets.tables.plain import EDGE_NAMES, NODE_NAMES, Without, read_edges, read_plain, renamed, write_ids
from hoptrain.engine.datasets.tables.reading import AS_THEY_ARE, OPTIONS, TABLES, Reading
from hoptrain.engine.datasets.tables.rows import Table
from hoptrain.engine.errors import InputError, join_limited, not_carried
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.engine.store import FolderWriter

_VERSION = 5
_SUFFIXES = (".csv", ".csv.gz", ".parquet")
K = TypeVar("K", str, Relation)


def is_tables(folder: Path) -> bool:
    """Return whether a folder contains both node tables and edge tables."""
    return bool(table_files(folder))


def is_homogeneous(folder: Path) -> bool:
    """Return whether a folder has tables ``nodes`` and ``edges`` of a homogeneous graph, not folders of tables."""
    return any(path.parent == folder for path in table_files(folder))


def table_files(folder: Path) -> list[Path]:
    """Return the tables in a folder, or an empty list unless it contains both node tables and edge tables."""
    parts = [
        sorted(path for place in (folder, folder / name) for path in _tables(place, name if place == folder else None))
        for name in ("nodes", "edges")
    ]
    return [*parts[0], *parts[1]] if all(parts) else []


def _tables(place: Path, stem: str | None) -> Iterator[Path]:
    """Yield the tables in a folder; with ``stem``, only those with this file name without suffix."""
    for path in place.iterdir() if place.is_dir() else ():
        if path.name.endswith(_SUFFIXES) and stem in (None, _stem(path)):
            yield path


def _stem(path: Path) -> str:
    return path.name[: -len(next(suffix for suffix in _SUFFIXES if path.name.endswith(suffix)))]


def load_tables(folder: Path, seed_type: str | None = None) -> Dataset | HeteroDataset:
    """Open a folder of tables. The first call converts it into the cache, under a key that depends on the tables and ``seed_type``.

    Raises:
        InputError: the tables are missing or invalid (see ``read_tables_and_ids``).
    """
    files = table_files(folder)
    key = f"{folder.resolve().name}-tables{_VERSION}-{fingerprint(files)}"
    if seed_type is not None:
        key += f"-{zlib.crc32(seed_type.encode()):08x}"  # a checksum, since the name of a type need not be a valid file name
    kind: type[Dataset | HeteroDataset] = Dataset if is_homogeneous(folder) else HeteroDataset

    def write(writer: FolderWriter) -> None:
        data, ids = read_tables_and_ids(folder, seed_type)
        data.write_to(writer)
        if ids is not None:
            write_ids(writer.folder, ids)

    return open_cached(kind, key, write)


def read_tables_and_ids(
    folder: Path, seed_type: str | None = None, *, name: str | None = None, reading: Reading = AS_THEY_ARE, bad: BadRows | None = None
) -> tuple[Dataset | HeteroDataset, Array | None]:
    """Read and validate the data set of a folder of tables, in memory: a ``HeteroDataset``, or a ``Dataset`` from ``nodes.csv`` and ``edges.csv``.

    Also return the ids (V,) of its nodes (of the seed type), or None if these equal the node numbers.

    Args:
        folder: folder of the tables.
        seed_type: node type to train on, for a heterogeneous graph; by default that of ``reading.like``, or else the only type with labels.
        name: name of the data set; by default that of the folder.
        reading: options for reading columns and their cells.
        bad: handling of rows that cannot be read; by default the first such row raises an error.

    Raises:
        InputError: tables are missing, or a row is invalid; the message names file, row, value and rule.
    """
    files = table_files(folder)
    if not files:
        raise InputError(
            f"{folder} has no tables: it needs nodes/TYPE.csv and edges/TYPE__NAME__TYPE.csv, or nodes.csv and edges.csv; add them"
        )
    by_stem: dict[tuple[bool, str], Path] = {}
    for path in files:
        other = by_stem.setdefault((path.parent == folder, _stem(path)), path)
        if other != path:
            raise InputError(f"{path} and {other.name} are two tables of one name: names must be unique; remove one")
    plain = {_stem(path): path for path in files if path.parent == folder}
    if plain and len(plain) != len(files):
        raise InputError(
            f"{folder} has {', '.join(path.name for path in plain.values())} and folders of tables: it must have one or the other; remove one"
        )
    if plain:
        return read_plain(plain["edges"], features=plain["nodes"], header=True, name=name or folder.name, reading=reading, bad=bad)
    nodes = {_stem(path): path for path in files if path.parent.name == "nodes"}
    edges = {_relation(path): path for path in files if path.parent.name == "edges"}
    return _read_hetero(nodes, edges, seed_type, name or folder.name, reading, bad or BadRows())


def read_hetero_tables(
    nodes: Mapping[str, str | Path],
    edges: Mapping[Relation, str | Path],
    seed_type: str | None = None,
    *,
    name: str = "data",
    missing: Missing | None = None,
    categories: Sequence[str] = (),
    drop: Sequence[str] = (),
    like: HeteroDataset | None = None,
    bad: BadRows | None = None,
) -> HeteroDataset:
    r"""Build a data set from one table per node type and one per relation: ``.csv``, ``.csv.gz`` or ``.parquet`` files in any folders.

    The data set is validated and kept in memory. ``load_hetero_dataset`` opens a folder of such tables, whose file names give types and relations.

    Args:
        nodes: node tables by type, with a column ``id`` and optionally ``label``, ``split`` and features.
        edges: edge tables by relation, with columns ``src`` and ``dst`` and optionally ``weight`` and ``time``.
        seed_type: node type to train on; by default that of ``like``, or else the only node type with labels.
        name: name of the data set in messages.
        missing: treatment of missing cells of features: ``error``, or fill them in with the column's ``mean`` or with ``zero``. By default as in ``like``,
            else ``error``.
        categories: columns of any table to treat as categories although they contain numbers or many different texts.
        drop: columns to leave out of all tables.
        like: a data set from tables whose types, columns, categories, means, classes and options are used, such as the one that a model was trained on.
        bad: handling of rows that cannot be read; by default the first such row raises an error.

    Raises:
        InputError: a row is invalid (the message names file, row, value and rule), a node type has no table, or the data set is invalid.

    Examples:
        >>> from hoptrain import read_hetero_tables
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> folder = TemporaryDirectory()
        >>> nodes = {"paper": Path(folder.name, "papers.csv"), "author": Path(folder.name, "authors.csv")}
        >>> edges = {("author", "writes", "paper"): Path(folder.name, "wrote.csv")}
        >>> _ = nodes["paper"].write_text("id,label,year\nA,theory,1.5\nB,systems,2.5\n")
        >>> _ = nodes["author"].write_text("id\nAda\nBob\n")
        >>> _ = edges["author", "writes", "paper"].write_text("src,dst\nAda,A\nBob,B\nAda,B\n")
        >>> data = read_hetero_tables(nodes, edges)
        >>> data.graph.num_nodes, data.y, data.x["paper"].tolist()
        ({'paper': 2, 'author': 2}, array([1, 0]), [[1.5], [2.5]])
        >>> folder.cleanup()
    """
    return _read_hetero(nodes, edges, seed_type, name, Reading(missing, categories, drop, like), bad or BadRows())[0]


def _read_hetero(
    nodes: Mapping[str, str | Path], edges: Mapping[Relation, str | Path], seed_type: str | None, name: str, reading: Reading, bad: BadRows
) -> tuple[HeteroDataset, Array | None]:
    """Return the data set, and the ids (V,) of the nodes of the seed type, or None if these equal the node numbers."""
    paths, relations = {kind: Path(path) for kind, path in nodes.items()}, {relation: Path(path) for relation, path in edges.items()}
    _check_relations(relations, nodes)
    if isinstance(reading.like, HeteroDataset):
        seed_type = reading.repeat("seed-type", seed_type, reading.like.seed_type)
        paths = _in_order(paths, reading.like.graph.num_nodes, reading)
        known = list(reading.like.graph.relations)
        if reading.like.meta.get("reverse") == "added":  # the second half has the reverses of the first
            known = known[: len(known) // 2]
        relations = _in_order(relations, known, reading)
    without = Without(reading)
    types = {kind: _Type(kind, path, reading, without, bad) for kind, path in paths.items()}
    seed_type = _seed_type(name, {kind: own.is_labelled for kind, own in types.items()}, seed_type)
    y, classes = types[seed_type].labels(reading)
    ends = {relation: (types[relation[0]].numbers, types[relation[2]].numbers) for relation in relations}
    tables = {relation: _Edges(relation, path, *ends[relation], reading, without, bad) for relation, path in relations.items()}
    without.check()
    bad.finish()
    by_option = {
        option: {relation: own.rest[option] for relation, own in tables.items() if option in own.rest} for option in ("weights", "times")
    }
    data = HeteroDataset(
        name=name,
        graph=HeteroGraph.from_edges(
            {kind: len(own.numbers) for kind, own in types.items()}, {relation: own.ends for relation, own in tables.items()}, **by_option
        ),
        seed_type=seed_type,
        x={kind: own.x for kind, own in types.items() if own.x is not None},
        edge_attr={relation: own.x for relation, own in tables.items() if own.x is not None},
        y=y,
        splits=types[seed_type].splits,
        meta=_meta(name, [*paths.values(), *relations.values()], types, tables, classes, bad)
        | {OPTIONS: reading.as_json() | {"left": {relation_name(key): own.left for key, own in tables.items() if own.left}}},
    )
    return data, types[seed_type].numbers.ids()


def _meta(
    name: str, files: Sequence[Path], types: Mapping[str, _Type], tables: Mapping[Relation, _Edges], classes: list[str] | None, bad: BadRows
) -> dict[str, Any]:
    """Return ``meta`` of a data set: its source, the names of its classes, and how columns were converted to numbers."""
    encodings: dict[str, Mapping[str, Encoding]] = {kind: own.encodings for kind, own in types.items()}
    encodings |= {relation_name(key): own.columns.features for key, own in tables.items()}
    encodings |= {f"known.{relation_name(key)}": own.columns.known for key, own in tables.items()}
    skipped = {file: count for file, (count, _) in bad.counts.items()}
    left = [f"{own.path.name}: {column}" for own in tables.values() for column in own.left]
    return (
        {"source": f"{TABLES}{', '.join(path.name for path in files)}"}
        | ({} if classes is None else {"classes": classes})
        | ({"skipped_rows": skipped} if skipped else {})
        | not_carried(name, "HeteroDataset", left)
        | {"columns": {what: {column: each.as_json() for column, each in own.items()} for what, own in encodings.items() if own}}
    )


def _in_order(tables: Mapping[K, Path], known: Iterable[K], reading: Reading) -> dict[K, Path]:
    """Return tables by node type or relation, in the order of ``reading.like``.

    Raises:
        InputError: a table is missing, or has a type or relation that ``reading.like`` does not have.
    """
    rule = "new data must have the same node types and relations"
    if more := [key for key in tables if key not in known]:
        raise InputError(
            f"{tables[more[0]]} is the table of {join_limited(more[:1])}, and {reading.source} has {join_limited(known)}: {rule}; remove or rename it"
        )
    if lacking := [key for key in known if key not in tables]:
        raise InputError(f"no table of {join_limited(lacking)}, and {reading.source} has one: {rule}; add a table, which may have no rows")
    return {key: tables[key] for key in known}


def _check_relations(relations: Mapping[Relation, Path], nodes: Mapping[str, str | Path]) -> None:
    for relation, path in relations.items():
        if not isinstance(relation, tuple) or len(relation) != 3:
            raise InputError(
                f"{relation!r} is not a relation: the key of {path} must be (source type, name, destination type); give three strings"
            )
        for end in (relation[0], relation[2]):
            if end not in nodes:
                raise InputError(f"{path} has type {end}, which has no table of nodes: each type needs one; add a table with a column id")


def _seed_type(name: str, is_labelled: dict[str, bool], seed_type: str | None) -> str:
    """Return the node type to train on: ``seed_type``, or the only type with labels."""
    labelled = [kind for kind, has in is_labelled.items() if has]
    if seed_type is None and len(labelled) != 1:
        raise InputError(
            f"{name}: labels of {', '.join(labelled) or 'no type'}: models are trained on the nodes of one type; "
            + ("" if labelled else "give one table a column label, or ")
            + "name it with seed_type (--seed-type of 'hoptrain data convert', data.seed_type in a configuration)"
        )
    if seed_type is not None and seed_type not in is_labelled:
        raise InputError(f"seed_type is {seed_type!r}: it must be a type with a table, {', '.join(is_labelled)}; name one of these")
    return seed_type or labelled[0]


def _relation(path: Path) -> Relation:
    parts = _stem(path).split("__")
    if len(parts) != 3:
        raise InputError(f"{path} names no relation: an edge table must be named SOURCE__NAME__DESTINATION; rename it")
    return parts[0], parts[1], parts[2]


class _Type:
    """The contents of a node type's table: node numbers, features and their encodings, labels and splits."""

    def __init__(self, kind: str, path: Path, reading: Reading, without: Without, bad: BadRows) -> None:
        """Read the table of a node type."""
        file = Table(path, header=True)
        file.rename(renamed(file.names, NODE_NAMES))
        self._table = table = NodeTable(without(file), bad, reading=reading, what=kind)
        self.numbers = NodeIndex(table.ids, source=path.name)
        self.x, self.encodings = table.x, table.encodings
        self.is_labelled = "label" in table.texts
        self.splits = splits_of(table, np.arange(len(table.ids))) if table.texts.keys() - {"label"} else {}

    def labels(self, reading: Reading) -> tuple[Array | None, list[str] | None]:
        """Return labels (V,) and the names of their classes."""
        return labels_of(self._table, reading) if self.is_labelled else (None, reading.classes)


class _Edges:
    """The contents of a relation's table: node numbers of both ends, features and encodings, and ``weights`` and ``times`` in ``rest``.

    The attribute ``left`` names the columns that are left out, since they cannot be converted to features.
    """

    def __init__(
        self, relation: Relation, path: Path, sources: NodeIndex, destinations: NodeIndex, reading: Reading, without: Without, bad: BadRows
    ) -> None:
        """Read the table of a relation."""
        self.path, name = path, relation_name(relation)
        table = Table(path, header=True)
        table.rename(renamed(table.names, EDGE_NAMES))
        names = [column for column in features_of(without(table)) if column not in reading.left(name)]
        columns = EdgeColumns.of(table, names, reading, what=name, known=f"known.{name}")
        if reading.like is None:
            is_left = {column: own.kind == "none" or (own.missing and reading.fills == "error") for column, own in columns.features.items()}
            columns = columns._replace(features={column: own for column, own in columns.features.items() if not is_left[column]})
        self.left = [column for column in features_of(table) if column not in columns.features]
        self.rest, self.columns = read_edges(table, sources, destinations, bad, columns=columns)
        self.ends = self.rest.pop("src"), self.rest.pop("dst")
        x = self.rest.pop("features", np.empty((0, sum(own.width for own in self.columns.features.values())), np.float32))
        self.x = x if self.columns.features else None
