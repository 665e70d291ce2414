"""Reader of ``NAME.npz`` files: a graph in CSC form, dense or CSR features, labels and masks.

Members for a graph with one node type:

- ``indptr`` and ``indices``: the edges.
- ``x`` (V, F), or its CSR arrays ``x_indptr``, ``x_indices``, ``x_data`` and ``x_shape``: node features. Without them, ``node_label`` (a small integer
  per node) is one-hot encoded.
- ``y``: labels, -1 for none; two-dimensional if nodes may have several labels.
- ``train_mask``, ``val_mask``, ``test_mask``, or ``split_train`` and so on with ids or masks. Without them, labelled nodes are split at random.
- ``edge_attr``: edge features, one row per entry of ``indices``.
- ``rel_src``, ``rel_dst``, ``rel_type``: classes of directed edges, given by source and destination.
- ``test_pairs`` (N, 2): test links (user, item), with the number of ``users`` in ``meta``. A user is its node id, an item its node id minus this number.
- ``meta``: a JSON object.

Members for several node types:

- ``rel_A__B_indptr`` and ``rel_A__B_indices``: the edges of the relation (A, "to", B). ``rel_A__NAME__B_`` gives it another name.
- ``TYPE_x``, or its CSR members: features of the types that have some.
- ``y`` and masks as above, or several sets of masks such as ``train_mask_20``, which become splits such as ``train_20``.
- ``meta`` with ``node_types`` (the number of nodes of each type) and ``target`` (the node type of ``y`` and the masks).

Other members are ignored, and their names are stored in ``meta["not_carried"]``.
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
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.cache import open_cached
from hoptrain.engine.datasets.source import RANDOM_SPLIT, narrow_features
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.features.splits import SPLITS, random_splits
from hoptrain.engine.files.untrusted import npz_members, parse_json, read_npz
from hoptrain.engine.graph import Graph
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph, Relation
from hoptrain.engine.machine import available_memory

Arrays: TypeAlias = dict[str, Array]

TYPED_REMEDY = "task: hetero trains on it (--config own_hetero, or load_hetero_dataset in Python)"

NO_DOWNLOAD = {
    "flickr_attr": "write flickr_attr.npz from https://github.com/EdisonLeeeee/GraphData",
    "hetero_acm": "write hetero_acm.npz from https://github.com/liun-online/HeCo",
    "ogbl_ddi_train_graph": "give ogbl-ddi instead, which OGB provides, or write ogbl_ddi_train_graph.npz from its training links",
    "rec_gowalla": "write rec_gowalla.npz from https://github.com/gusye1234/LightGCN-PyTorch",
    "wordnet31": "write wordnet31.npz from https://wordnet.princeton.edu",
}
"""Data set name -> instruction to obtain the data set, for error messages. Configurations use these data sets, but hoptrain cannot download them."""

_VERSION = 4
IDENTITY_LIMIT = 4096
_CSR = ("x_indptr", "x_indices", "x_data", "x_shape")
_MASKS = tuple(f"{split}_mask" for split in SPLITS)
_IDS = tuple(f"split_{split}" for split in SPLITS)
_OF_EDGES = ("rel_src", "rel_dst", "rel_type")
_MASK = re.compile(r"(train|val|test)_mask(_\w+)?")
_CARRIED = {*_OF_EDGES, "indptr", "indices", "x", *_CSR, "y", *_MASKS, *_IDS, "node_label", "edge_attr", "test_pairs", "meta"}


def places(root: Path | None) -> list[Path]:
    """Return the folders that are searched for files: ``root``, then ``$HOPTRAIN_DATA``."""
    variable = os.environ.get("HOPTRAIN_DATA")
    return [place for place in (root, Path(variable) if variable else None) if place is not None]


def find_npz(name: str, root: Path | None) -> Path | None:
    """Return the file ``name.npz`` in the first folder of ``places(root)`` that has it, or None."""
    return next((place / f"{name}.npz" for place in places(root) if (place / f"{name}.npz").is_file()), None)


def not_found(name: str, root: Path | None, remedy: str) -> InputError:
    """Return the InputError for a data set that is in no folder of ``places(root)``."""
    root_text = "no root was given" if root is None else f"root {root} has no {name}.npz"
    variable = os.environ.get("HOPTRAIN_DATA")
    variable_text = f"$HOPTRAIN_DATA ({variable}) has none" if variable else "$HOPTRAIN_DATA is not set"
    return InputError(f"{name} is not on this machine: {root_text} and {variable_text}; {remedy}")


def load_npz(path: Path) -> Dataset | HeteroDataset:
    """Open the data set of a file. The first call converts it into the cache, under a key that depends on the checksums of the file's members.

    Raises:
        InputError: the file does not exist, is not a complete .npz file, or holds no graph.
    """
    try:
        members = npz_members(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    kind: type[Dataset | HeteroDataset] = HeteroDataset if is_hetero(members) else Dataset
    checksum = zlib.crc32(repr([(f"{name}.npy", *facts) for name, facts in members.items()]).encode())
    return open_cached(kind, f"{path.stem}-npz{_VERSION}-{checksum:08x}", lambda writer: convert_npz(path).write_to(writer))


def convert_npz(path: Path) -> Dataset | HeteroDataset:
    """Read and validate the data set of a file, in memory.

    Raises:
        InputError: the file cannot be read, or a member is missing or invalid.
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
        # without features a small graph gets one-hot node ids; for a large one these would take V * V bytes
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
        raise InputError(f"{path} has no {missing}, but its indptr: a relation needs both; add it")
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
    """Return the number of nodes of each type, and the type to train on."""
    num_nodes, target = meta.get("node_types"), meta.get("target")
    if not isinstance(num_nodes, dict) or not all(isinstance(number, int) for number in num_nodes.values()) or target not in num_nodes:
        raise InputError(
            f"{path}: meta has node_types {num_nodes} and target {target!r}: node_types must be the number of nodes of each type, and target the "
            "type of y; add them"
        )
    return num_nodes, str(target)


