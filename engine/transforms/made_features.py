"""Features made from a graph alone, for data sets that have none: its degrees, or positions by random walks.

A function of the graph, the same on every machine with the same libraries. Computed once into the cache, under a name made of the graph's
checksum, and memory-mapped: ranks and workers share the pages.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.cache import check_room, convert_once
from hoptrain.engine.graph import Graph
from hoptrain.engine.store import FolderWriter, open_folder
from hoptrain.engine.transforms.hop_features import checksum_of, row_blocks
from hoptrain.kernels.cpu.projection import sparse_signs

MadeFeatures = Literal["degrees", "walks"]
KIND = "made features"
WIDTH = 128
"""Features of ``walks``."""
_STEPS = 8
_VERSION = 1


def make_features(graph: Graph, kind: MadeFeatures) -> Array:
    """Features of every node, computed into the cache the first time.

    ``degrees`` are two marks a node, one for its in-degree and one for its out-degree, on scales of half-octaves. ``walks`` are FastRP
    (Chen et al. 2019): where walks of 1 to 8 steps against the edges end, as random projections of these distributions, each of
    length 1, and added up; nodes that share neighbourhoods are near. The cost is 8 * 128 additions an edge.

    Args:
        graph: V nodes. Messages pass along its edges, and so do these features: links that are to be predicted must not be in it.
        kind: which.

    Returns:
        (V, F) uint8 for degrees, (V, 128) float32 for walks; read-only, memory-mapped.

    Raises:
        InputError: the cache cannot be written.
    """

    def write(writer: FolderWriter) -> None:
        if kind == "walks":
            check_room(writer.folder, 4 * WIDTH * graph.num_nodes)
        writer.add("x", walk_features(graph) if kind == "walks" else degree_features(graph))

    path = convert_once(f"features-{kind}-{_VERSION}-{graph.num_nodes}-{checksum_of(graph.indptr, graph.indices):08x}", KIND, write)
    return open_folder(path, KIND)[0]["x"]


def degree_features(graph: Graph) -> Array:
    """(V, F) uint8: the node's bin of in-degrees, beside it that of out-degrees; bins that nobody is in are left out."""
    return np.hstack([_one_hot(graph.in_degrees()), _one_hot(np.bincount(graph.indices, minlength=graph.num_nodes))])


def _one_hot(degrees: Array) -> Array:
    bins, places = np.unique(np.floor(2 * np.log2(degrees.astype(np.float64) + 1)), return_inverse=True)
    marks = np.zeros((len(degrees), len(bins)), np.uint8)
    marks[np.arange(len(degrees)), places] = 1
    return marks


def walk_features(graph: Graph) -> Array:
    """(V, WIDTH) float32 of about unit size; zero where no edge comes in. See ``make_features``."""
    current = np.empty((graph.num_nodes, WIDTH), np.float32)
    sparse_signs(current, np.uint64(0))
    total = np.zeros_like(current)
    for _ in range(_STEPS):
        current = _step(graph, current)
        length = np.sqrt(np.einsum("ij,ij->i", current, current))
        total += current / np.maximum(length, np.float32(1e-30))[:, None]
    return total * np.float32(np.sqrt(WIDTH) / _STEPS)


def _step(graph: Graph, x: Array) -> Array:
    """The mean over each node's in-neighbours, (V, C) float32; sums go in the order of the edges."""
    from scipy.sparse import csr_array

    out = np.empty_like(x)
    for begin, end in row_blocks(graph.indptr, x.shape[1]):
        offsets = graph.indptr[begin : end + 1]
        sources = graph.indices[offsets[0] : offsets[-1]]
        counts = csr_array((np.ones(len(sources), np.float32), sources, offsets - offsets[0]), shape=(end - begin, len(x)))
        out[begin:end] = (counts @ x) / np.maximum(np.diff(offsets), 1)[:, None].astype(np.float32)
    return out
