"""``NAME.npz`` files: a graph as CSC arrays, features dense or as CSR parts, labels, masks.

Members of a graph with one node type: ``indptr``, ``indices``; ``x``, or ``x_indptr``, ``x_indices``, ``x_data``, ``x_shape``; ``y`` (-1: no label;
two-dimensional: several labels); ``train_mask``, ``val_mask``, ``test_mask``, or ``split_train`` and so on, ids or masks; without them and with labels
the split is random; ``node_label`` (a kind of node, taken as a feature where there is no ``x``); ``edge_attr``, a row for each entry of ``indices``;
``rel_src``, ``rel_dst``, ``rel_type``, classes of directed edges; ``test_pairs`` (N, 2), links of users and items that are held out for the test, with
``users`` in ``meta``, their number: a user's node id, an item's less that number; ``meta``, a JSON text.

Of a graph with several: ``rel_A__B_indptr`` and ``rel_A__B_indices``, the edges from type A to type B (the relation (A, "to", B); with ``rel_A__NAME__B_``
it has that name); ``TYPE_x``, or its CSR parts, for the types that have features; ``y``; masks as above, or several such splits, ``train_mask_20`` and so
on, which become ``train_20`` and so on; in ``meta`` also ``node_types``, the number of nodes of each type, and ``target``, the type that ``y`` and the
masks are of.

Other members are not carried over; ``meta["not_carried"]`` names them.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array, is_integer
from hoptrain.engine.dataset import SPLITS, Dataset
from hoptrain.engine.datasets.cache import open_cached
from hoptrain.engine.datasets.source import RANDOM_SPLIT, narrow_features, random_splits
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.files.untrusted import npz_members, parse_json, read_npz
from hoptrain.engine.graph import Graph
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph, Relation
from hoptrain.engine.machine import available_memory

Arrays: TypeAlias = dict[str, Array]

TYPED_REMEDY = "task: hetero trains on it (in Python load_hetero_dataset opens it)"

_VERSION = 4
IDENTITY_LIMIT = 4096
_CSR = ("x_indptr", "x_indices", "x_data", "x_shape")
_MASKS = tuple(f"{split}_mask" for split in SPLITS)
_IDS = tuple(f"split_{split}" for split in SPLITS)
_OF_EDGES = ("rel_src", "rel_dst", "rel_type")
_MASK = re.compile(r"(train|val|test)_mask(_\w+)?")
_CARRIED = {*_OF_EDGES, "indptr", "indices", "x", *_CSR, "y", *_MASKS, *_IDS, "node_label", "edge_attr", "test_pairs", "meta"}


def places(root: Path | None) -> list[Path]:
    """The folders where files are looked for: ``root``, then ``$HOPTRAIN_DATA``."""
    variable = os.environ.get("HOPTRAIN_DATA")
    return [place for place in (root, Path(variable) if variable else None) if place is not None]


def find_npz(name: str, root: Path | None) -> Path | None:
    """The file ``name.npz`` in the first of the places that has it."""
    return next((place / f"{name}.npz" for place in places(root) if (place / f"{name}.npz").is_file()), None)


def not_found(name: str, root: Path | None, remedy: str) -> InputError:
    """The error for a data set that is in none of the places."""
    root_text = "no root was given" if root is None else f"root {root} has no {name}.npz"
    variable = os.environ.get("HOPTRAIN_DATA")
    variable_text = f"$HOPTRAIN_DATA ({variable}) has none" if variable else "$HOPTRAIN_DATA is not set"
    return InputError(f"{name} is not on this machine: {root_text} and {variable_text}; {remedy}")


def load_npz(path: Path) -> Dataset | HeteroDataset:
    """Convert a file once, then open the folder; the key changes with the checksums of its members.

    Raises:
        InputError: no such file, no .npz, truncated, or no graph.
    """
    try:
        members = npz_members(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    kind: type[Dataset | HeteroDataset] = HeteroDataset if is_hetero(members) else Dataset
    checksum = zlib.crc32(repr([(f"{name}.npy", *facts) for name, facts in members.items()]).encode())
    return open_cached(kind, f"{path.stem}-npz{_VERSION}-{checksum:08x}", lambda writer: convert_npz(path).write_to(writer))


def convert_npz(path: Path) -> Dataset | HeteroDataset:
    """Return the data set in a file, in memory, validated.

    Raises:
        InputError: a file that cannot be read, or that lacks something.
    """
    arrays = read(path)
    meta = read_meta(path, arrays)
    if is_hetero(arrays):
        return _typed(path, arrays, meta)
    _check_kind(path, arrays)
    y = labels(path, arrays)
    splits, split_note = _splits(path, arrays, y)
    meta["split"] = split_note or meta.get("split", "none")
    x = features(path, arrays)
    if x is None and y is not None and len(y) <= IDENTITY_LIMIT:
        # Without anything to tell nodes apart a small graph gets their identity; a large one would need V * V bytes.
        x, meta["features"] = np.eye(len(arrays["indptr"]) - 1, dtype=np.uint8), "identity: the source has none"
    graph = Graph(arrays["indptr"], arrays["indices"])
    edge_splits: Arrays = {}
    if "test_pairs" in arrays:
        graph, edge_splits = _with_test_links(path, graph, arrays["test_pairs"], meta.get("users"))
    return Dataset(
        name=path.stem,
        graph=graph,
        x=x,
        edge_attr=arrays.get("edge_attr"),
        edge_y=edge_classes(path, arrays),
        y=y,
        splits=splits,
        edge_splits=edge_splits,
        meta=_with_rest(meta, set(arrays) - _CARRIED),
    )


def _typed(path: Path, arrays: Arrays, meta: dict[str, Any]) -> HeteroDataset:
    num_nodes, target = _types(path, meta)
    relations = {
        _relation(path, name): name.removesuffix("indptr") for name in arrays if name.startswith("rel_") and name.endswith("_indptr")
    }
    missing = next((f"{prefix}indices" for prefix in relations.values() if f"{prefix}indices" not in arrays), None)
    if missing is not None:
        raise InputError(f"{path} has no {missing} beside its indptr: a relation has both; correct it")
    columns = {relation: (arrays[f"{prefix}indptr"], arrays[f"{prefix}indices"]) for relation, prefix in relations.items()}
    x = {kind: rows for kind in num_nodes if (rows := _features_of(path, arrays, kind)) is not None}
    splits = {found[1] + (found[2] or ""): arrays[name] for name in arrays if (found := _MASK.fullmatch(name))}
    used = {f"{prefix}{part}" for prefix in relations.values() for part in ("indptr", "indices")} | {"y", "meta"}
    left = {name for name in arrays if not _MASK.fullmatch(name) and not any(name.startswith(f"{kind}_x") for kind in x)} - used
    return HeteroDataset(
        name=path.stem,
        graph=HeteroGraph(num_nodes, columns),
        seed_type=target,
        x=x,
        y=labels(path, arrays),
        splits=splits,
        meta=_with_rest(meta, left),
    )


def _with_rest(meta: dict[str, Any], left: set[str]) -> dict[str, Any]:
    return meta | ({"not_carried": sorted(left)} if left else {})


def _types(path: Path, meta: dict[str, Any]) -> tuple[dict[str, int], str]:
    """Return the number of nodes of each type, and the type that is trained on."""
    num_nodes, target = meta.get("node_types"), meta.get("target")
    if not isinstance(num_nodes, dict) or not all(isinstance(number, int) for number in num_nodes.values()) or target not in num_nodes:
        raise InputError(
            f"{path}: meta has node_types {num_nodes} and target {target!r}: it states the number of nodes of each type, and one of the types "
            "as that of y; add them"
        )
    return num_nodes, str(target)


def _relation(path: Path, name: str) -> Relation:
    """Return the relation that an array's name states."""
    parts = name.removeprefix("rel_").removesuffix("_indptr").split("__")
    if len(parts) not in (2, 3):
        raise InputError(
            f"{path}: {name} names no relation: it is rel_SOURCE__DESTINATION_indptr, or rel_SOURCE__NAME__DESTINATION_indptr; rename it"
        )
    return parts[0], parts[1] if len(parts) == 3 else "to", parts[-1]


