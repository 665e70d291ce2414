"""Reading of an edge table in pieces: source and destination numbers, weights, times and features."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.cells import Kind
from hoptrain.engine.datasets.tables.nodes import Vertices
from hoptrain.engine.datasets.tables.rows import Progress, Table
from hoptrain.engine.errors import InputError

KNOWN: Mapping[str, Kind] = {"weight": "weight", "time": "time"}


def features_of(table: Table) -> list[str]:
    """Return the feature columns: all except ``src``, ``dst``, ``weight`` and ``time``."""
    return [name for name in table.names if name not in ("src", "dst", *KNOWN)]


def edge_pieces(
    table: Table,
    sources: Vertices,
    destinations: Vertices,
    bad: BadRows,
    *,
    features: Collection[str] = (),
    progress: Progress | None = None,
) -> Iterator[dict[str, Array]]:
    """Yield the rows of a table with columns ``src`` and ``dst``, some at a time.

    Each piece has ``src`` and ``dst`` (N,) int64, numbered by ``Vertices.codes``, and if present ``weights`` (N,) float32, ``times`` (N,) int64 and
    ``features`` (N, D) float32.

    Raises:
        InputError: a column is missing, or ``bad`` raises for a row.
    """
    missing = [name for name in ("src", "dst") if name not in table.names]
    if missing:
        raise InputError(
            f"{table.path} has no column {missing[0]}: an edge table needs src and dst, and has {', '.join(table.names)}; correct the header"
        )
    kinds: dict[str, Kind] = {"src": sources.kind, "dst": destinations.kind}
    kinds |= {name: kind for name, kind in KNOWN.items() if name in table.names} | dict.fromkeys(features, "number")
    for piece in table.pieces(kinds, bad, progress):
        ends = {}
        good = np.ones(len(piece.places), bool)
        for name, vertices in (("src", sources), ("dst", destinations)):
            ends[name] = vertices.codes(piece.columns[name])
            if vertices.is_open:
                continue
            wrong = good & (ends[name] < 0)
            good &= ~wrong
            for row in np.flatnonzero(wrong):
                value = str(piece.columns[name][row])
                bad.add(
                    table.path,
                    f"{table.unit} {piece.places[row]}",
                    f"{name} is {value!r}: {vertices.rule()}; add it there, or drop the row",
                )
        made = dict(ends)
        if "weight" in kinds:
            made["weights"] = piece.columns["weight"].astype(np.float32)
        if "time" in kinds:
            made["times"] = piece.columns["time"]
        if features:
            columns = [piece.columns[name] for name in features]
            made["features"] = np.concatenate([each if each.ndim == 2 else each[:, None] for each in columns], axis=1, dtype=np.float32)
        yield made if good.all() else {name: values[good] for name, values in made.items()}
    bad.end(table.path)
