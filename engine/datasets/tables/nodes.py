"""The nodes that tables name: what a table of them holds, and how they are numbered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import SPLITS
from hoptrain.engine.datasets.source import narrow_features
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.cells import WHOLE, Kind, are_whole
from hoptrain.engine.datasets.tables.rows import Progress, Table
from hoptrain.engine.errors import InputError

KNOWN: Mapping[str, Kind] = {"label": "text", "split": "text"}


class VertexTable:
    """What a table has for each node.

    Attributes:
        path: of the file.
        ids: (N,) texts, all different, none empty.
        places: (N,) their lines.
        texts: columns ``label`` and ``split``, (N,) texts, where there are.
        x: (N, F) float32 or uint8, or None: all other columns in their order.
    """

    def __init__(self, table: Table, bad: BadRows, progress: Progress | None = None) -> None:
        """Read the columns ``id``, ``label``, ``split`` and features of a table.

        Raises:
            InputError: it has no column ``id``, or ``bad`` raises.
        """
        self.path, self.unit, self._bad = table.path, table.unit, bad
        if "id" not in table.names:
            raise InputError(f"{table.path} has no column id: its columns are {', '.join(table.names)}; correct the header")
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
        """The rows whose id no row above has; each other one is told."""
        import pandas  # type: ignore[import-untyped]

        again = pandas.Series(ids, dtype=object).duplicated().to_numpy(bool)
        if not again.any():
            return slice(None)
        for row in np.flatnonzero(again):
            self._bad.add(self.path, f"{self.unit} {places[row]}", f"id is {ids[row]!r}: each node has one row; correct it or drop the row")
        self._bad.end(self.path)
        return ~again


def labels_of(table: VertexTable) -> tuple[Array, list[str] | None]:
    """Labels (N,) of ``texts["label"]``, and the names of the classes where they have some.

    Whole numbers are int64 classes and -1 is none; numbers of which some are no whole ones are float32 targets and NaN is none; other texts are
    names of classes, which are numbered in their order as texts.

    Raises:
        InputError: a class below -1.
    """
    texts = table.texts["label"]
    given = texts != ""
    if are_whole(texts[given]):
        y = np.full(len(texts), -1, np.int64)
        y[given] = texts[given].astype(np.int64)
        wrong = np.flatnonzero(y < -1)
        if len(wrong):
            raise InputError(
                f"{table.path}, {table.unit} {table.places[wrong[0]]}: label is {y[wrong[0]]}: classes count from 0 on, and empty or -1 is none; "
                "correct it"
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
    """The nodes of each split, ascending, by the name that stands in its rows; "" is none. ``numbers`` (N,) are those of the rows, -1 for none.

    Raises:
        InputError: a name that looks like that of a split which training takes, and is another.
    """
    texts = table.texts["split"]
    for name in dict.fromkeys(texts):
        meant = next((own for own in SPLITS if name != own and name.lower().startswith(own) and not name.startswith(f"{own}_")), None)
        if meant is not None:
            line = table.places[np.flatnonzero(texts == name)[0]]
            raise InputError(
                f"{table.path}, {table.unit} {line}: split is {name!r}: training takes those called {', '.join(SPLITS)}; write {meant}"
            )
    texts, numbers = texts[numbers >= 0], numbers[numbers >= 0]
    return {str(name): np.sort(numbers[texts == name]) for name in dict.fromkeys(texts) if name != ""}


class Vertices:
    """Numbers of nodes, from 0 on, by their ids: of a table in the order of its rows, or of all that tables name in ascending order.

    Attributes:
        is_number: whether ids are whole numbers, int64; else they are texts.
        is_open: whether ids that were not there before become nodes; they have codes until ``close``.
    """

    def __init__(self, ids: Array | int | None = None, *, is_number: bool = True, source: str = "") -> None:
        """Ids (N,) of a table, texts; or how many rows there are, whose numbers are the ids; or None: take what comes.

        ``source`` is the name of the file that has them, for messages.
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
        """V, once they are closed."""
        return self._count

    @property
    def kind(self) -> Kind:
        """Of the columns that name them."""
        return "id" if self.is_number else "key"

    def codes(self, ids: Array) -> Array:
        """(N,) int64 of ids (N,): their numbers, -1 for none; while they are open what ``close`` makes numbers of."""
        import pandas

        if self._index is not None:
            found: Array = self._index.get_indexer(ids).astype(np.int64)
            return found
        if not self.is_open:
            return np.where((ids >= 0) & (ids < self._count), ids, -1)
        if self.is_number:
            self._seen.append(pandas.unique(ids))
            if sum(map(len, self._seen[1:])) > max(len(self._seen[0]), 1 << 22):  # each id is sorted a few times, however many there are
                self._seen = [np.unique(np.concatenate(self._seen))]
            return ids
        places, names = pandas.factorize(ids)
        codes: Array = np.array([self._codes.setdefault(name, len(self._codes)) for name in names], np.int64)[places]
        return codes

    def close(self) -> Callable[[Array], Array] | None:
        """Number them; ids that come now have to be known. Returns what makes numbers of codes so far, None where they are."""
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
        """(V,) what the tables call each node; None where that is its number."""
        if self._index is None:
            return None
        ids: Array = self._index.to_numpy()
        return None if self.is_number and np.array_equal(ids, np.arange(len(ids))) else ids

    def as_ids(self, texts: Array) -> tuple[Array, Array]:
        """Texts (N,) as ids, and which are some: (N,) bool."""
        if not self.is_number:
            return texts, np.ones(len(texts), bool)
        good = np.array([WHOLE.fullmatch(text) is not None for text in texts], bool)
        return np.where(good, texts, "-1").astype(np.int64), good

    def rule(self) -> str:
        """What an id has to be."""
        return f"{self.source} has rows 0 to {self._count - 1}" if self._index is None else f"no node of {self.source} has this id"


def _ranks_in(ids: Array) -> Callable[[Array], Array]:
    """What looks the places of values up in ids (V,), which ascend: in a table where that is not much larger."""
    low, width = int(ids[0]), int(ids[-1]) - int(ids[0]) + 1
    if width > 8 * len(ids):
        return lambda values: np.searchsorted(ids, values)
    table = np.zeros(width, np.int64)
    table[ids - low] = np.arange(len(ids))
    return lambda values: table[values - low]


def numbers_of(texts: Array, vertices: Vertices, table: VertexTable, bad: BadRows) -> Array:
    """Numbers (N,) of the nodes that a table's rows are about, -1 for those that are told to be none."""
    ids, good = vertices.as_ids(texts)
    numbers = np.where(good, vertices.codes(ids), -1)
    for row in np.flatnonzero(numbers < 0):
        bad.add(table.path, f"{table.unit} {table.places[row]}", f"id is {texts[row]!r}: {vertices.rule()}; add it there, or drop the row")
    bad.end(table.path)
    return numbers
