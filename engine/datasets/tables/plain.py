"""A data set on one graph from a table of edges and, perhaps, files of features, labels and splits. Edges go through a file, never whole through memory."""

from __future__ import annotations

import csv
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import SPLITS, Dataset
from hoptrain.engine.datasets.source import RANDOM_SPLIT, narrow_features, random_splits
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.edges import edge_pieces, features_of
from hoptrain.engine.datasets.tables.nodes import VertexTable, Vertices, labels_of, numbers_of, splits_of
from hoptrain.engine.datasets.tables.rows import Progress, Table
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.files.untrusted import map_npy
from hoptrain.engine.graph import Graph

_ID_NAMES = ("id", "node", "node_id", "vertex", "nodeid")
_EDGE_NAMES = {name: name for name in ("src", "dst", "weight", "time")}
_EDGE_NAMES |= {"source": "src", "from": "src", "target": "dst", "destination": "dst", "to": "dst", "timestamp": "time"}
_VERTEX_NAMES = ("label", "split")
"""Of columns, in any case of letters."""
_PIECE = 1 << 22
IDS = "ids.csv"
"""In the folder of an imported data set: what the tables call its nodes, where that is not their number."""


def read_plain(
    edges: Path,
    *,
    features: Path | None = None,
    labels: Path | None = None,
    split: Path | str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    delimiter: str | None = None,
    header: bool | None = None,
    is_text: bool = False,
    undirected: bool = False,
    name: str = "data",
    scratch: Path | None = None,
    bad: BadRows | None = None,
    progress: Progress | None = None,
) -> tuple[Dataset, Array | None]:
    """A data set, validated, and the ids (V,) of its nodes, None where each is its number.

    Nodes are those of ``features``, in the order of its rows; without it those that any of the tables names, in the order of their ids.

    Args:
        edges: a table; columns ``src`` and ``dst`` (or ``source``, ``target``, ...; else the first two), ``weight`` and ``time`` where there
            are, all others features of edges. Ids of edges count its rows.
        features: a table with ``id`` (else its first column), and perhaps ``label`` and ``split``; or ``.npy`` (V, F), row i for node i.
        labels: a table of ids and labels, or ``.npy``.
        split: a table of ids and names of splits, or "random", 60/20/20 of the labelled nodes.
        columns: what the columns of ``edges`` are, in their order; "-" for one that is left out.
        drop: columns of any table that are left out.
        delimiter: of all tables, as ``header``: by default each is looked at.
        header: whether text files begin with the names of their columns.
        is_text: take ids for names, also where they look like numbers.
        undirected: add the reverse of each edge that is no loop, numbered behind all. Unless edges have times, two nodes are joined once, as the
            first row says that names both, in either order; ``meta`` says how many rows do so again.
        name: of the data set.
        scratch: where a file without a name holds the edges meanwhile: 16 bytes an edge, with weights, times and features more.
        bad: what becomes of rows that cannot be read; by default the first one is raised.
        progress: is told how far each file is read.

    Raises:
        InputError: a file or row that cannot be read; what ``Dataset`` refuses.
    """
    bad = bad or BadRows()
    own_split = split if isinstance(split, Path) else None
    opened, without = partial(Table, delimiter=delimiter, header=header), _Without(drop)
    table = without(_edge_table(opened(edges), columns))
    about = _about({"features": features, "label": labels, "split": own_split}, opened, without, bad, progress)
    _check_sources(about, split)
    tables = [own for own in about.values() if isinstance(own, VertexTable)]
    vertices = _vertices(about, is_number=not is_text, or_by=table)
    own = read_edges(table, vertices, vertices, bad, features=features_of(table), scratch=scratch, progress=progress)
    _number(own, tables, vertices, edges)
    y, splits, classes = _of_vertices(tables, vertices, bad)
    y = of_labels if isinstance(of_labels := about.get("label"), np.ndarray) else y
    graph, edge_attr, repeats = _graph(own, len(vertices), undirected, scratch)
    meta = _meta((edges, features, labels, own_split), classes, bad, repeats)
    if split == "random":
        splits, meta["split"] = random_splits(_labelled(y, len(vertices), name)), RANDOM_SPLIT
    x = rows.x if isinstance(rows := about.get("features"), VertexTable) else rows
    return Dataset(name=name, graph=graph, x=x, y=y, splits=splits, edge_attr=edge_attr, meta=meta), vertices.ids()


