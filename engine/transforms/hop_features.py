"""Precomputed hop features for SIGN (Frasca et al. 2020): S**k X for k = 0 to K, with GCN's normalised adjacency S, memory-mapped.

Hop k + 1 is computed from hop k in blocks of rows, so memory holds one block at a time.
"""

from __future__ import annotations

import zlib
from functools import partial
from itertools import pairwise

import numpy as np

from hoptrain.engine.arrays import Array, as_float32
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.cache import check_disk_space, convert_once
from hoptrain.engine.errors import InputError
from hoptrain.engine.features.quantized import Rows, files_of
from hoptrain.engine.features.take import take_rows
from hoptrain.engine.store import HEADER, FolderWriter, open_folder

KIND = "hop features"
BLOCK_EDGES = 1 << 20
"""Approximate number of edges into the nodes whose rows are computed at once."""
_VERSION = 1


def open_hop_features(data: Dataset, num_hops: int, *, normalize: bool = False) -> list[Array]:
    """Return the features of each hop. The first call computes them into the cache.

    Args:
        data: a data set with features.
        num_hops: number of hops K.
        normalize: True to divide each node's features by their sum first.

    Returns:
        K + 1 arrays (V, F) float32, memory-mapped; the first has the node features.

    Raises:
        InputError: the data set has no features, ``num_hops`` is negative, or the cache cannot be written.
    """
    if data.x is None:
        raise InputError(f"{data.name} has no features: hop features are computed from them; use a data set with x")
    if num_hops < 0:
        raise InputError(f"num_hops is {num_hops}: it must be 0 or more; give 0 or more")
    name = "memory" if data.path is None else data.name.replace(":", "-")
    key = f"{name}-hops{num_hops}{'-normalized' if normalize else ''}-{_VERSION}-{_checksum(data, data.x):08x}"
    write = partial(_write, data=data, x=data.x, num_hops=num_hops, normalize=normalize)
    arrays, _ = open_folder(convert_once(key, KIND, write), KIND)
    return [arrays[f"hop{hop}"] for hop in range(num_hops + 1)]


def _checksum(data: Dataset, x: Rows) -> int:
    """Return a checksum of the data set: of its header, which has the files' checksums, or of the arrays if it has no folder."""
    if data.path is not None:
        return zlib.crc32((data.path / HEADER).read_bytes())
    return checksum_of(data.graph.indptr, data.graph.indices, *files_of("x", x).values())


def checksum_of(*arrays: Array) -> int:
    """Return the CRC-32 checksum of the concatenated bytes of arrays."""
    checksum = 0
    for array in arrays:
        checksum = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, checksum)
    return checksum


def _write(writer: FolderWriter, data: Dataset, x: Rows, num_hops: int, normalize: bool) -> None:
    check_disk_space(writer.folder, 4 * (num_hops + 1) * len(x) * x.shape[1])
    bounds = row_blocks(data.graph.indptr, x.shape[1])
    current = writer.create("hop0", np.float32, x.shape)
    for begin, end in bounds:
        current[begin:end] = _as_float(take_rows(x, np.arange(begin, end)), normalize)
    scale = 1 / np.sqrt(data.graph.in_degrees().astype(np.float32) + 1)
    for hop in range(1, num_hops + 1):
        following = writer.create(f"hop{hop}", np.float32, x.shape)
        for begin, end in bounds:
            following[begin:end] = propagate(data.graph.indptr, data.graph.indices, scale, current, begin, end)
        current = following


def _as_float(x: Array, normalize: bool) -> Array:
    rows = as_float32(x)
    if normalize:
        rows = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-12)
    return rows


def propagate(indptr: Array, indices: Array, scale: Array, x: Array, begin: int, end: int) -> Array:
    """Return rows ``begin`` to ``end`` of S x: s_v (s_v x_v + sum over in-neighbours u of s_u x_u), with s = ``scale`` = 1 / sqrt(degree + 1)."""
    from scipy.sparse import csr_array

    offsets = indptr[begin : end + 1]
    sources = indices[offsets[0] : offsets[-1]]
    block = csr_array((scale[sources], sources, offsets - offsets[0]), shape=(end - begin, len(x)))
    own = scale[begin:end, None]
    rows: Array = own * (own * x[begin:end] + block @ x)
    return rows


def row_blocks(indptr: Array, num_features: int) -> list[tuple[int, int]]:
    """Return the ranges [begin, end) of blocks of rows. A block has at most ``BLOCK_EDGES`` edges and values in total, unless it is a single row."""
    load = indptr[1:].astype(np.int64) + num_features * np.arange(1, len(indptr), dtype=np.int64)
    bounds = [0]
    while bounds[-1] < len(load):
        done = load[bounds[-1] - 1] if bounds[-1] else 0
        bounds.append(max(bounds[-1] + 1, int(np.searchsorted(load, done + BLOCK_EDGES, side="right"))))
    return list(pairwise(bounds))
