"""FastGCN and LADIES, which are in neither library, as the authors of LADIES published both, written down again.

A matrix in scipy, draws by ``numpy.random.choice`` without replacement, rows scaled to add up to 1, blocks as torch's tensors. Features are not
fetched here.
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

_NOTES = {"fastgcn": "draws without replacement", "ladies": "draws without replacement; joins the seeds to every layer, as published"}


def open_algorithms(graph: Graph) -> AlgorithmSystems:
    """Take the graph over into a matrix of scipy."""
    matrix = to_scipy(graph)

    def systems(name: str, workload: Workload, threads: Sequence[int]) -> Iterator[System]:
        if name not in _NOTES:
            return
        law = share_of_columns(matrix) if name == "fastgcn" else None
        sample = partial(_num_edges, matrix, workload.options["layer_sizes"], law, "seeds" if name == "ladies" else "")
        yield from pooled("papers", "scipy, as published", sample, threads, note=_NOTES[name])

    return systems


def to_scipy(graph: Graph) -> Any:
    """``csr_array`` (V, V) float32: a row has 1 / d at each of its node's d in-neighbours. It has memory of its own."""
    from scipy.sparse import csr_array  # only here: processes whose memory is measured go without

    degrees = graph.in_degrees()
    values = np.repeat(1 / np.maximum(degrees, 1), degrees).astype(np.float32)
    return csr_array((values, np.array(graph.indices), np.array(graph.indptr)), shape=(graph.num_nodes, graph.num_nodes))


def share_of_columns(rows: Any) -> Array:
    """(V,) float64, the squared norm of each column as a share of them all: how FastGCN draws nodes, from the rows of all."""
    squares = np.asarray(rows.multiply(rows).sum(axis=0)).ravel().astype(np.float64)
    shares: Array = squares / squares.sum()
    return shares


def layers(matrix: Any, sizes: Sequence[int], law: Array | None, join: str, seeds: Array) -> Iterator[tuple[Any, Array]]:
    """The layers of a mini-batch, from the seeds outward: a block (destinations, sources) of scipy, and the ids of its sources.

    Args:
        matrix: (V, V) of ``to_scipy``.
        sizes: draws of each layer.
        law: (V,) by which FastGCN draws all layers; None draws by the columns of the rows at hand, as LADIES does.
        join: what is put beside the nodes drawn for a layer. "seeds": those of the mini-batch, with their edges, as LADIES was published.
            "previous": the layer's destinations, in front and without edges of theirs where they were not drawn, for a model that uses a node
            itself too. "": nothing, as FastGCN was published.
        seeds: (B,) ids.
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
