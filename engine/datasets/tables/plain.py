"""Import of homogeneous graphs from an edge table and optional files of features, labels and splits. Edges are kept in temporary files, not in memory."""

from __future__ import annotations

import csv
import logging
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.source import RANDOM_SPLIT, narrow_features
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.edges import EdgeColumns, edge_pieces, features_of
from hoptrain.engine.datasets.tables.encodings import Encoding, encodings_in
from hoptrain.engine.datasets.tables.first_lines import check_first_lines
from hoptrain.engine.datasets.tables.nodes import NodeIndex, NodeTable, labels_of, numbers_of, splits_of
from hoptrain.engine.datasets.tables.reading import AS_THEY_ARE, OPTIONS, TABLES, Reading
from hoptrain.engine.datasets.tables.rows import FrameTable, Progress, Table
from hoptrain.engine.errors import InputError, check_choice, join_limited, one_line
from hoptrain.engine.features.splits import ALL_IN_TEST, MASKS, SPLIT_WORDS, all_in_test, labelled_nodes, random_splits
from hoptrain.engine.files.untrusted import map_npy
from hoptrain.engine.graph import Graph

_log = logging.getLogger(__name__)
_ID_NAMES = ("id", "node", "node_id", "vertex", "nodeid")
EDGE_NAMES = {
    "src": ("src", "source", "from"),
    "dst": ("dst", "target", "destination", "to"),
    "weight": ("weight", "weights", "edge_weight"),
    "time": ("time", "times", "timestamp", "datetime", "date", "edge_time"),
}
NODE_NAMES = {"label": ("label", "labels", "class", "y", "target"), "split": ("split",)} | {name: (name,) for name in MASKS}
"""Role of a special column of a node table -> its usual names. Case is ignored. If a table has several of these names, the first one in the list is used."""
LABEL_NAMES = ", ".join(NODE_NAMES["label"][:-1]) + f" or {NODE_NAMES['label'][-1]}"
_PIECE = 1 << 22
Frame: TypeAlias = Any
"""Type of a ``pandas.DataFrame``; it is ``Any``, so that this module need not import pandas."""
IDS = "ids.csv"
"""Name of a file in the folder of an imported data set. It holds the node ids that the tables use, if these differ from hoptrain's node ids."""


def read_plain(
    edges: Path | Frame,
    *,
    features: Path | Frame | None = None,
    labels: Path | str | None = None,
    split: Path | str | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    is_text: bool = False,
    undirected: bool | None = None,
    reading: Reading = AS_THEY_ARE,
    name: str = "data",
    scratch: Path | None = None,
    bad: BadRows | None = None,
    progress: Progress | None = None,
) -> tuple[Dataset, Array | None]:
    """Read and validate a data set from tables. Return the data set and the ids (V,) of its nodes, or None if these equal the node numbers.

    The nodes are the rows of ``features``, in their order. Without ``features`` they are all nodes that occur in the tables, in ascending order of ids.

    Args:
        edges: edge table with columns ``src`` and ``dst`` (or other usual names; otherwise the first two columns) and optionally ``weight`` and
            ``time``. All other columns are edge features. Edge ids are row numbers.
        features: node table with a column ``id`` (otherwise the first) and optionally ``label`` and ``split``; or a ``.npy`` file (V, F) by node.
        labels: table of ids and labels, a ``.npy`` file with labels by node, or the name of the column of labels in ``features``.
        split: table of ids and names of splits; or "random" to divide the labelled nodes 60/20/20 at random, or "test" for a test split of all of them.
        columns: names or roles of the columns of ``edges``, in their order; "-" leaves a column out. By default the roles of their names in ``reading.like``.
        delimiter: character that separates cells in all tables; by default detected for each table.
        header: whether text files begin with the column names; by default detected for each table.
        is_text: True to treat ids as names even if they look like numbers.
        undirected: True to add the reverse of each edge but self-loops, with ids after all others, and to merge repeated pairs if there are no times.
            By default as in ``reading.like``.
        reading: options for reading columns and their cells.
        name: name of the data set.
        scratch: folder for temporary files that hold the edges: 16 bytes per edge, more with weights, times and features.
        bad: handling of rows that cannot be read; by default the first such row raises an error.
        progress: callback that receives the fraction of each file that was read.

    Raises:
        InputError: a file or row cannot be read, or the data set is invalid.
    """
    bad, opened, without = bad or BadRows(), partial(_opened, delimiter=delimiter, header=header, assumed=reading.header), Without(reading)
    undirected = bool(reading.repeat("undirected", undirected, reading.recorded.get("undirected")))
    table, roles = _edge_table(opened(edges, "edges"), columns, reading, without)
    files = {"features": features, "label": labels, "split": split}
    about = _about(files, opened, without, bad, progress, reading)
    node_index = _node_index(about, is_number=not is_text, or_by=table)
    coded = EdgeColumns.of(table, features_of(table), reading)
    own, coded = read_edges(table, node_index, node_index, bad, columns=coded, scratch=scratch, progress=progress)
    _number(own, about, node_index, table)
    y, splits, classes = _of_nodes(about, node_index, reading)
    bad.finish()
    graph, edge_attr, repeats = _graph(own, len(node_index), undirected, scratch)
    x, of_x = (rows.x, rows.encodings) if isinstance(rows := about.get("features"), NodeTable) else (rows, {})
    meta = _meta([table.path, *files.values()], classes, bad, repeats, {"x": of_x, "edge_attr": coded.features, "known": coded.known})
    meta[OPTIONS] = reading.as_json() | {"undirected": undirected, "columns": roles} | _of_files(rows, reading, header)
    if isinstance(split, str):
        splits, meta["split"] = _splits_by(split, y, len(node_index), name)
    return Dataset(name=name, graph=graph, x=x, y=y, splits=splits, edge_attr=edge_attr, meta=meta), node_index.ids()