def _relation(path: Path, name: str) -> Relation:
    """Return the relation that the name of an archive's member encodes."""
    parts = name.removeprefix("rel_").removesuffix("_indptr").split("__")
    if len(parts) not in (2, 3):
        raise InputError(
            f"{path}: {name} names no relation: it must be rel_SOURCE__DESTINATION_indptr or rel_SOURCE__NAME__DESTINATION_indptr; rename it"
        )
    return parts[0], parts[1] if len(parts) == 3 else "to", parts[-1]


def _features_of(path: Path, arrays: Arrays, kind: str) -> Array | None:
    """Return the features of a node type, or None if it has none."""
    return features(path, {name.removeprefix(f"{kind}_"): array for name, array in arrays.items() if name.startswith(f"{kind}_x")})


def _with_test_links(path: Path, graph: Graph, pairs: Array, users: Any) -> tuple[Graph, Arrays]:
    """Return the graph with the test links added as edges from user to item, and the edge ids by split."""
    items = graph.num_nodes - users if isinstance(users, int) else 0
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not is_integer(pairs.dtype) or not 0 < items < graph.num_nodes:
        raise InputError(
            f"{path}: test_pairs is {pairs.dtype} of shape {pairs.shape} and meta has users {users!r}: test_pairs must be (N, 2) integers, a user and "
            "an item each, and users the number of users; give these two"
        )
    wrong = np.flatnonzero((pairs < 0).any(1) | (pairs >= [users, items]).any(1))
    if len(wrong):
        raise InputError(
            f"{path}: test_pairs {wrong[0]} is {pairs[wrong[0]].tolist()}: users are 0 to {users - 1}, items 0 to {items - 1}; drop the pair"
        )
    src, dst = (np.concatenate(parts) for parts in ((graph.indices, pairs[:, 0]), (graph.destinations(), pairs[:, 1] + users)))
    splits = {"train": np.arange(graph.num_edges), "test": graph.num_edges + np.arange(len(pairs))}
    return Graph.from_edges(src, dst, graph.num_nodes), splits


def read(path: Path) -> Arrays:
    """Read all arrays of a file.

    Raises:
        InputError: the file is not a complete .npz file, or contains pickled objects.
    """
    try:
        return read_npz(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} cannot be read ({one_line(error)}): it must be a whole .npz file without pickles; fetch it again")


def _check_kind(path: Path, arrays: Arrays) -> None:
    """Raise InputError for .npz files with other kinds of data. The message names the kind and the task that reads it."""
    other = other_kind(arrays)
    if other is not None:
        kind, remedy = other
        raise InputError(f"{path} holds {kind}, not a homogeneous graph (indptr and indices of one node type): {remedy}")


