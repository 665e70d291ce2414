"""Reader of edge tables, piece by piece: source and destination numbers, weights, times and features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.cells import Kind
from hoptrain.engine.datasets.tables.encodings import RULES, SECONDS_A_DAY, Encoding, as_features, fill_missing, read_numbers
from hoptrain.engine.datasets.tables.nodes import NodeIndex
from hoptrain.engine.datasets.tables.reading import AS_THEY_ARE, Reading, scan
from hoptrain.engine.datasets.tables.rows import Progress, Table
from hoptrain.engine.errors import InputError

KNOWN = ("weight", "time")


def features_of(table: Table) -> list[str]:
    """Return the feature columns: all except ``src``, ``dst``, ``weight`` and ``time``."""
    return [name for name in table.names if name not in ("src", "dst", *KNOWN)]


class EdgeColumns(NamedTuple):
    """The encodings that convert the columns of an edge table, other than ``src`` and ``dst``, to numbers.

    Attributes:
        features: encodings of the feature columns by name, in their order.
        known: encodings of ``weight`` and ``time``, if present.
    """

    features: Mapping[str, Encoding]
    known: Mapping[str, Encoding]

    @classmethod
    def of(
        cls, table: Table, features: Iterable[str] = (), reading: Reading = AS_THEY_ARE, *, what: str = "edge_attr", known: str = "known"
    ) -> EdgeColumns:
        """Choose the encodings of columns. ``what`` and ``known`` are the keys of features, and of weights and times, in ``meta``, as for ``scan``."""
        names = [name for name in KNOWN if name in table.names]
        # earlier versions recorded neither integer times nor, for heterogeneous data, weights
        found = scan(table, names, reading if reading.like is None or reading.recorded else Reading(reading.fills), known)
        return cls(
            scan(table, features, reading, what),
            {name: replace(own, fill=None) if name == "time" else own for name, own in found.items()},
        )

    @property
    def converted(self) -> dict[str, Encoding]:
        """Encodings of the columns whose cells are converted: all except times that are integers."""
        return {name: own for name, own in self.known.items() if name != "time" or own.kind == "date"} | dict(self.features)

    def filled(self, arrays: Mapping[str, Array]) -> EdgeColumns:
        """Fill the missing cells in the arrays of ``edge_pieces`` for a whole table, in place. Return the encodings with means and numbers of missing cells."""
        features = arrays.get("features", np.empty((0, sum(own.width for own in self.features.values())), np.float32))
        weights = arrays.get("weights", np.empty(0, np.float32))
        of_weights = fill_missing({name: own for name, own in self.known.items() if name == "weight"}, weights[:, None])
        return EdgeColumns(fill_missing(self.features, features), {**self.known, **of_weights})


def edge_pieces(
    table: Table,
    sources: NodeIndex,
    destinations: NodeIndex,
    bad: BadRows,
    *,
    columns: EdgeColumns,
    progress: Progress | None = None,
) -> Iterator[dict[str, Array]]:
    """Yield the rows of an edge table, which has the columns ``src`` and ``dst``, in pieces.

    Each piece has ``src`` and ``dst`` (N,) int64, numbered by ``NodeIndex.codes``, and if present ``weights`` (N,) float32, ``times`` (N,) int64 (dates
    become seconds since 1970) and ``features`` (N, D) float32.

    Raises:
        InputError: a column is missing, or ``bad`` raises for a row.
    """
    missing = [name for name in ("src", "dst") if name not in table.names]
    if missing:
        raise InputError(
            f"{table.path} has no column {missing[0]}: an edge table needs src and dst, and has {', '.join(table.names)}; correct the header"
        )
    kinds: dict[str, Kind] = {"src": sources.kind, "dst": destinations.kind} | ({"time": "time"} if "time" in table.names else {})
    encodings = columns.converted
    for piece in table.pieces(kinds | {name: own.cells for name, own in encodings.items()}, bad, progress):
        numbers, good = read_numbers(encodings, piece.columns, table, piece.places, bad)
        if "weight" in numbers:
            wrong = numbers["weight"] < 0
            good &= ~wrong
            bad.add(table.path, piece.places[wrong], "weight is", piece.columns["weight"][wrong], RULES.weight)
        numbers, ends = {name: values[good] for name, values in numbers.items()}, {}
        good = np.flatnonzero(good)
        is_known = np.ones(len(good), bool)
        for name, node_index in (("src", sources), ("dst", destinations)):
            ids = piece.columns[name][good]
            ends[name] = node_index.codes(ids)
            wrong = (ends[name] < 0) & (not node_index.is_open)
            is_known &= ~wrong
            bad.add(table.path, piece.places[good[wrong]], f"{name} is", ids[wrong], f"{node_index.rule()}; add it there, or drop the row")
        made = dict(ends)
        if "weight" in numbers:
            made["weights"] = numbers["weight"].astype(np.float32)
        if "time" in numbers:
            made["times"] = np.rint(numbers["time"] * SECONDS_A_DAY).astype(np.int64)
        elif "time" in kinds:
            made["times"] = piece.columns["time"][good]
        if columns.features:
            made["features"] = as_features({name: numbers[name] for name in columns.features})
        yield made if is_known.all() else {name: values[is_known] for name, values in made.items()}
    bad.end(table.path, table.unit, table.num_rows)