def _opened(source: Path | Frame, name: str, **options: Any) -> Table:
    return Table(source, **options) if isinstance(source, Path) else FrameTable(source, name)


def read_edges(
    table: Table,
    sources: NodeIndex,
    destinations: NodeIndex,
    bad: BadRows,
    *,
    columns: EdgeColumns,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Array], EdgeColumns]:
    """Return the arrays of ``edge_pieces`` for a whole table, stored in temporary files in the folder ``scratch``, and the final encodings."""
    with _spools(scratch) as spools:
        for piece in edge_pieces(table, sources, destinations, bad, columns=columns, progress=progress):
            for key, values in piece.items():
                spools[key].append(values)
        arrays = {key: spool.array() for key, spool in spools.items()}
    return arrays, columns.filled(arrays)


def _about(
    sources: Mapping[str, Path | Frame | str | None],
    opened: Callable[[Path | Frame, str], Table],
    without: Without,
    bad: BadRows,
    progress: Progress | None,
    reading: Reading,
) -> dict[str, NodeTable | Array]:
    """Read the files with features, labels and splits. Return the contents by role, as tables or as arrays with one row per node."""
    about: dict[str, NodeTable | Array] = {}
    for role, source in sources.items():
        if isinstance(source, Path) and source.suffix == ".npy":
            if role == "split":
                raise InputError(f"{source}: a split must be a table of ids and names of splits, or 'random' or 'test'; write it as text")
            about[role] = narrow_features(_npy(source)) if role == "features" else _npy(source)
        elif source is not None and not isinstance(source, str):
            table = opened(source, "nodes")
            if role == "features":
                _name_label(table, sources["label"], reading.column_of("label"))
            table = without(_vertex_table(table, None if role == "features" else role, reading.column_of("id")))
            about[role] = NodeTable(table, bad, progress, reading if role == "features" else AS_THEY_ARE)
    without.check()
    if not isinstance(about.get("features"), NodeTable) and (known := encodings_in(reading.like.meta if reading.like else {}, "x")):
        raise InputError(
            f"{reading.source} has the features {join_limited(known)} of nodes: new data must have the same; give a table with them by --features"
        )
    _check_sources(about, sources["split"])
    return about


def _check_sources(about: Mapping[str, NodeTable | Array], split: Path | Frame | str | None) -> None:
    """Raise InputError if several inputs have labels, or several have splits."""
    for role, names in (("label", {"label"}), ("split", {"split", *MASKS})):
        sources = [own.path.name for own in about.values() if isinstance(own, NodeTable) and names & own.texts.keys()]
        sources += ["--labels"] if role == "label" and isinstance(about.get(role), np.ndarray) else []
        sources += [f"--split {split}"] if role == "split" and isinstance(split, str) else []
        if len(sources) > 1:
            raise InputError(
                f"{' and '.join(sources)} have a {role} column of nodes: only one file may; leave the column out of the others"
            )