def read_edges(
    table: Table,
    sources: Vertices,
    destinations: Vertices,
    bad: BadRows,
    *,
    features: Sequence[str] = (),
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Array]:
    """Return the edges of a table, in files without a name in ``scratch``; names and errors are those of ``edge_pieces``."""
    with _spools(scratch) as spools:
        for piece in edge_pieces(table, sources, destinations, bad, features=features, progress=progress):
            for key, values in piece.items():
                spools[key].append(values)
        return {key: spool.array() for key, spool in spools.items()}


def _about(
    paths: Mapping[str, Path | None],
    opened: Callable[[Path], Table],
    without: _Without,
    bad: BadRows,
    progress: Progress | None,
) -> dict[str, VertexTable | Array]:
    """The files about nodes that are given, by their role: tables, or arrays with a row for each node."""
    about: dict[str, VertexTable | Array] = {}
    for role, path in paths.items():
        if path is None:
            continue
        if path.suffix == ".npy" and role == "split":
            raise InputError(f"{path}: a split is a table of ids and names of splits, or 'random'; write it as text")
        if path.suffix == ".npy":
            about[role] = narrow_features(_npy(path)) if role == "features" else _npy(path)
        else:
            about[role] = VertexTable(without(_vertex_table(opened(path), None if role == "features" else role)), bad, progress)
    without.check()
    return about


def _check_sources(about: Mapping[str, VertexTable | Array], split: Path | str | None) -> None:
    """Refuse labels, or splits, that two of the inputs have."""
    for role in _VERTEX_NAMES:
        sources = [own.path.name for own in about.values() if isinstance(own, VertexTable) and role in own.texts]
        sources += ["--labels"] if role == "label" and isinstance(about.get(role), np.ndarray) else []
        sources += ["--split random"] if role == "split" and split == "random" else []
        if len(sources) > 1:
            raise InputError(f"{' and '.join(sources)} state a {role} of nodes: one may; leave the column out of the others")


def _meta(paths: Sequence[Path | None], classes: list[str] | None, bad: BadRows, repeats: int) -> dict[str, Any]:
    source = f"tables: {', '.join(path.name for path in paths if path is not None)}"
    told = {"classes": classes, "skipped_rows": bad.skipped, "repeated_rows": repeats}
    return {"source": source} | {name: value for name, value in told.items() if value}


def _vertices(about: Mapping[str, VertexTable | Array], *, is_number: bool, or_by: Table) -> Vertices:
    """Those of the features, or of arrays' rows; else whatever the edges and other tables name, numbers if the first edge has some."""
    features = about.get("features")
    if isinstance(features, VertexTable):
        return Vertices(features.ids, is_number=is_number, source=features.path.name)
    array = next((own for own in about.values() if not isinstance(own, VertexTable)), None)
    if array is not None:
        return Vertices(len(array), source="the array of features or labels")
    return Vertices(is_number=is_number and or_by.begins_with_numbers(["src", "dst"]))


def _number(own: Mapping[str, Array], tables: Sequence[VertexTable], vertices: Vertices, edges: Path) -> None:
    """Make codes of the edges' ends numbers, in place, once all ids are known. No node at all is a mistake."""
    for table in tables if vertices.is_open else ():
        ids, good = vertices.as_ids(table.ids)
        vertices.codes(ids[good])
    final = vertices.close()
    if len(vertices) == 0:
        raise InputError(f"{edges} and what was given beside it name no node: no row could be read; correct the files")
    if final is None:
        return
    for ends in (own["src"], own["dst"]):
        for begin in range(0, len(ends), _PIECE):
            ends[begin : begin + _PIECE] = final(ends[begin : begin + _PIECE])