def other_kind(arrays: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (kind, remedy) if the member names show that the file does not hold a single homogeneous graph, else None."""
    names = arrays.keys()
    if is_hetero(names):
        return "a heterogeneous graph (several node types)", TYPED_REMEDY
    if {"indptr", "indices"} <= names:
        return None
    if {"src", "dst", "t"} <= names:
        remedy = "task: temporal_links reads it with data.events; or make a graph with Graph.from_edges(src, dst, num_nodes, times=t), for TemporalSampler"
        return "a temporal graph (events src, dst, t)", remedy
    if {"train", "valid", "test"} <= names:
        return "a knowledge graph (triples head, relation, tail)", "task: kg reads it with data.triples"
    if {"train_x", "train_y"} <= names:
        return "labelled samples without edges (train_x, train_y)", "task: images reads it with data.images, if they are images"
    remedy = (
        "choose another file; a graph needs indptr and indices by destination (CSC), x and y; or write one with Dataset(...).save(folder)"
    )
    return f"the arrays {', '.join(sorted(names)[:8]) or '(none)'}", remedy


def is_hetero(names: Iterable[str]) -> bool:
    """Return whether a file with these member names holds a heterogeneous graph."""
    return any(name == "node_type" or (name.startswith("rel_") and "__" in name) for name in names)


def read_meta(path: Path, arrays: Arrays) -> dict[str, Any]:
    """Return the file's ``meta``. If it has no ``source``, the file's name becomes the ``source``."""
    if "meta" not in arrays:
        return {"source": path.name}
    try:
        return {"source": path.name} | dict(parse_json(str(arrays["meta"])))
    except (ValueError, TypeError):
        raise InputError(f"{path}: meta is not a JSON object: it must be a text like '{{\"source\": ...}}'; correct or remove it") from None


def features(path: Path, arrays: Arrays) -> Array | None:
    """Return the node features (V, F) of a file, or None if it has none."""
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
        raise InputError(f"{path}: x_indices leaves the x_shape {shape.tolist()}: column indices must be in [0, F); fetch the file again")
    try:
        matrix = csr_array((data, indices.astype(np.int64), indptr), shape=tuple(shape.tolist()))
    except ValueError as error:
        raise InputError(f"{path}: x_indptr, x_indices and x_data are not a CSR matrix ({error}); fetch the file again") from None
    matrix.sum_duplicates()
    matrix.data = narrow_features(matrix.data)  # convert to a narrow dtype before the dense V * F array is made
    needed = int(shape[0]) * int(shape[1]) * matrix.data.itemsize
    if needed > (there := available_memory()):
        raise InputError(
            f"{path}: x_shape is {shape.tolist()}: dense features take {needed / 1e9:,.1f} GB, but {there / 1e9:,.1f} GB of memory are free; "
            "keep fewer columns"
        )
    dense: Array = matrix.toarray()
    return dense


def _one_hot(path: Path, kinds: Array) -> Array:
    if kinds.ndim != 1 or not is_integer(kinds.dtype) or kinds.min(initial=0) < 0 or kinds.max(initial=0) > 65535:
        raise InputError(
            f"{path}: node_label is {kinds.dtype} of shape {kinds.shape}: it must be one integer in [0, 65535] per node; convert it"
        )
    x = np.zeros((len(kinds), int(kinds.max(initial=-1)) + 1), np.uint8)
    x[np.arange(len(kinds)), kinds] = 1
    return x


def labels(path: Path, arrays: Arrays) -> Array | None:
    """Return the node labels (V,) or (V, C) of a file, or None if it has none."""
    y = arrays.get("y")
    if y is None:
        return None
    if y.ndim not in (1, 2) or not is_integer(y.dtype):
        raise InputError(f"{path}: y is {y.dtype} of shape {y.shape}: labels must be integers, one (or one row) per node; convert it")
    return y


def edge_classes(path: Path, arrays: Arrays) -> Array | None:
    """Return the edge classes (E,) of a file, or None if it has none. An edge with no class, or with several, gets -1."""
    if not set(_OF_EDGES) <= arrays.keys():
        return None
    src, dst, kinds = (arrays[name] for name in _OF_EDGES)
    num_nodes, indices = len(arrays["indptr"]) - 1, arrays["indices"]
    if not len(src) == len(dst) == len(kinds) or not is_integer(kinds.dtype) or kinds.min(initial=0) < 0:
        raise InputError(
            f"{path}: rel_src, rel_dst and rel_type must be of equal length, with integer classes of 0 or more; write them again"
        )
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
    """Return the splits and, unless ``meta`` describes them, a note on their origin."""
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
                f"{path}: {mask} is {arrays[mask].dtype} of shape {arrays[mask].shape}: a mask must be one bool per node; convert it"
            )
    return {split: arrays[f"{split}_mask"] for split in SPLITS}, None