def _meta(
    files: Sequence[Path | Frame | str | None],
    classes: list[str] | None,
    bad: BadRows,
    repeats: int,
    encodings: Mapping[str, Mapping[str, Encoding]],
) -> dict[str, Any]:
    source = f"{TABLES}{', '.join(file.name if isinstance(file, Path) else 'nodes' for file in files if not isinstance(file, str | None))}"
    skipped = {file: count for file, (count, _) in bad.counts.items()}
    columns = {what: {name: own.as_json() for name, own in each.items()} for what, each in encodings.items() if each}
    told = {"classes": classes, "skipped_rows": skipped, "repeated_rows": repeats, "columns": columns}
    return {"source": source} | {name: value for name, value in told.items() if value}


def _of_files(rows: NodeTable | Array | None, reading: Reading, header: bool | None) -> dict[str, Any]:
    """Return options for files like these: whether they have a header, if it is not detected, and the columns of ids and labels of a node table."""
    header = reading.header if header is None else header
    found: dict[str, Any] = {} if header is None else {"header": header}
    if isinstance(rows, NodeTable) and rows.table.has_header:
        found |= {role: rows.table.name_in_file(role) for role in ("id", "label") if role in rows.table.names}
    return found


def _node_index(about: Mapping[str, NodeTable | Array], *, is_number: bool, or_by: Table) -> NodeIndex:
    """Return the mapping from ids to nodes. It is built from the feature table, the rows of an array, or else from all ids in the tables."""
    features = about.get("features")
    if isinstance(features, NodeTable):
        return NodeIndex(features.ids, is_number=is_number, source=features.path.name)
    array = next((own for own in about.values() if not isinstance(own, NodeTable)), None)
    if array is not None:
        return NodeIndex(len(array), source="the array of features or labels")
    return NodeIndex(is_number=is_number and or_by.begins_with_numbers(["src", "dst"]))


def _number(own: Mapping[str, Array], about: Mapping[str, NodeTable | Array], node_index: NodeIndex, edges: Table) -> None:
    """Once all ids are known, replace the codes of both ends of the edges with node numbers, in place.

    Raises:
        InputError: there are no nodes, or the first line of a file may be column names as well as a row.
    """
    tables = [table for table in about.values() if isinstance(table, NodeTable)]
    for table in tables if node_index.is_open else ():
        ids, good = node_index.as_ids(table.ids)
        node_index.codes(ids[good])
    final = node_index.close()
    if len(node_index) == 0:
        raise InputError(f"{edges.path} and the other files contain no node: at least one row must be readable; correct the files")
    if final is not None:
        for ends in (own["src"], own["dst"]):
            for begin in range(0, len(ends), _PIECE):
                ends[begin : begin + _PIECE] = final(ends[begin : begin + _PIECE])
    check_first_lines(edges, own, tables, node_index)


def write_ids(folder: Path, ids: Array) -> None:
    """Write the ids (V,) of nodes to ``ids.csv`` in a data set's folder, one row per node."""
    with (folder / IDS).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["node", "id"])
        writer.writerows(enumerate(ids.tolist()))


def copy_ids(source: Path | None, folder: Path) -> None:
    """Copy ``ids.csv`` from the folder of a data set to that of another with the same nodes. Do nothing if there is none."""
    if source is not None and (source / IDS).is_file():
        shutil.copyfile(source / IDS, folder / IDS)


class _Spool:
    """A growing array in an anonymous temporary file, which is deleted when no array maps it any more."""

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
    """Yield ``_Spool`` objects by name, which are created at first access; ``src`` and ``dst`` always exist."""
    spools: dict[str, _Spool] = defaultdict(lambda: _Spool(folder))
    try:
        spools["src"], spools["dst"] = _Spool(folder), _Spool(folder)
        yield spools
    finally:
        for spool in spools.values():
            spool.close()


