"""Features computed from the graph alone, for data sets without features: degrees, or embeddings of random walks.

The features are a function of the graph, identical on every machine with the same libraries. They are computed once into the cache, under a key derived
from the graph's checksum, and memory-mapped, so that ranks and workers share the pages.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.cache import check_disk_space, convert_once
from hoptrain.engine.graph import Graph
from hoptrain.engine.store import FolderWriter, open_folder
from hoptrain.engine.transforms.hop_features import checksum_of, row_blocks
from hoptrain.kernels.cpu.projection import sparse_signs

MadeFeatures = Literal["degrees", "walks"]
KIND = "made features"
WIDTH = 128
"""Number of features per node that ``walks`` computes."""
_STEPS = 8
_VERSION = 1


def make_features(graph: Graph, kind: MadeFeatures) -> Array:
    """Return features of every node. The first call computes them into the cache.

    ``degrees`` is a one-hot encoding of a node's in-degree and out-degree in half-octave bins. ``walks`` is FastRP (Chen et al. 2019): random projections of
    the distributions of the end nodes of walks of 1 to 8 steps against the edges, each normalised to length 1, and summed. Nodes with similar
    neighbourhoods get similar features. It costs 8 * 128 additions per edge.

    Args:
        graph: graph with V nodes. These features contain information on its edges, so it must not have links that are to be predicted.
        kind: kind of features, ``degrees`` or ``walks``.

    Returns:
        (V, F) uint8 for ``degrees``, (V, 128) float32 for ``walks``; read-only, memory-mapped.

    Raises:
        InputError: the cache cannot be written.
    """

    def write(writer: FolderWriter) -> None:
        if kind == "walks":
            check_disk_space(writer.folder, 4 * WIDTH * graph.num_nodes)
        writer.add("x", walk_features(graph) if kind == "walks" else degree_features(graph))

    path = convert_once(f"features-{kind}-{_VERSION}-{graph.num_nodes}-{checksum_of(graph.indptr, graph.indices):08x}", KIND, write)
    return open_folder(path, KIND)[0]["x"]


def degree_features(graph: Graph) -> Array:
    """Return one-hot bins of in-degree and of out-degree, concatenated, (V, F) uint8. Empty bins are left out."""
    return np.hstack([_one_hot(graph.in_degrees()), _one_hot(np.bincount(graph.indices, minlength=graph.num_nodes))])


def _one_hot(degrees: Array) -> Array:
    bins, places = np.unique(np.floor(2 * np.log2(degrees.astype(np.float64) + 1)), return_inverse=True)
    marks = np.zeros((len(degrees), len(bins)), np.uint8)
    marks[np.arange(len(degrees)), places] = 1
    return marks


def walk_features(graph: Graph) -> Array:
    """Return FastRP features (V, WIDTH) float32 of about unit size (see ``make_features``), 0 for nodes without in-edges."""
    current = np.empty((graph.num_nodes, WIDTH), np.float32)
    sparse_signs(current, np.uint64(0))
    total = np.zeros_like(current)
    for _ in range(_STEPS):
        current = _step(graph, current)
        length = np.sqrt(np.einsum("ij,ij->i", current, current))
        total += current / np.maximum(length, np.float32(1e-30))[:, None]
    return total * np.float32(np.sqrt(WIDTH) / _STEPS)


def _step(graph: Graph, x: Array) -> Array:
    """Return the mean of each node's in-neighbours, (V, C) float32. Sums are in edge order, hence deterministic."""
    from scipy.sparse import csr_array

    out = np.empty_like(x)
    for begin, end in row_blocks(graph.indptr, x.shape[1]):
        offsets = graph.indptr[begin : end + 1]
        sources = graph.indices[offsets[0] : offsets[-1]]
        counts = csr_array((np.ones(len(sources), np.float32), sources, offsets - offsets[0]), shape=(end - begin, len(x)))
        out[begin:end] = (counts @ x) / np.maximum(np.diff(offsets), 1)[:, None].astype(np.float32)
    return out
