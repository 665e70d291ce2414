"""``NAME.npz`` files with a typed graph: the columns of each relation, features by type, labels and masks of one type.

Members: ``rel_A__B_indptr`` and ``rel_A__B_indices``, the edges from type A to type B by destination (the relation (A, "to", B); with
``rel_A__NAME__B_`` it has that name); ``TYPE_x``, or its CSR parts ``TYPE_x_indptr`` and so on, for the types that have features; ``y`` (-1: no
label); ``train_mask``, ``val_mask``, ``test_mask``, or several such splits, ``train_mask_20`` and so on, which become ``train_20`` and so on;
``meta``, a JSON text with ``node_types`` (the number of vertices of each type) and ``target`` (the type that ``y`` and the masks are of).
Other members are not carried over; ``meta["not_carried"]`` names them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets import npz
from hoptrain.engine.datasets.cache import open_cached
from hoptrain.engine.errors import InputError
from hoptrain.engine.files.untrusted import npz_members
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph, Relation

_VERSION = 1
_INDPTR, _INDICES = "_indptr", "_indices"
_MASK = re.compile(r"(train|val|test)_mask(_\w+)?")


def is_typed(path: Path) -> bool:
    """Whether a file holds a typed graph; one that cannot be read does not."""
    try:
        return npz.is_typed(npz_members(path))
    except (OSError, ValueError):
        return False


def load_hetero_npz(path: Path) -> HeteroDataset:
    """Convert a file once, then open the folder; as ``load_npz``."""
    key = npz.cache_key(path, _VERSION)
    return open_cached(HeteroDataset, key, lambda writer: convert_hetero_npz(path).write_to(writer))


def convert_hetero_npz(path: Path) -> HeteroDataset:
    """The data set in a file, in memory, validated.

    Raises:
        InputError: a file that cannot be read, or that lacks something.
    """
    arrays = npz.read(path)
    meta = npz.read_meta(path, arrays)
    num_nodes, target = _types(path, meta)
    relations = {_relation(path, name): name.removesuffix(_INDPTR) for name in arrays if name.startswith("rel_") and name.endswith(_INDPTR)}
    missing = next((name + _INDICES for name in relations.values() if name + _INDICES not in arrays), None)
    if missing is not None:
        raise InputError(f"{path} has no {missing} beside its indptr: a relation has both; correct it")
    x = {kind: rows for kind in num_nodes if (rows := _features(path, arrays, kind)) is not None}
    splits = {found[1] + (found[2] or ""): arrays[name] for name in arrays if (found := _MASK.fullmatch(name))}
    used = {name + part for name in relations.values() for part in (_INDPTR, _INDICES)} | {"y", "meta"}
    left = [
        name for name in arrays if name not in used and not _MASK.fullmatch(name) and not any(name.startswith(f"{kind}_x") for kind in x)
    ]
    columns = {relation: (arrays[name + _INDPTR], arrays[name + _INDICES]) for relation, name in relations.items()}
    return HeteroDataset(
        name=path.stem,
        graph=HeteroGraph(num_nodes, columns),
        seed_type=target,
        x=x,
        y=npz.labels(path, arrays),
        splits=splits,
        meta=meta | ({"not_carried": sorted(left)} if left else {}),
    )


def _types(path: Path, meta: dict[str, Any]) -> tuple[dict[str, int], str]:
    """The number of vertices of each type, and the type that is trained on."""
    num_nodes, target = meta.get("node_types"), meta.get("target")
    if not isinstance(num_nodes, dict) or not all(isinstance(number, int) for number in num_nodes.values()) or target not in num_nodes:
        raise InputError(
            f"{path}: meta has node_types {num_nodes} and target {target!r}: it states the number of vertices of each type, and one of the types "
            "as that of y; add them"
        )
    return num_nodes, str(target)


def _relation(path: Path, name: str) -> Relation:
    """The relation that an array's name tells."""
    parts = name.removeprefix("rel_").removesuffix(_INDPTR).split("__")
    if len(parts) not in (2, 3):
        raise InputError(
            f"{path}: {name} names no relation: it is rel_SOURCE__DESTINATION_indptr, or rel_SOURCE__NAME__DESTINATION_indptr; rename it"
        )
    return parts[0], parts[1] if len(parts) == 3 else "to", parts[-1]


def _features(path: Path, arrays: npz.Arrays, kind: str) -> Array | None:
    """Those of a type, under the names that a file with one type has."""
    return npz.features(path, {name.removeprefix(f"{kind}_"): array for name, array in arrays.items() if name.startswith(f"{kind}_x")})