def _edge_table(table: Table, columns: Sequence[str] | None, reading: Reading, without: Without) -> tuple[Table, dict[str, str]]:
    """Rename an edge table's columns to ``src``, ``dst`` and so on. Return the table, and the new name of each column, "-" if it is left out."""
    names = table.names
    _name_columns(table, reading.roles_in(names) if columns is None else columns)
    roles = {before: "-" if name.startswith("- ") else name for before, name in zip(names, table.names, strict=True)}
    return without(table), roles


def _name_columns(table: Table, columns: Sequence[str] | None) -> None:
    """Rename the columns of an edge table to ``columns``, or by its header."""
    if columns is not None:
        names, named = renamed(columns, EDGE_NAMES), [own for own in columns if own != "-"]
        if len(columns) != len(table.names) or not {"src", "dst"} <= set(names) or len(set(named)) < len(named):
            raise InputError(
                f"--columns {','.join(columns)}: {table.path} has {len(table.names)} columns ({', '.join(table.names)}), which must include src and "
                "dst; name each once, or - to leave it out"
            )
        table.rename([f"- {place}" if own == "-" else own for place, own in enumerate(names)])
    elif not table.has_header:
        if len(table.names) != 2:
            raise InputError(
                f"{table.path} has {len(table.names)} columns and no header: their roles must be given; give --columns src,dst,weight (or time, the name "
                "of a feature, - for none), --header if the first line names them, or another --delimiter"
            )
        table.rename(["src", "dst"])
    else:
        names = renamed(table.names, EDGE_NAMES)
        if not {"src", "dst"} <= set(names):
            if len(names) < 2:
                raise InputError(f"{table.path} has the one column {names[0]}: an edge needs two; give another --delimiter")
            names = ["src", "dst", *renamed(table.names[2:], {role: EDGE_NAMES[role] for role in ("weight", "time")})]
        table.rename(names)