def _features_of(path: Path, arrays: Arrays, kind: str) -> Array | None:
    """Return the features of a node type, under the names that a file with one type has."""
    return features(path, {name.removeprefix(f"{kind}_"): array for name, array in arrays.items() if name.startswith(f"{kind}_x")})


def _with_test_links(path: Path, graph: Graph, pairs: Array, users: Any) -> tuple[Graph, Arrays]:
    """The graph with the links held out besides, one edge each from a user to an item, and the ids of the edges by split."""
    items = graph.num_nodes - users if isinstance(users, int) else 0
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not is_integer(pairs.dtype) or not 0 < items < graph.num_nodes:
        raise InputError(
            f"{path}: test_pairs is {pairs.dtype} of shape {pairs.shape} and meta has users {users!r}: they are (N, 2) integers, a user and an "
            "item each, and users in meta is the number of users; correct them"
        )
    wrong = np.flatnonzero((pairs < 0).any(1) | (pairs >= [users, items]).any(1))
    if len(wrong):
        raise InputError(
            f"{path}: test_pairs {wrong[0]} is {pairs[wrong[0]].tolist()}: users are 0 to {users - 1}, items 0 to {items - 1}; correct it"
        )
    src, dst = (np.concatenate(parts) for parts in ((graph.indices, pairs[:, 0]), (graph.destinations(), pairs[:, 1] + users)))
    splits = {"train": np.arange(graph.num_edges), "test": graph.num_edges + np.arange(len(pairs))}
    return Graph.from_edges(src, dst, graph.num_nodes), splits


