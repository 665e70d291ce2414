"""Options for reading tables, and the reading of new tables like those of another data set, so that a model trained on it can predict on the new one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, get_args

from hoptrain.engine.dataset import BaseDataset
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.cells import Kind, as_number
from hoptrain.engine.datasets.tables.encodings import Column, Encoding, Missing, encodings_in
from hoptrain.engine.datasets.tables.rows import Table
from hoptrain.engine.errors import InputError, check_choice, join_limited

OPTIONS = "options"
"""Entry of ``meta`` with the options that decide the graph, by name. Data sets of earlier versions lack it."""
TABLES = "tables: "
"""Beginning of the entry ``source`` in the ``meta`` of a data set from tables."""
T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """Options for reading the cells of feature columns.

    Attributes:
        missing: treatment of missing cells, "error", "mean" or "zero"; by default that of ``like``, or "error".
        categories: names of columns that are categories even if their cells look like numbers, compared without case.
        drop: names of columns that are left out of all tables, compared without case; those that ``like`` was read without are left out, too.
        like: a data set from tables, whose columns, encodings, classes and options are used instead of new ones.
    """

    missing: Missing | None = None
    categories: Collection[str] = ()
    drop: Sequence[str] = ()
    like: BaseDataset | None = None

    def __post_init__(self) -> None:
        if self.missing is not None:
            check_choice("missing", self.missing, get_args(Missing))
        if self.like is not None and not str(self.like.meta.get("source")).startswith(TABLES):
            raise InputError(
                f"--like {self.source}: it was not made from tables, so its columns have no names; give a data set that 'hoptrain data import' or "
                "'hoptrain data convert' made from tables"
            )

    @cached_property
    def recorded(self) -> Mapping[str, Any]:
        """The options with which ``like`` was read; empty if it has not recorded them."""
        options = {} if self.like is None else self.like.meta.get(OPTIONS)
        return options if isinstance(options, Mapping) else {}

    @property
    def source(self) -> str:
        """Folder of ``like``, or else its name, for messages."""
        return "" if self.like is None else str(self.like.path or self.like.name)

    @cached_property
    def fills(self) -> Missing:
        """Treatment of missing cells: the option, or that of ``like``.

        Raises:
            InputError: ``like`` was filled in another way.
        """
        known = self.recorded.get("missing")  # with "error" no cell was filled, so the option contradicts nothing
        return self.repeat("missing", self.missing, known if known in ("mean", "zero") else None) or "error"

    def repeat(self, option: str, given: T | None, known: T | None) -> T | None:
        """Return an option that decides the graph: the one with which ``like`` was read, or else the given one.

        Raises:
            InputError: both exist, and differ.
        """
        if given is not None and known is not None and given != known:
            raise InputError(
                f"{_as_option(option, given)} contradicts {self.source}, which was made with {_as_option(option, known)}: new data are read in the same "
                f"way; leave --{option} out"
            )
        return given if known is None else known

    def dropped(self) -> list[str]:
        """Return the names of the columns that ``like`` was read without."""
        names = self.recorded.get("drop")
        return list(map(str, names)) if isinstance(names, list) else []

    def left(self, relation: str) -> list[str]:
        """Return the names of the columns that a relation's table in ``like`` has, but that cannot be converted to features."""
        columns = self.recorded.get("left")
        names = columns.get(relation) if isinstance(columns, Mapping) else None
        return list(map(str, names)) if isinstance(names, list) else []

    def roles_in(self, names: Sequence[str]) -> list[str] | None:
        """Return the roles that the columns ``names`` of an edge table have in ``like``; None if it has no columns with the names of both ends."""
        columns = self.recorded.get("columns")
        known = {str(name).lower(): str(role) for name, role in columns.items()} if isinstance(columns, Mapping) else {}
        has_ends = {"src", "dst"} <= {known.get(name.lower()) for name in names}
        return [known.get(name.lower(), name) for name in names] if has_ends else None

    @property
    def header(self) -> bool | None:
        """True if the text files of ``like`` have a header, False if they have none; None if this was detected."""
        known = self.recorded.get("header")
        return known if isinstance(known, bool) else None

    def column_of(self, role: str) -> str | None:
        """Return the name, in lower case, of the column that has the role ``id`` or ``label`` in the node table of ``like``, if that is recorded."""
        name = self.recorded.get(role)
        return name.lower() if isinstance(name, str) else None

    def as_json(self) -> dict[str, Any]:
        """Return the options that new data have to repeat, for ``meta``."""
        return {"missing": self.fills, "drop": sorted({*map(str.lower, self.drop), *self.dropped()})}

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes of ``like``, or None if it has none."""
        names = None if self.like is None else self.like.meta.get("classes")
        return list(map(str, names)) if isinstance(names, list) else None

    def known(self, table: Table, names: Collection[str], what: str) -> dict[str, Encoding]:
        """Return the encodings of ``like`` for the columns of a table.

        Args:
            table: the table, for messages.
            names: names of its columns.
            what: the key of the columns in ``meta``, as for ``scan``.

        Raises:
            InputError: the table has other columns, or ``categories`` names a column that has no categories.
        """
        found = encodings_in({} if self.like is None else self.like.meta, what)
        more, lacking = [name for name in names if name not in found], [name for name in found if name not in names]
        if lacking and len(lacking) == len(found):
            self._check_header(table, more, lacking)
        if more or lacking:
            differences = [f"it lacks {join_limited(lacking)}"] * bool(lacking) + [f"it has also {join_limited(more)}"] * bool(more)
            remedies = ["add what it lacks"] * bool(lacking) + [f"leave columns out with --drop {','.join(more)}"] * bool(more)
            raise InputError(f"{table.path} must have the columns of {self.source}: {' and '.join(differences)}; {', '.join(remedies)}")
        named = {name.lower() for name in self.categories}
        if other := [name for name, own in found.items() if name.lower() in named and own.kind != "category"]:
            raise InputError(
                f"--categories {other[0]} contradicts {self.source}, in which the column is a {found[other[0]].kind}: new data are read in the same way; "
                "leave it out"
            )
        return {name: self._known(own) for name, own in found.items()}

    def _check_header(self, table: Table, more: Sequence[str], lacking: Sequence[str]) -> None:
        """Check that a table that has none of the columns of ``like``, and the columns ``more`` instead, was rightly read with or without a header.

        Raises:
            InputError: the first line is probably a row and was read as names, or the table has no names.
        """
        if not table.has_header or any(math.isfinite(as_number(name)) for name in more):
            remedy = "" if table.has_header else ", or give --header if it names them"
            raise InputError(
                f"{table.path} has no header, and {self.source} has the columns {join_limited(lacking)}: columns are found by their names; "
                f"write the names into the first line{remedy}"
            )
        if table.unit == "line" and all(map(str.isdecimal, lacking)):
            raise InputError(
                f"{table.path} has a header, and {self.source} had none (its columns are {join_limited(lacking)}): both must be alike; if the first "
                "line is a row, give --no-header, else remove it"
            )

    def _known(self, own: Encoding) -> Encoding:
        """Return an encoding of ``like`` with its value for missing cells."""
        fill, is_category = own.fill, own.kind == "category"
        if fill is None and self.fills != "error":
            fill = 0.0 if self.fills == "zero" and not is_category else own.mean
        # a text that is no known category may be a misspelling, so it is an error unless --missing is given for the new tables
        takes_unknown = is_category and self.missing in ("mean", "zero")
        return replace(own, fill=fill, rule=self._rule(own), hole=self._hole(), takes_unknown=takes_unknown)

    def _rule(self, own: Encoding) -> str:
        """Return the rule for cells that are not of the column's kind."""
        if own.kind == "category":
            option = "mean" if self.fills == "error" else self.fills
            return f"{self.source} has no such category; fix it, or count such cells as missing with --missing {option}"
        given = "finite numbers; give one" if own.kind == "number" else "dates; give one such as 2021-03-04"
        return f"the column of {self.source} has {given}, or leave such rows out with --skip-bad-rows"

    def _hole(self) -> str:
        """Return the rule for missing cells that are not filled."""
        if self.fills == "error":
            return f"the column of {self.source} has a value in each row; fill missing cells with --missing mean (or zero)"
        return f"{self.source} has no mean of the column, since an earlier version of hoptrain wrote it; make it again from its tables"