def renamed(names: Sequence[str], roles: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the column names after replacing, for each role, the first usual name that occurs by the role."""
    lower = [name.lower() for name in names]
    found = {next((lower.index(own) for own in usual if own in lower), -1): role for role, usual in roles.items()}
    return [found.get(i, name) for i, name in enumerate(names)]


def _name_label(table: Table, given: Path | Frame | str | None, known: str | None) -> None:
    """Rename the column of labels of a node table to ``label``: the column ``given``, or else the column ``known``, if the table has it.

    Raises:
        InputError: the table has no column ``given``, or another one named ``label``.
    """
    lower, name = [own.lower() for own in table.names], given.lower() if isinstance(given, str) else known
    if isinstance(given, str) and name not in lower:
        raise InputError(
            f"--labels {given}: it is neither a file nor a column of {table.path}, which has {join_limited(table.names)}; give one of them"
        )
    if name not in lower or not isinstance(given, str | None):
        return
    if name != "label" and "label" in lower:
        raise InputError(f"{table.path} has the columns {name} and label: only one can have the labels; rename or remove the other")
    table.rename(["label" if own == name else before for own, before in zip(lower, table.names, strict=True)])


def _vertex_table(table: Table, role: str | None = None, id_name: str | None = None) -> Table:
    """Rename a node table's columns to ``id``, ``label``, ``split`` and so on. A table with role ``label`` or ``split`` has no features.

    Ids are in the column ``id_name``, or else in the first one with a usual name, or else in the first one.
    """
    lower = [own.lower() for own in table.names]
    at = next((lower.index(own) for own in (id_name, *_ID_NAMES) if own in lower), 0)
    names = renamed([own if i != at else "id" for i, own in enumerate(table.names)], NODE_NAMES)
    if role is not None:
        others = [i for i in range(len(names)) if i != at]
        own = names.index(role) if role in names else others[0] if len(others) == 1 else None
        if own is None and not (role == "split" and {*MASKS} & {*names}):
            raise InputError(
                f"{table.path} has the columns {', '.join(table.names)}: it needs two, id and {role}, or one named {role}; rename it"
            )
        names = ["id" if i == at else role if i == own else name if name in NODE_NAMES else f"- {i}" for i, name in enumerate(names)]
    table.rename(names)
    return table


class Without:
    """A function object that removes columns from tables, and records which of the columns that the user named no table had."""

    def __init__(self, reading: Reading) -> None:
        """Remove the columns that ``reading`` leaves out."""
        self._unused = {name.lower() for name in reading.drop}
        self._drop = self._unused | {name.lower() for name in reading.dropped()}

    def __call__(self, table: Table) -> Table:
        """Remove columns from a table, and return it."""
        self._unused.difference_update(map(str.lower, table.names))
        table.leave_out([name for name in table.names if name.startswith("- ") or name.lower() in self._drop])
        return table

    def check(self) -> None:
        """Raise InputError if a column was in no table."""
        if self._unused:
            raise InputError(f"--drop {min(self._unused)}: no table has such a column; give an existing column, or leave it out")


def _npy(path: Path) -> Array:
    try:
        array = np.asarray(map_npy(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({one_line(error)}): it must be an array that np.save wrote; write it again") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{path} is {array.dtype}: features and labels must be real numbers; encode them, or give names in a table")
    return array


def _of_nodes(
    about: Mapping[str, NodeTable | Array], node_index: NodeIndex, reading: Reading
) -> tuple[Array | None, dict[str, Array], list[str] | None]:
    """Return labels (V,) or (V, C), splits and the names of classes from node tables or arrays."""
    splits, classes = {}, reading.classes
    y = labels if isinstance(labels := about.get("label"), np.ndarray) else None
    for table in (own for own in about.values() if isinstance(own, NodeTable)):
        numbers = numbers_of(table.ids, node_index, table)
        good = numbers >= 0
        if "label" in table.texts:
            own, classes = labels_of(table, reading)
            y = np.full(len(node_index), np.nan if own.dtype.kind == "f" else -1, own.dtype)
            y[numbers[good]] = own[good]
        if table.texts.keys() - {"label"}:
            splits = splits_of(table, numbers)
    return y, splits, classes


def _splits_by(word: str, y: Array | None, num_nodes: int, name: str) -> tuple[dict[str, Array], str]:
    """Return the splits that a word names, and their description. Without labels, ``random`` splits all nodes."""
    check_choice("split", word, SPLIT_WORDS)
    if y is not None and len(y) != num_nodes:
        raise InputError(f"{name}: labels of {len(y):,} nodes: there are {num_nodes:,}; give one for each")
    if word == "test":
        return all_in_test(name, y), ALL_IN_TEST
    if y is None:
        _log.warning(f"{name}: no labels, so split random divides all {num_nodes:,} nodes: name the column of labels {LABEL_NAMES}")
    return random_splits(labelled_nodes(name, y, num_nodes)), RANDOM_SPLIT


def _graph(own: Mapping[str, Array], num_nodes: int, undirected: bool, scratch: Path | None) -> tuple[Graph, Array | None, int]:
    """Build the graph from the arrays of ``edge_pieces``. Return the graph, edge features by edge id, and the number of rows that repeat a pair of nodes."""
    is_first = _first_of_pair(own, num_nodes) if undirected and "times" not in own else None
    own = _with_reverses(own, scratch) if undirected else own
    graph = Graph.from_edges(own["src"], own["dst"], num_nodes, weights=own.get("weights"), times=own.get("times"))
    if is_first is None:
        return graph, own.get("features"), 0
    num_rows = len(is_first)
    is_kept = np.concatenate(
        [is_first, is_first[own["src"][:num_rows] != own["dst"][:num_rows]]]
    )  # indexed by edge id; self-loops have no reverse edge
    return graph.with_edges(is_kept[graph.ids_of(np.arange(graph.num_edges))]), own.get("features"), num_rows - int(is_first.sum())


def _first_of_pair(own: Mapping[str, Array], num_nodes: int) -> Array:
    """Return (E,) bool, True for the first row of each unordered pair of nodes."""
    pairs = Graph.from_edges(np.minimum(own["src"], own["dst"]), np.maximum(own["src"], own["dst"]), num_nodes).without_repeats()
    is_first = np.zeros(len(own["src"]), bool)
    is_first[pairs.ids_of(np.arange(pairs.num_edges))] = True
    return is_first


def _with_reverses(own: Mapping[str, Array], scratch: Path | None) -> dict[str, Array]:
    """Return all edges, followed by the reverses of all edges except self-loops."""
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