def read(path: Path) -> Arrays:
    """All arrays of a file.

    Raises:
        InputError: no whole file, or one with pickles.
    """
    try:
        return read_npz(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} cannot be read ({one_line(error)}): it has to be a whole .npz file without pickles; fetch it again")


def _check_kind(path: Path, arrays: Arrays) -> None:
    """Other kinds of data come as .npz files too; say what was found, and who reads it, instead of a missing key."""
    other = other_kind(arrays)
    if other is not None:
        kind, remedy = other
        raise InputError(f"{path} holds {kind}, not a homogeneous graph (indptr and indices of one kind of node): {remedy}")


def other_kind(arrays: Mapping[str, Any]) -> tuple[str, str] | None:
    """What a file with members of these names holds where it is not one graph, and what to do with it."""
    names = arrays.keys()
    if is_hetero(names):
        return "a heterogeneous graph (nodes of several kinds)", TYPED_REMEDY
    if {"indptr", "indices"} <= names:
        return None
    if {"src", "dst", "t"} <= names:
        remedy = "task: temporal_links reads it, by data.events; or make a graph by Graph.from_edges(src, dst, num_nodes, times=t), for TemporalSampler"
        return "a temporal graph (events src, dst, t)", remedy
    if {"train", "valid", "test"} <= names:
        return "a knowledge graph (triples head, relation, tail)", "task: kg reads it, by data.triples"
    if {"train_x", "train_y"} <= names:
        return "labelled samples without edges (train_x, train_y)", "task: images reads it where they are images, by data.images"
    remedy = "choose another file; one of your own holds indptr and indices by destination (CSC), x and y, or is made by Dataset(...).save(folder)"
    return f"the arrays {', '.join(sorted(names)[:8]) or '(none)'}", remedy


def is_hetero(names: Iterable[str]) -> bool:
    """Whether a file with members of these names holds a heterogeneous graph."""
    return any(name == "node_type" or (name.startswith("rel_") and "__" in name) for name in names)


def read_meta(path: Path, arrays: Arrays) -> dict[str, Any]:
    """What a file says of itself."""
    if "meta" not in arrays:
        return {"source": path.name}
    try:
        return {"source": path.name} | dict(parse_json(str(arrays["meta"])))
    except (ValueError, TypeError):
        raise InputError(f"{path}: meta is no JSON object: it has to be a text like '{{\"source\": ...}}'; correct or remove it") from None


def features(path: Path, arrays: Arrays) -> Array | None:
    """The features (V, F) of a file's nodes, if it has some."""
    if "x" in arrays:
        return narrow_features(arrays["x"])
    if set(_CSR) <= arrays.keys():
        return _dense(path, *(arrays[name] for name in _CSR))
    return _one_hot(path, arrays["node_label"]) if "node_label" in arrays else None


