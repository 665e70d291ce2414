"""Feature columns by name: a checkpoint keeps those of its training, which other data must have too, since a model reads features by their position."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from itertools import zip_longest
from typing import Any, TypeAlias

from hoptrain.engine import Dataset, HeteroDataset, InputError
from hoptrain.engine.datasets.tables.encodings import Encoding, encodings_in

Columns: TypeAlias = dict[str, dict[str, str]]
"""Column -> its kind, for each table of features (``x``, ``edge_attr``, or ``x.TYPE`` and so on); and for ``classes``, number of a class -> its name."""


def columns_in(data: Dataset | HeteroDataset, *, edges: bool, classes: bool) -> Columns:
    """Return the feature columns of a data set, as far as its ``meta`` names them; it does if the data set was read from tables.

    Args:
        data: the data set.
        edges: include the features of edges.
        classes: include the names of the classes.
    """
    found: Columns = {}
    for store, rows in data.stores().items():
        kind, _, name = store.partition(".")
        encodings = encodings_in(data.meta, name or kind)
        is_described = len(rows.shape) == 2 and sum(own.width for own in encodings.values()) == rows.shape[1]
        if kind != "y" and is_described and (edges or kind == "x"):
            found[store] = {column: _kind(own) for column, own in encodings.items()}
    names = data.meta.get("classes")
    if classes and names and isinstance(names, list | tuple):  # other programs may store a number
        found["classes"] = {str(number): str(name) for number, name in enumerate(names)}
    return found


def _kind(encoding: Encoding) -> str:
    categories = f" {_hash(encoding.categories)}" if encoding.categories else ""
    return f"{encoding.kind}{categories}{f' ({encoding.width})' if encoding.width > 1 else ''}"


def _hash(names: Any) -> str:
    return sha256(json.dumps(list(names)).encode()).hexdigest()[:16]


def columns_from(entry: Any) -> Columns:
    """Return the columns that a checkpoint holds; none if the entry has another form, since another program may have written it."""
    if not isinstance(entry, Mapping) or not all(isinstance(own, Mapping) for own in entry.values()):
        return {}
    return {str(store): {str(name): str(kind) for name, kind in own.items()} for store, own in entry.items()}


def check_columns(theirs: Columns, data: Dataset | HeteroDataset, ours: Columns) -> None:
    """Compare the columns of the training, ``theirs``, with those of a data set, ``ours``. Tables that only one of them names are not compared.

    Raises:
        InputError: the columns have other names, another order or other categories, or the classes have other names.
    """
    for store in theirs:
        if (difference := _difference(store, theirs[store], ours.get(store, theirs[store]))) is not None:
            action = "convert" if isinstance(data, HeteroDataset) else "import"
            raise InputError(
                f"{data.name}: {difference}: a model reads columns by their position, so both must have the same; read the tables again with "
                f"'hoptrain data {action} --like TRAINING_FOLDER'"
            )


def _difference(store: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """Return the first difference between the columns of two tables of features; None if they are the same."""
    if store == "classes":
        return "its classes have other names than those of the training data" if theirs != ours else None
    kind, _, name = store.partition(".")
    of = f"{'nodes' if kind == 'x' else 'edges'}{f' of {name}' * bool(name)}"
    for place, (mine, other) in enumerate(zip_longest(ours, theirs, fillvalue="missing")):
        if mine != other:
            return f"feature column {place} of {of} is {mine}, and in the training data {other}"
        if ours[mine] != theirs[mine]:
            had = theirs[mine].partition(" ")[0]
            how = (
                "has other categories than" if had == ours[mine].partition(" ")[0] else f"is a {ours[mine].partition(' ')[0]}, and a {had}"
            )
            return f"column {mine} of {of} {how} in the training data"
    return None