AS_THEY_ARE = Reading()


def _as_option(option: str, value: object) -> str:
    return f"{'' if value else 'no '}--{option}" if isinstance(value, bool) else f"--{option} {value}"


def scan(table: Table, names: Iterable[str], reading: Reading, what: str) -> dict[str, Encoding]:
    """Choose the encodings of columns: those of ``reading.like``, or else by a pass over the table. Return them by column, in the order of the features.

    Args:
        table: table to read.
        names: names of the columns to read.
        reading: options for reading the cells.
        what: key of the encodings in ``meta["columns"]``: ``x`` for node features, ``edge_attr`` for edge features, ``known`` for weights and times of edges;
            for heterogeneous data, the node type, the name of the relation, and ``known.`` with this name.

    Raises:
        InputError: the table cannot be read, or it has other columns than ``reading.like``.
    """
    if reading.like is not None:
        return reading.known(table, list(names), what)
    named = {name.lower() for name in reading.categories}
    columns = {name: Column(name.lower() in named) for name in names}
    kinds: dict[str, Kind] = {name: "text" if column.is_category else "cell" for name, column in columns.items()}
    for piece in table.pieces(kinds, BadRows(skip=1.0)) if columns else ():
        for name, column in columns.items():
            column.add(piece.columns[name])
    return {name: column.encoding(reading.fills) for name, column in columns.items()}