def write_ids(folder: Path, ids: Array) -> None:
    """Write what each node is called into a data set's folder: ``ids.csv``, a row a node."""
    with (folder / IDS).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["vertex", "id"])
        writer.writerows(enumerate(ids.tolist()))


class _Spool:
    """Rows in a file without a name, which ends with the last array of it."""

    def __init__(self, folder: Path | None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._dtype: Any = np.int64
        self._count, self._width = 0, ()

    def append(self, values: Array) -> None:
        self._dtype, self._width = values.dtype, values.shape[1:]
        self._count += len(values)
        self._file.write(np.ascontiguousarray(values).data)

    def array(self) -> Array:
        self._file.flush()
        shape = (self._count, *self._width)
        return np.asarray(np.memmap(self._file, self._dtype, mode="r+", shape=shape)) if self._count else np.empty(shape, self._dtype)

    def close(self) -> None:
        self._file.close()


@contextmanager
def _spools(folder: Path | None) -> Iterator[dict[str, _Spool]]:
    """Spools by name, made when they are first asked for; ``src`` and ``dst`` are always there."""
    spools: dict[str, _Spool] = defaultdict(lambda: _Spool(folder))
    try:
        spools["src"], spools["dst"] = _Spool(folder), _Spool(folder)
        yield spools
    finally:
        for spool in spools.values():
            spool.close()


def _edge_table(table: Table, columns: Sequence[str] | None) -> Table:
    """With its columns called ``src``, ``dst`` and so on."""
    if columns is not None:
        named = [own for own in columns if own != "-"]
        if len(columns) != len(table.names) or not {"src", "dst"} <= set(named) or len(set(named)) < len(named):
            raise InputError(
                f"--columns {','.join(columns)}: {table.path} has {len(table.names)} columns ({', '.join(table.names)}), and one of them is src, "
                "one dst; name each once, - for one that is left out"
            )
        table.rename([f"- {place}" if own == "-" else own for place, own in enumerate(columns)])
    elif not table.has_header:
        if len(table.names) != 2:
            raise InputError(
                f"{table.path} has {len(table.names)} columns and no header: say what they are, as --columns src,dst,weight (or time, the name of a "
                "feature, - for none), or part them by another --delimiter"
            )
        table.rename(["src", "dst"])
    else:
        names = [_EDGE_NAMES.get(own.lower(), own) for own in table.names]
        if not {"src", "dst"} <= set(names) or len(set(names)) < len(names):
            if len(names) < 2:
                raise InputError(f"{table.path} has the one column {names[0]}: an edge has two ends; name another --delimiter")
            names = ["src", "dst", *table.names[2:]]
        table.rename(names)
    return table


def _vertex_table(table: Table, role: str | None = None) -> Table:
    """With columns called ``id``, ``label`` and ``split``. Where one of the latter is its role, it has no features."""
    lower = [own.lower() for own in table.names]
    names = [own if own in _VERTEX_NAMES else given for own, given in zip(lower, table.names, strict=True)]
    at = next((lower.index(own) for own in _ID_NAMES if own in lower), 0)
    names[at] = "id"
    if role is not None:
        others = [i for i in range(len(names)) if i != at]
        own = names.index(role) if role in names else others[0] if len(others) == 1 else None
        if own is None:
            raise InputError(
                f"{table.path} has the columns {', '.join(table.names)}: it needs two, id and {role}, or one called {role}; name it so"
            )
        names = ["id" if i == at else role if i == own else name if name in _VERTEX_NAMES else f"- {i}" for i, name in enumerate(names)]
    table.rename(names)
    return table


class _Without:
    """Leaves columns out of tables, and knows which of them no table had."""

    def __init__(self, drop: Sequence[str]) -> None:
        self._drop = {name.lower() for name in drop}
        self._unused = set(self._drop)

    def __call__(self, table: Table) -> Table:
        self._unused.difference_update(map(str.lower, table.names))
        table.leave_out([name for name in table.names if name.startswith("- ") or name.lower() in self._drop])
        return table

    def check(self) -> None:
        """Refuse names that no table had."""
        if self._unused:
            raise InputError(f"--drop {min(self._unused)}: no table has a column of that name; correct it, or leave it out")


def _npy(path: Path) -> Array:
    try:
        array = np.asarray(map_npy(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({one_line(error)}): it is an array as np.save writes it; write it anew") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{path} is of {array.dtype}: features and labels are real numbers; encode them, or give names in a table")
    return array


def _of_vertices(
    tables: Sequence[VertexTable], vertices: Vertices, bad: BadRows
) -> tuple[Array | None, dict[str, Array], list[str] | None]:
    """Labels (V,), splits and the names of classes."""
    y, splits, classes = None, {}, None
    for table in tables:
        numbers = numbers_of(table.ids, vertices, table, bad)
        good = numbers >= 0
        if "label" in table.texts:
            own, classes = labels_of(table)
            y = np.full(len(vertices), np.nan if own.dtype.kind == "f" else -1, own.dtype)
            y[numbers[good]] = own[good]
        if "split" in table.texts:
            splits = splits_of(table, numbers)
    return y, splits, classes


def _labelled(y: Array | None, num_nodes: int, name: str) -> Array:
    """The nodes to split at random: those with a label, all where there are none."""
    if y is None:
        labelled = np.arange(num_nodes)
    elif len(y) != num_nodes:
        raise InputError(f"{name}: labels of {len(y):,} nodes: there are {num_nodes:,}; give one for each")
    else:
        is_one = ~np.isnan(y) if y.dtype.kind == "f" else y >= 0
        labelled = np.flatnonzero(is_one if is_one.ndim == 1 else is_one.all(axis=1))
    if len(labelled) < len(SPLITS):
        raise InputError(
            f"{name}: {len(labelled)} labelled nodes cannot be split at random: {', '.join(SPLITS)} need one each; label more, or give the split "
            "as a table"
        )
    return labelled


def _graph(own: Mapping[str, Array], num_nodes: int, undirected: bool, scratch: Path | None) -> tuple[Graph, Array | None, int]:
    """The graph of what ``edge_pieces`` gave, features by edge id, and how many rows join a pair again; arguments as of ``read_plain``."""
    is_first = _first_of_pair(own, num_nodes) if undirected and "times" not in own else None
    own = _with_reverses(own, scratch) if undirected else own
    graph = Graph.from_edges(own["src"], own["dst"], num_nodes, weights=own.get("weights"), times=own.get("times"))
    if is_first is None:
        return graph, own.get("features"), 0
    num_rows = len(is_first)
    is_kept = np.concatenate([is_first, is_first[own["src"][:num_rows] != own["dst"][:num_rows]]])  # by id; loops have no reverse
    return graph.with_edges(is_kept[graph.ids_of(np.arange(graph.num_edges))]), own.get("features"), num_rows - int(is_first.sum())


def _first_of_pair(own: Mapping[str, Array], num_nodes: int) -> Array:
    """(E,) bool: whether no row above joins the same two nodes, in either order."""
    pairs = Graph.from_edges(np.minimum(own["src"], own["dst"]), np.maximum(own["src"], own["dst"]), num_nodes).without_repeats()
    is_first = np.zeros(len(own["src"]), bool)
    is_first[pairs.ids_of(np.arange(pairs.num_edges))] = True
    return is_first


def _with_reverses(own: Mapping[str, Array], scratch: Path | None) -> dict[str, Array]:
    """All edges, and behind them the reverse of each that is no loop."""
    with _spools(scratch) as spools:
        for is_reverse in (False, True):
            for begin in range(0, len(own["src"]), _PIECE):
                piece = {name: values[begin : begin + _PIECE] for name, values in own.items()}
                if is_reverse:
                    is_kept = piece["src"] != piece["dst"]
                    piece = {name: values[is_kept] for name, values in (piece | {"src": piece["dst"], "dst": piece["src"]}).items()}
                for name, values in piece.items():
                    spools[name].append(values)
        return {name: spool.array() for name, spool in spools.items()}
