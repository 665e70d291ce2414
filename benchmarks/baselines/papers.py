"""FastGCN and LADIES, which neither PyG nor DGL has, reimplemented from the programs that the authors of LADIES published for both.

As there, the graph is a scipy matrix, ``numpy.random.choice`` samples without replacement, rows are normalised to sum to 1, and blocks are torch tensors.
Features are not fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from hoptrain.benchmarks.baselines.systems import AlgorithmSystems, System, pooled
from hoptrain.benchmarks.cases.samplers import Workload
from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array

_NOTES = {"fastgcn": "samples without replacement", "ladies": "samples without replacement; adds the seeds to every layer, as published"}


def open_algorithms(graph: Graph) -> AlgorithmSystems:
    """Convert the graph to a scipy matrix and return the algorithms."""
    matrix = to_scipy(graph)

    def systems(name: str, workload: Workload, threads: Sequence[int]) -> Iterator[System]:
        if name not in _NOTES:
            return
        law = share_of_columns(matrix) if name == "fastgcn" else None
        sample = partial(_num_edges, matrix, workload.options["layer_sizes"], law, "seeds" if name == "ladies" else "")
        yield from pooled("papers", "scipy, as published", sample, threads, note=_NOTES[name])

    return systems


def to_scipy(graph: Graph) -> Any:
    """Convert a graph to a ``csr_array`` (V, V) float32 with its own memory. A node with d in-neighbours has 1 / d in their columns of its row."""
    from scipy.sparse import csr_array  # imported here, so that processes whose memory is measured do not load scipy

    degrees = graph.in_degrees()
    values = np.repeat(1 / np.maximum(degrees, 1), degrees).astype(np.float32)
    return csr_array((values, np.array(graph.indices), np.array(graph.indptr)), shape=(graph.num_nodes, graph.num_nodes))


def share_of_columns(rows: Any) -> Array:
    """Return the fraction that each column has of the matrix's squared norm, (V,) float64. For the whole matrix this is FastGCN's distribution."""
    squares = np.asarray(rows.multiply(rows).sum(axis=0)).ravel().astype(np.float64)
    shares: Array = squares / squares.sum()
    return shares


def layers(matrix: Any, sizes: Sequence[int], law: Array | None, join: str, seeds: Array) -> Iterator[tuple[Any, Array]]:
    """Yield the layers of a mini-batch, from the seeds outward: a scipy block (destinations, sources), and the ids of its sources.

    Args:
        matrix: (V, V) matrix from ``to_scipy``.
        sizes: number of nodes to sample in each layer.
        law: (V,) sampling distribution of all layers, for FastGCN; None computes it from the rows of each layer's destinations, as LADIES does.
        join: nodes to add to the sampled ones. "seeds": the mini-batch's seeds, with their edges, as in the published LADIES. "previous": the layer's
            destinations, placed first, and without edges unless they were sampled, for a model that also uses each node's own features. "": none, as in
            the published FastGCN.
        seeds: (B,) node ids.
    """
    nodes = seeds
    for size in sizes:
        rows = matrix[nodes]
        shares = share_of_columns(rows) if law is None else law
        drawn = np.random.choice(len(shares), min(size, int(np.count_nonzero(shares))), p=shares, replace=False)
        if join == "previous":
            sources = np.r_[nodes, np.setdiff1d(drawn, nodes)]
            scale = np.zeros(len(shares))
            scale[drawn] = 1 / shares[drawn]
            block = rows[:, sources].multiply(scale[sources]).tocsr()
            block.eliminate_zeros()
        else:
            sources = np.unique(np.r_[drawn, seeds]) if join == "seeds" else drawn
            block = rows[:, sources].multiply(1 / np.maximum(shares[sources], 1e-30)).tocsr()
        sums = np.asarray(block.sum(axis=1)).ravel()
        yield block.multiply(1 / np.where(sums > 0, sums, 1)[:, None]), sources
        nodes = sources


def _num_edges(matrix: Any, sizes: Sequence[int], law: Array | None, join: str, seeds: Array) -> int:
    return sum(_as_torch(block.tocoo()) for block, _ in layers(matrix, sizes, law, join, seeds))


def _as_torch(block: Any) -> int:
    places = torch.from_numpy(np.vstack((block.row, block.col)).astype(np.int64))
    tensor = torch.sparse_coo_tensor(places, torch.from_numpy(block.data.astype(np.float32)), block.shape, check_invariants=False)
    return int(tensor._nnz())
