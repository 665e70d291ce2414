"""Node tables, and the numbering of nodes by the ids that tables contain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.source import narrow_features
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.cells import WHOLE, Kind, are_whole
from hoptrain.engine.datasets.tables.rows import Progress, Table
from hoptrain.engine.errors import InputError
from hoptrain.engine.features.splits import SPLITS

KNOWN: Mapping[str, Kind] = {"label": "text", "split": "text"}


class VertexTable:
    """The contents of a node table: ids, labels, splits and features.

    Attributes:
        path: path of the file.
        ids: (N,) distinct, non-empty texts.
        places: (N,) line or row numbers.
        texts: the columns ``label`` and ``split`` as texts (N,), if present.
        x: features (N, F) float32 or uint8, all other columns in their order; or None.
    """

    def __init__(self, table: Table, bad: BadRows, progress: Progress | None = None) -> None:
        """Read the columns ``id``, ``label``, ``split`` and features of a table.

        Raises:
            InputError: there is no column ``id``, or ``bad`` raises for a row.
        """
        self.path, self.unit, self._bad = table.path, table.unit, bad
        if "id" not in table.names:
            raise InputError(f"{table.path} has no column id: a node table needs one, and has {', '.join(table.names)}; correct the header")
        features = [name for name in table.names if name != "id" and name not in KNOWN]
        kinds: dict[str, Kind] = {name: "key" if name == "id" else KNOWN.get(name, "number") for name in table.names}
        parts: dict[str, list[Array]] = {name: [np.empty(0, object)] for name in ("id", *KNOWN) if name in table.names}
        rows: list[Array] = []
        places = [np.empty(0, np.int64)]
        for piece in table.pieces(kinds, bad, progress):
            for name, own in parts.items():
                own.append(piece.columns[name])
            if features:
                columns = [piece.columns[name] for name in features]
                rows.append(np.concatenate([each if each.ndim == 2 else each[:, None] for each in columns], axis=1, dtype=np.float32))
            places.append(piece.places)
        texts = {name: np.concatenate(own) for name, own in parts.items()}
        kept = self._without_repeats(texts["id"], np.concatenate(places))
        self.ids, self.places = texts.pop("id")[kept], np.concatenate(places)[kept]
        self.texts = {name: own[kept] for name, own in texts.items()}
        if features and not rows:
            rows.append(np.empty((0, len(features)), np.float32))
        self.x = narrow_features(np.concatenate(rows)[kept]) if rows else None

    def _without_repeats(self, ids: Array, places: Array) -> Any:
        """Return a selection of the rows without repeated ids, and report each repetition to ``bad``."""
        import pandas  # type: ignore[import-untyped]

        again = pandas.Series(ids, dtype=object).duplicated().to_numpy(bool)
        if not again.any():
            return slice(None)
        for row in np.flatnonzero(again):
            self._bad.add(
                self.path, f"{self.unit} {places[row]}", f"id is {ids[row]!r}: each node must have one row; give another id or drop the row"
            )
        self._bad.end(self.path)
        return ~again


def labels_of(table: VertexTable) -> tuple[Array, list[str] | None]:
    """Convert ``texts["label"]`` to labels (N,), and return the names of the classes if they have names.

    Integers become int64 classes, -1 for none. Other numbers become float32 targets, NaN for none. Other texts are class names, numbered in
    alphabetical order.

    Raises:
        InputError: a class is below -1.
    """
    texts = table.texts["label"]
    given = texts != ""
    if are_whole(texts[given]):
        y = np.full(len(texts), -1, np.int64)
        y[given] = texts[given].astype(np.int64)
        wrong = np.flatnonzero(y < -1)
        if len(wrong):
            raise InputError(
                f"{table.path}, {table.unit} {table.places[wrong[0]]}: label is {y[wrong[0]]}: classes must be 0 or more, and empty or -1 for none; "
                "give such a class"
            )
        return y, None
    targets = np.full(len(texts), np.nan, np.float32)
    try:
        targets[given] = texts[given].astype(np.float64)
    except ValueError:
        pass
    else:
        return targets, None
    y = np.full(len(texts), -1, np.int64)
    classes, y[given] = np.unique(texts[given].astype(str), return_inverse=True)
    return y, classes.tolist()


def splits_of(table: VertexTable, numbers: Array) -> dict[str, Array]:
    """Return the nodes of each split by name, ascending. ``numbers`` (N,) are the rows' node numbers, -1 to ignore a row.

    Raises:
        InputError: a name resembles ``train``, ``val`` or ``test`` but differs, such as ``Training``.
    """
    texts = table.texts["split"]
    for name in dict.fromkeys(texts):
        meant = next((own for own in SPLITS if name != own and name.lower().startswith(own) and not name.startswith(f"{own}_")), None)
        if meant is not None:
            line = table.places[np.flatnonzero(texts == name)[0]]
            raise InputError(
                f"{table.path}, {table.unit} {line}: split is {name!r}: splits for training must be named {', '.join(SPLITS)}; write {meant}"
            )
    texts, numbers = texts[numbers >= 0], numbers[numbers >= 0]
    return {str(name): np.sort(numbers[texts == name]) for name in dict.fromkeys(texts) if name != ""}


class Vertices:
    """A numbering of nodes by id, from 0: in the row order of a node table or, without one, in ascending order of all ids in the tables.

    Attributes:
        is_number: whether ids are int64 integers; otherwise they are texts.
        is_open: whether new ids are added as nodes; ids have provisional codes until ``close``.
    """

    def __init__(self, ids: Array | int | None = None, *, is_number: bool = True, source: str = "") -> None:
        """Create a numbering from a table's ids (N,), from the number of rows (ids are row numbers), or from None to collect ids.

        ``source`` is the name of the ids' file in messages.
        """
        import pandas

        self.source, self.is_open = source, ids is None
        self.is_number = is_number and (not isinstance(ids, np.ndarray) or (len(ids) > 0 and are_whole(ids)))
        self._seen: list[Array] = [np.empty(0, np.int64)]
        self._codes: dict[str, int] = {}
        self._index: Any = None
        self._count = ids if isinstance(ids, int) else 0
        if isinstance(ids, np.ndarray):
            self._index, self._count = pandas.Index(ids.astype(np.int64) if self.is_number else ids), len(ids)

    def __len__(self) -> int:
        """Return the number of nodes V, which is known after ``close``."""
        return self._count

    @property
    def kind(self) -> Kind:
        """Kind of the columns that contain these ids."""
        return "id" if self.is_number else "key"

    def codes(self, ids: Array) -> Array:
        """Return the numbers (N,) int64 of ids (N,), -1 if unknown; before ``close`` provisional codes."""
        import pandas

        if self._index is not None:
            found: Array = self._index.get_indexer(ids).astype(np.int64)
            return found
        if not self.is_open:
            return np.where((ids >= 0) & (ids < self._count), ids, -1)
        if self.is_number:
            self._seen.append(pandas.unique(ids))
            if sum(map(len, self._seen[1:])) > max(len(self._seen[0]), 1 << 22):  # merging at doubled size sorts each id only a few times
                self._seen = [np.unique(np.concatenate(self._seen))]
            return ids
        places, names = pandas.factorize(ids)
        codes: Array = np.array([self._codes.setdefault(name, len(self._codes)) for name in names], np.int64)[places]
        return codes

    def close(self) -> Callable[[Array], Array] | None:
        """Number all ids; later ids must be known. Return a function from codes to numbers, None if they are equal."""
        import pandas

        if not self.is_open:
            return None
        self.is_open, self.source = False, "the edges"
        if self.is_number:
            ids = np.unique(np.concatenate(self._seen))
            self._index, self._count = pandas.Index(ids), len(ids)
            return None if self.ids() is None else _ranks_in(ids)
        names = np.array(list(self._codes), object)
        order = np.argsort(names)
        self._index, self._count = pandas.Index(names[order], dtype=object), len(names)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return lambda codes: ranks[codes]

    def ids(self) -> Array | None:
        """Return the nodes' ids in the tables (V,), None if they equal the node numbers."""
        if self._index is None:
            return None
        ids: Array = self._index.to_numpy()
        return None if self.is_number and np.array_equal(ids, np.arange(len(ids))) else ids

    def as_ids(self, texts: Array) -> tuple[Array, Array]:
        """Convert texts (N,) to ids. Return these, and which of them are valid, (N,) bool."""
        if not self.is_number:
            return texts, np.ones(len(texts), bool)
        good = np.array([WHOLE.fullmatch(text) is not None for text in texts], bool)
        return np.where(good, texts, "-1").astype(np.int64), good

    def rule(self) -> str:
        """Return the rule for ids, for messages."""
        return f"{self.source} has rows 0 to {self._count - 1}" if self._index is None else f"no node of {self.source} has this id"


def _ranks_in(ids: Array) -> Callable[[Array], Array]:
    """Return a function from values to their indices in ascending ids (V,): by a lookup table if the ids are dense, else by binary search."""
    low, width = int(ids[0]), int(ids[-1]) - int(ids[0]) + 1
    if width > 8 * len(ids):
        return lambda values: np.searchsorted(ids, values)
    table = np.zeros(width, np.int64)
    table[ids - low] = np.arange(len(ids))
    return lambda values: table[values - low]


def numbers_of(texts: Array, vertices: Vertices, table: VertexTable, bad: BadRows) -> Array:
    """Return the node numbers (N,) of a table's rows. Rows with unknown ids are reported to ``bad`` and get -1."""
    ids, good = vertices.as_ids(texts)
    numbers = np.where(good, vertices.codes(ids), -1)
    for row in np.flatnonzero(numbers < 0):
        bad.add(table.path, f"{table.unit} {table.places[row]}", f"id is {texts[row]!r}: {vertices.rule()}; add it there, or drop the row")
    bad.end(table.path)
    return numbers
