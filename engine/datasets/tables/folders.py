"""A folder of tables, one for each node type and one for each relation: ``.csv``, ``.csv.gz`` or ``.parquet`` (by pyarrow).

``nodes/paper.csv`` has a column ``id``, numbers or texts, no two alike: nodes are numbered in the order of rows. ``label`` holds classes, whole
numbers from 0 on or names, empty for none; ``split`` the name of a node's split, empty for none; all other columns are features, in their order, of
Parquet also columns of lists of equal length. ``edges/author__writes__paper.csv`` has ``src`` and ``dst``, ids of both types, and perhaps ``weight``
and ``time``; ids of edges count its rows. Other columns of edges are not carried over. ``nodes.csv`` and ``edges.csv`` in place of these folders are
a plain graph, whose edges may have features, too (``plain.py``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.cache import fingerprint, open_cached
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.edges import features_of
from hoptrain.engine.datasets.tables.nodes import VertexTable, Vertices, labels_of, splits_of
from hoptrain.engine.datasets.tables.plain import read_edges, read_plain
from hoptrain.engine.datasets.tables.rows import Table
from hoptrain.engine.errors import InputError
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph, Relation

_VERSION = 2
_SUFFIXES = (".csv", ".csv.gz", ".parquet")


def is_tables(folder: Path) -> bool:
    """Whether a folder holds tables of nodes and of edges."""
    return bool(table_files(folder))


def table_files(folder: Path) -> list[Path]:
    """The tables of a folder; none unless there are some of nodes and some of edges."""
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
    kind: type[Dataset | HeteroDataset] = Dataset if is_plain else HeteroDataset
    return open_cached(kind, key, lambda writer: read_tables(folder, seed_type).write_to(writer))


def read_tables(folder: Path, seed_type: str | None = None) -> Dataset | HeteroDataset:
    """The data set in a folder, in memory, validated: one on a heterogeneous graph, or a ``Dataset`` of ``nodes.csv`` and ``edges.csv``.

    Args:
        folder: of the tables.
        seed_type: the type of a heterogeneous graph that is trained on; by default the only one with labels.

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
        return read_plain(plain["edges"], features=plain["nodes"], header=True, name=folder.name)[0]
    nodes = {_stem(path): path for path in files if path.parent.name == "nodes"}
    edges = {_relation(path): path for path in files if path.parent.name == "edges"}
    return read_hetero_tables(nodes, edges, seed_type, name=folder.name)


def read_hetero_tables(
    nodes: Mapping[str, str | Path], edges: Mapping[Relation, str | Path], seed_type: str | None = None, *, name: str = "data"
) -> HeteroDataset:
    r"""A data set from a table for each type of vertices and one for each relation, ``.csv``, ``.csv.gz`` or ``.parquet``, wherever they lie.

    It is in memory, validated. ``load_hetero_dataset`` opens a folder of such tables, whose names tell what they are; columns are as there.

    Args:
        nodes: a table with a column ``id`` for each type, and perhaps ``label``, ``split`` and features.
        edges: a table with columns ``src`` and ``dst`` for each relation, and perhaps ``weight`` and ``time``.
        seed_type: the type of the vertices that are trained on, by default the only one with labels.
        name: for messages.

    Raises:
        InputError: a row that cannot be, by file, row, value and rule; a relation of a type without a table; what ``HeteroDataset`` refuses.

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
    relations = {relation: Path(path) for relation, path in edges.items()}
    _check_relations(relations, nodes)
    types = {kind: _Type(Path(path)) for kind, path in nodes.items()}
    seed_type = _seed_type(name, {kind: own.y is not None for kind, own in types.items()}, seed_type)
    ends: dict[Relation, tuple[Array, Array]] = {}
    options: dict[str, dict[Relation, Array]] = {"weights": {}, "times": {}}
    left: list[str] = []
    for relation, path in relations.items():
        table = Table(path, header=True)
        others = features_of(table)
        table.leave_out(others)
        left += [f"{path.name}: {column}" for column in others]
        own = read_edges(table, types[relation[0]].numbers, types[relation[2]].numbers, BadRows())
        ends[relation] = own.pop("src"), own.pop("dst")
        for option, values in own.items():
            options[option][relation] = values
    seeds = types[seed_type]
    meta: dict[str, Any] = {"source": f"tables: {', '.join(Path(path).name for path in (*nodes.values(), *edges.values()))}"}
    meta |= ({} if seeds.classes is None else {"classes": seeds.classes}) | ({"not_carried": left} if left else {})
    return HeteroDataset(
        name=name,
        graph=HeteroGraph.from_edges({kind: len(own.numbers) for kind, own in types.items()}, ends, **options),
        seed_type=seed_type,
        x={kind: own.x for kind, own in types.items() if own.x is not None},
        y=seeds.y,
        splits=seeds.splits,
        meta=meta,
    )


def _check_relations(relations: Mapping[Relation, Path], nodes: Mapping[str, str | Path]) -> None:
    for relation, path in relations.items():
        if not isinstance(relation, tuple) or len(relation) != 3:
            raise InputError(f"{relation!r} is no relation: {path} is that of (source type, name, destination type); give three texts")
        for end in (relation[0], relation[2]):
            if end not in nodes:
                raise InputError(f"{path} joins type {end}: there is no table of its nodes; add one with a column id")


def _seed_type(name: str, is_labelled: dict[str, bool], seed_type: str | None) -> str:
    """The type that is trained on, among all types."""
    labelled = [kind for kind, has in is_labelled.items() if has]
    if seed_type is None and len(labelled) != 1:
        raise InputError(
            f"{name}: labels of {', '.join(labelled) or 'no type'}: nodes of one type are trained on; "
            + ("name it by seed_type (data.seed_type in a configuration)" if labelled else "give one table a column label")
        )
    if seed_type is not None and seed_type not in is_labelled:
        raise InputError(f"seed_type is {seed_type!r}: {name} has tables of {', '.join(is_labelled)}; name one of these types")
    return seed_type or labelled[0]


def _relation(path: Path) -> Relation:
    parts = _stem(path).split("__")
    if len(parts) != 3:
        raise InputError(f"{path} names no relation: a table of edges is called SOURCE__NAME__DESTINATION; rename it")
    return parts[0], parts[1], parts[2]


class _Type:
    """A type's nodes: their numbers, features, labels and splits."""

    def __init__(self, path: Path) -> None:
        """Read its table."""
        bad = BadRows()
        table = VertexTable(Table(path, header=True), bad)
        self.numbers = Vertices(table.ids, source=path.name)
        self.x = table.x
        self.y: Array | None = None
        self.classes: list[str] | None = None
        if "label" in table.texts:
            self.y, self.classes = labels_of(table)
        self.splits = splits_of(table, np.arange(len(table.ids))) if "split" in table.texts else {}