def _dense(path: Path, indptr: Array, indices: Array, data: Array, shape: Array) -> Array:
    from scipy.sparse import csr_array

    if (
        shape.shape != (2,)
        or not is_integer(shape.dtype)
        or shape.min() < 0
        or (len(indices) and not 0 <= indices.min() <= indices.max() < shape[1])
    ):
        raise InputError(f"{path}: x_indices leaves the {shape.tolist()} entries of x_shape: a column is in [0, F); fetch the file again")
    try:
        matrix = csr_array((data, indices.astype(np.int64), indptr), shape=tuple(shape.tolist()))
    except ValueError as error:
        raise InputError(f"{path}: x_indptr, x_indices and x_data are no CSR matrix ({error}); fetch the file again") from None
    matrix.sum_duplicates()
    matrix.data = narrow_features(matrix.data)  # before there are V * F of them
    needed = int(shape[0]) * int(shape[1]) * matrix.data.itemsize
    if needed > (there := available_memory()):
        raise InputError(
            f"{path}: x_shape is {shape.tolist()}: dense features of it take {needed / 1e9:,.1f} GB, and {there / 1e9:,.1f} GB of memory are free; "
            "keep fewer columns"
        )
    dense: Array = matrix.toarray()
    return dense


def _one_hot(path: Path, kinds: Array) -> Array:
    if kinds.ndim != 1 or not is_integer(kinds.dtype) or kinds.min(initial=0) < 0 or kinds.max(initial=0) > 65535:
        raise InputError(f"{path}: node_label is {kinds.dtype} of shape {kinds.shape}: it holds one small integer per node; correct it")
    x = np.zeros((len(kinds), int(kinds.max(initial=-1)) + 1), np.uint8)
    x[np.arange(len(kinds)), kinds] = 1
    return x


def labels(path: Path, arrays: Arrays) -> Array | None:
    """The labels (V,) or (V, C) of a file's nodes, if it has some."""
    y = arrays.get("y")
    if y is None:
        return None
    if y.ndim not in (1, 2) or not is_integer(y.dtype):
        raise InputError(f"{path}: y is {y.dtype} of shape {y.shape}: labels are integers, one (or one row) per node; correct it")
    return y


def edge_classes(path: Path, arrays: Arrays) -> Array | None:
    """The classes (E,) of a file's edges, if it has some; -1 for an edge that none is stated for, or several."""
    if not set(_OF_EDGES) <= arrays.keys():
        return None
    src, dst, kinds = (arrays[name] for name in _OF_EDGES)
    num_nodes, indices = len(arrays["indptr"]) - 1, arrays["indices"]
    if not len(src) == len(dst) == len(kinds) or not is_integer(kinds.dtype) or kinds.min(initial=0) < 0:
        raise InputError(f"{path}: rel_src, rel_dst and rel_type do not state a class from 0 on of as many edges each; correct them")
    keys = np.repeat(np.arange(num_nodes), np.diff(arrays["indptr"])) * num_nodes + indices
    order = np.argsort(keys)
    stated = dst.astype(np.int64) * num_nodes + src
    found = np.searchsorted(keys, stated, sorter=order).clip(max=len(keys) - 1)
    places, is_edge = order[found], keys[order[found]] == stated
    places, kinds = places[is_edge], kinds[is_edge].astype(np.int64)
    first, last = np.full(len(keys), np.iinfo(np.int64).max), np.full(len(keys), -1)
    np.minimum.at(first, places, kinds)
    np.maximum.at(last, places, kinds)
    return np.where(first == last, last, -1)


def _splits(path: Path, arrays: Arrays, y: Array | None) -> tuple[Arrays, str | None]:
    """The splits, and a note where the file's ``meta`` does not tell of them."""
    if given := {split: arrays[name] for split, name in zip(SPLITS, _IDS, strict=True) if name in arrays}:
        return given, "the file's"
    if y is None:
        return {}, None
    if not set(_MASKS) <= arrays.keys():
        labelled = np.arange(len(y)) if y.ndim == 2 else np.flatnonzero(y >= 0)
        return random_splits(labelled), RANDOM_SPLIT
    for mask in _MASKS:
        if arrays[mask].shape != (len(y),) or arrays[mask].dtype != bool:
            raise InputError(
                f"{path}: {mask} is {arrays[mask].dtype} of shape {arrays[mask].shape}: a mask is one bool per node; correct it"
            )
    return {split: arrays[f"{split}_mask"] for split in SPLITS}, None
