"""Reader of OGB's heterogeneous graphs in csv format: ``raw/relations/A___name___B/edge.csv.gz``, ``raw/num-node-dict.csv.gz`` and so on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.cache import open_cached
from hoptrain.engine.datasets.ogb.source import MAG, fetched, is_present, read_csv, read_splits, ready_key
from hoptrain.engine.datasets.source import Counts, Source
from hoptrain.engine.errors import InputError
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph, Relation

_KEY = "ogbn-mag-typed"
"""Key of the data set in the cache. It is not ``ogbn-mag``, since older versions used that key for what is now ``ogbn-mag-papers``."""


def load_typed(name: str, root: Path | None, scale: float) -> HeteroDataset:
    """Open a heterogeneous data set of OGB. The first call downloads it to ``root`` (or the cache) and converts it.

    Raises:
        InputError: the licence was not accepted, the download failed, or the files are of another release or damaged.
    """
    return open_cached(HeteroDataset, ready_key(_KEY, MAG, root), lambda writer: _read(fetched(MAG, root)).write_to(writer))


def _read(folder: Path) -> HeteroDataset:
    """Read all nodes and edges, and features, labels and splits where they exist. Relations are in OGB's order, which is alphabetical."""
    raw, split = folder / "raw", folder / "split" / "time"
    num_nodes = {kind: int(number) for kind, number in zip(*read_csv(raw / "num-node-dict", np.str_), strict=True)}
    relations: list[Relation] = sorted((str(a), str(name), str(b)) for a, name, b in read_csv(raw / "triplet-type-list", np.str_))
    seed_type = _one_of(split / "nodetype-has-split")
    y = read_csv(raw / "node-label" / seed_type / "node-label", np.float64)
    return HeteroDataset(
        name=MAG.name,
        graph=HeteroGraph.from_edges(num_nodes, {relation: _edges(raw, relation) for relation in relations}),
        seed_type=seed_type,
        x={kind: read_csv(path.parent / "node-feat", np.float32) for kind in num_nodes if (path := _features(raw, kind)).is_file()},
        y=np.nan_to_num(y[:, 0], nan=-1).astype(np.int64),
        splits=read_splits(split / seed_type),
        meta={
            "source": MAG.url,
            "licence": MAG.licence,
            "split": "OGB's: time",
            "note": "directed as published; data.add_reverse adds reverse relations",
            "not_carried": ["edge_reltype", "node_year"],
        },
    )


def _edges(raw: Path, relation: Relation) -> Any:
    edges: Array = read_csv(raw / "relations" / "___".join(relation) / "edge", np.int64)
    return edges[:, 0], edges[:, 1]


def _features(raw: Path, kind: str) -> Path:
    return raw / "node-feat" / kind / "node-feat.csv.gz"


def _one_of(stem: Path) -> str:
    """Read a table of (type, flag), and return the only type whose flag is set.

    Raises:
        InputError: no flag is set, or several are.
    """
    named = [str(kind) for kind, has in zip(*read_csv(stem, np.str_), strict=True) if has == "True"]
    if len(named) != 1:
        raise InputError(
            f"{stem}.csv.gz names {', '.join(named) or 'no type'}: exactly one type of {MAG.name} must have labels; download it again"
        )
    return named[0]


SOURCES = {
    "ogbn-mag": Source(
        about="papers, authors, institutions and fields of MAG, for task: hetero",
        origin="download from OGB",
        load=load_typed,
        counts=Counts(1_939_743, 21_111_007, 128, 349),
        is_present=lambda name, root: is_present(_KEY, MAG, root),
    )
}
