"""Reader of node tables, and the mapping from ids in tables to node numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.source import narrow_features
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.cells import WHOLE, Kind, are_whole, as_number
from hoptrain.engine.datasets.tables.encodings import as_features, fill_missing, is_missing, read_numbers
from hoptrain.engine.datasets.tables.reading import AS_THEY_ARE, Reading, scan
from hoptrain.engine.datasets.tables.rows import Progress, Table
from hoptrain.engine.errors import InputError, join_limited
from hoptrain.engine.features.splits import MASKS, split_name

KNOWN: Mapping[str, Kind] = dict.fromkeys(("label", "split", *MASKS), "text")
_TRUE, _FALSE = ["1", "true", "1.0"], ["0", "false", "0.0"]


class NodeTable:
    """The contents of a node table: ids, labels, splits and features.

    Attributes:
        path: path of the file.
        table: the file's ``Table``.
        ids: (N,) ids of the nodes: distinct, non-empty texts.
        places: (N,) line or row number of each node in the file.
        texts: the columns ``label``, ``split`` and ``train_mask`` and so on as texts (N,), if present.
        encodings: encodings of the feature columns, in their order.
        x: features (N, F) float32 or uint8, or None.
    """

    def __init__(
        self, table: Table, bad: BadRows, progress: Progress | None = None, reading: Reading = AS_THEY_ARE, what: str = "x"
    ) -> None:
        """Read the columns ``id``, ``label``, ``split``, masks and features of a table. ``what`` is the key of the features in ``meta``, as for ``scan``.

        Raises:
            InputError: there is no column ``id``, the columns differ from those of ``reading.like``, or ``bad`` raises for a row.
        """
        self.path, self.unit, self._bad, self.table = table.path, table.unit, bad, table
        if "id" not in table.names:
            raise InputError(f"{table.path} has no column id: a node table needs one, and has {', '.join(table.names)}; correct the header")
        others = [name for name in table.names if name != "id" and name not in KNOWN]
        self.encodings = scan(table, others, reading, what)
        kinds: dict[str, Kind] = {name: "key" if name == "id" else KNOWN[name] for name in table.names if name == "id" or name in KNOWN}
        kinds |= {name: encoding.cells for name, encoding in self.encodings.items()}
        parts: dict[str, list[Array]] = {name: [np.empty(0, object)] for name in ("id", *KNOWN) if name in table.names}
        rows = [np.empty((0, sum(encoding.width for encoding in self.encodings.values())), np.float32)]
        places = [np.empty(0, np.int64)]
        for piece in table.pieces(kinds, bad, progress):
            numbers, good = read_numbers(self.encodings, piece.columns, table, piece.places, bad)
            good |= bad.skip is None  # rows without valid features keep their ids, so that their edges are not reported too
            for name, own in parts.items():
                own.append(piece.columns[name][good])
            if self.encodings:
                rows.append(as_features(numbers)[good])
            places.append(piece.places[good])
        bad.end(table.path, table.unit, table.num_rows)
        texts = {name: np.concatenate(own) for name, own in parts.items()}
        kept = self._without_repeats(texts["id"], np.concatenate(places))
        self.ids, self.places = texts.pop("id")[kept], np.concatenate(places)[kept]
        self.texts = {name: own[kept] for name, own in texts.items()}
        self.x = np.concatenate(rows)[kept] if self.encodings else None
        if self.x is not None:
            self.encodings = fill_missing(self.encodings, self.x)
            self.x = narrow_features(self.x)

    def _without_repeats(self, ids: Array, places: Array) -> Any:
        """Return an index that selects the first row of each id, and report repeated ids to ``bad``."""
        import pandas  # type: ignore[import-untyped]

        again = pandas.Series(ids, dtype=object).duplicated().to_numpy(bool)
        if not again.any():
            return slice(None)
        self.report(places[again], "id", ids[again], "each node must have one row; give another id or drop the row")
        return ~again

    def report(self, places: Array, column: str, values: Array, rule: str) -> None:
        """Report rows whose values (N,) of a column break a rule.

        Raises:
            InputError: there are such rows, and bad rows may be neither reported nor left out.
        """
        self._bad.add(self.path, places, f"{column} is", values, rule)
        self._bad.end(self.path, self.unit, self.table.num_rows)


def labels_of(table: NodeTable, reading: Reading = AS_THEY_ARE) -> tuple[Array, list[str] | None]:
    """Convert ``texts["label"]`` to labels (N,), and return the names of the classes if they have names.

    Integers become int64 classes (-1 for no label), other numbers float32 targets (NaN for no label). Other texts are class names, numbered as in
    ``reading.like``, or else in alphabetical order.

    Raises:
        InputError: a class is below -1 or unknown, or a target is not a number.
    """
    texts, classes = table.texts["label"], reading.classes
    given = ~is_missing(texts)
    y = np.full(len(texts), -1, np.int64)
    if classes is not None:
        import pandas

        y[given] = pandas.Index(classes, dtype=object).get_indexer(texts[given])
        rule = f"{reading.source} has the classes {join_limited(classes, 4)}; give one of its classes, or leave the cell empty"
        table.report(table.places[given & (y < 0)], "label", texts[given & (y < 0)], rule)
        return y, classes
    if are_whole(texts[given]):
        y[given] = texts[given].astype(np.int64)
        table.report(table.places[y < -1], "label", y[y < -1], "classes must be 0 or more, or -1 or empty for none; renumber them")
        return y, None
    targets = np.full(len(texts), np.nan, np.float32)
    targets[given] = [as_number(text) for text in texts[given]]
    wrong = given & ~np.isfinite(targets)
    if not wrong.any():
        return targets, None
    if 2 * wrong.sum() < given.sum() and any("." in text for text in texts[given & ~wrong]):
        table.report(table.places[wrong], "label", texts[wrong], "other labels are targets, so all must be finite numbers; fix it")
        return targets, None
    if reading.like is not None:
        rule = f"{reading.source} has no names of classes; give labels as there, or leave the column out (--drop label)"
        table.report(table.places[wrong], "label", texts[wrong], rule)
    names, y[given] = np.unique(texts[given].astype(str), return_inverse=True)
    return y, names.tolist()


def splits_of(table: NodeTable, numbers: Array) -> dict[str, Array]:
    """Return the nodes of each split by name, ascending, from the column ``split`` or from masks.

    Synonyms of ``train``, ``val`` and ``test``, such as ``Training`` or ``valid``, are recognised (``split_name``).

    Args:
        table: the node table.
        numbers: node numbers (N,) of the table's rows, -1 to ignore a row.

    Raises:
        InputError: a mask has a cell that is neither true nor false, or there are masks and a column ``split``.
    """
    masks = [name for name in MASKS if name in table.texts]
    if masks and "split" in table.texts:
        raise InputError(f"{table.path} has the columns split and {masks[0]}: splits must have one source; --drop one of them")
    splits: dict[str, Array] = {}
    for mask in masks:
        texts = np.array([text.lower() for text in table.texts[mask]], object)
        wrong = ~(np.isin(texts, _TRUE + _FALSE) | is_missing(texts))
        table.report(table.places[wrong], mask, texts[wrong], "a mask must be true or false, or 1 or 0; fix it")
        splits[split_name(mask.removesuffix("_mask"))] = np.sort(numbers[np.isin(texts, _TRUE) & (numbers >= 0)])
    if masks:
        return splits
    texts = np.array([split_name(text) for text in table.texts["split"]], object)
    texts, numbers = texts[numbers >= 0], numbers[numbers >= 0]
    return {str(name): np.sort(numbers[texts == name]) for name in dict.fromkeys(texts) if name != ""}


class NodeIndex:
    """A mapping from ids to node numbers 0, 1, 2, ... in the row order of a node table. Without a node table, nodes are numbered in ascending order of ids.

    Attributes:
        is_number: True if ids are int64 integers; otherwise they are texts.
        is_open: True while new ids are added as nodes; until ``close``, ids have provisional codes.
    """

    def __init__(self, ids: Array | int | None = None, *, is_number: bool = True, source: str = "") -> None:
        """Create a mapping. ``ids`` are the ids (N,) of a table, or a number of nodes whose ids are row numbers, or None to collect ids.

        ``source`` is the name of the file with the ids, for messages.
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
        """Return the number of nodes V. It is known only after ``close``."""
        return self._count

    @property
    def kind(self) -> Kind:
        """Kind of a table column with these ids, as in ``cells.Kind``: ``id`` for integers, ``key`` for texts."""
        return "id" if self.is_number else "key"

    def codes(self, ids: Array) -> Array:
        """Return the node numbers (N,) int64 of ids (N,), -1 for unknown ids; before ``close``, return provisional codes."""
        import pandas

        if self._index is not None:
            found: Array = self._index.get_indexer(ids).astype(np.int64)
            return found
        if not self.is_open:
            return np.where((ids >= 0) & (ids < self._count), ids, -1)
        if self.is_number:
            self._seen.append(pandas.unique(ids))
            # Merge when the number of ids has doubled, so that each id is sorted only a few times.
            if sum(map(len, self._seen[1:])) > max(len(self._seen[0]), 1 << 22):
                self._seen = [np.unique(np.concatenate(self._seen))]
            return ids
        places, names = pandas.factorize(ids)
        codes: Array = np.array([self._codes.setdefault(name, len(self._codes)) for name in names], np.int64)[places]
        return codes

    def close(self) -> Callable[[Array], Array] | None:
        """Assign node numbers to all ids seen so far; later ids are not added. Return a function from codes to node numbers, or None if both are equal."""
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
        """Return the ids (V,) of the nodes, or None if they equal the node numbers."""
        if self._index is None:
            return None
        ids: Array = self._index.to_numpy()
        return None if self.is_number and np.array_equal(ids, np.arange(len(ids))) else ids

    def as_ids(self, texts: Array) -> tuple[Array, Array]:
        """Convert texts (N,) to ids. Return the ids, and which of them are valid, (N,) bool."""
        if not self.is_number:
            return texts, np.ones(len(texts), bool)
        good = np.array([WHOLE.fullmatch(text) is not None for text in texts], bool)
        return np.where(good, texts, "-1").astype(np.int64), good

    def numbers(self, texts: Array) -> Array:
        """Return the node numbers (N,) int64 of ids that are given as texts (N,), -1 for unknown ids. Call it after ``close``."""
        ids, good = self.as_ids(texts)
        return np.where(good, self.codes(ids), -1)

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


def numbers_of(texts: Array, node_index: NodeIndex, table: NodeTable) -> Array:
    """Return the node numbers (N,) of a table's rows. Rows with unknown ids are reported and get -1."""
    numbers = node_index.numbers(texts)
    table.report(table.places[numbers < 0], "id", texts[numbers < 0], f"{node_index.rule()}; add it there, or drop the row")
    return numbers
