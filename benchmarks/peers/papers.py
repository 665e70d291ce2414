"""FastGCN and LADIES as their authors' programs do it, for ``hoptrain bench algorithms``: see ``hoptrain.benchmarks.peers.algorithms``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from hoptrain.benchmarks.cases.algorithms import Contender, Open, Task, pool_batches
from hoptrain.benchmarks.peers.samplers import require
from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array


def open_papers(graph: Graph) -> Open:
    """Take the graph over into a matrix of scipy.

    Raises:
        InputError: torch is not installed.
    """
    require("torch")
    from scipy.sparse import csr_array

    degrees = graph.in_degrees()
    values = np.repeat(1 / np.maximum(degrees, 1), degrees).astype(np.float32)
    matrix = csr_array((values, np.array(graph.indices), np.array(graph.indptr)), shape=(graph.num_nodes, graph.num_nodes))

    def contenders(name: str, task: Task, threads: Sequence[int]) -> Iterator[Contender]:
        if name not in ("fastgcn", "ladies"):
            return
        law = _share_of_columns(matrix) if name == "fastgcn" else None
        sample = partial(_layer_wise, matrix, task.options["sizes"], law)
        for count in threads:
            pooled = partial(pool_batches, ThreadPoolExecutor(count), sample)
            yield Contender(family="papers", name="scipy, as published", threads=count, sample=pooled, note="draws without replacement")

    return contenders


def _share_of_columns(rows: Any) -> Array:
    """(V,) the squared norm of each column as a share of them all."""
    squares = np.asarray(rows.multiply(rows).sum(axis=0)).ravel().astype(np.float64)
    shares: Array = squares / squares.sum()
    return shares


def _layer_wise(matrix: Any, sizes: Sequence[int], law: Array | None, seeds: Array) -> int:
    """FastGCN's layers by ``law``, or LADIES', which join the seeds; each row is scaled to add up to 1."""
    previous, edges = seeds, 0
    for size in sizes:
        rows = matrix[previous]
        shares = _share_of_columns(rows) if law is None else law
        drawn = np.random.choice(len(shares), min(size, int(np.count_nonzero(shares))), p=shares, replace=False)
        drawn = np.unique(np.r_[drawn, seeds]) if law is None else drawn
        block = rows[:, drawn].multiply(1 / np.maximum(shares[drawn], 1e-30)).tocsr()
        sums = np.asarray(block.sum(axis=1)).ravel()
        block = block.multiply(1 / np.where(sums > 0, sums, 1)[:, None]).tocoo()
        edges += _as_torch(block)
        previous = drawn
    return edges


def _as_torch(block: Any) -> int:
    import torch

    places = torch.from_numpy(np.vstack((block.row, block.col)).astype(np.int64))
    tensor = torch.sparse_coo_tensor(places, torch.from_numpy(block.data.astype(np.float32)), block.shape, check_invariants=False)
    return int(tensor._nnz())
