"""CSC arrays of a graph, or of a coarsened graph, and passes over the edges between labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.partition.count import list_pairs

PIECE = 1 << 22
"""Approximate number of edges whose (source label, destination label) pairs are listed at once."""


class CoarseGraph(NamedTuple):
    """A coarsened graph in CSC form, with the sizes of its edges and nodes.

    Attributes:
        indptr: (V+1,) offset of each column.
        indices: (E,) source nodes.
        edge_sizes: (E,) int32, number of original edges that each edge stands for; (0,) if every edge stands for one.
        sizes: (V, S) int64, the load that each node adds to its partition, for S kinds of load.
    """

    indptr: Array
    indices: Array
    edge_sizes: Array
    sizes: Array

    @property
    def num_nodes(self) -> int:
        """Number of nodes, V."""
        return len(self.sizes)


def contract(columns: CoarseGraph, labels: Array, num_labels: int) -> CoarseGraph:
    """Coarsen a graph to one node per label. Two labels between which edges exist get an edge in each direction, with the number of these edges.

    Args:
        columns: graph with V nodes.
        labels: (V,) int32 in [0, num_labels).
        num_labels: number of labels L.
    """
    keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for found, sizes in pairs_between(columns, labels, num_labels):
        keys, counts = _joined(keys, counts, found, sizes)
    low, high = np.divmod(keys, num_labels)
    order = np.argsort(np.concatenate([high, low]), kind="stable")
    indptr = np.zeros(num_labels + 1, np.int64)
    np.cumsum(np.bincount(low, minlength=num_labels) + np.bincount(high, minlength=num_labels), out=indptr[1:])
    return CoarseGraph(
        indptr=indptr,
        indices=np.concatenate([low, high])[order].astype(np.int32),
        edge_sizes=np.minimum(np.concatenate([counts, counts])[order], 2**31 - 1).astype(np.int32),
        sizes=loads_of(columns.sizes, labels, num_labels),
    )


def loads_of(sizes: Array, labels: Array, num_labels: int) -> Array:
    """Return the sums of sizes (V, S) by label, (L, S) int64."""
    loads = np.zeros((num_labels, sizes.shape[1]), np.int64)
    for s in range(sizes.shape[1]):
        np.add.at(loads[:, s], labels, sizes[:, s])
    return loads


def pairs_between(columns: CoarseGraph, labels: Array, num_labels: int) -> Iterator[tuple[Array, Array]]:
    """Yield the pairs of labels between which edges exist, each as smaller label * L + larger label, and their numbers of edges, (M,) each.

    Columns are processed in ranges. A pair occurs at most once per range.
    """
    first = 0
    while first < columns.num_nodes:
        last = int(np.searchsorted(columns.indptr, int(columns.indptr[first]) + PIECE, "right")) - 1
        last = min(max(last, first + 1), columns.num_nodes)
        capacity = int(columns.indptr[last]) - int(columns.indptr[first])
        keys, counts = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        number = list_pairs(*columns[:3], labels, num_labels, first, last, keys, counts)
        yield _joined(keys[:number], counts[:number])
        first = last


def _joined(keys: Array, counts: Array, more_keys: Array | None = None, more_counts: Array | None = None) -> tuple[Array, Array]:
    """Return the distinct keys, ascending, and the sum of the counts of each key."""
    if more_keys is not None and more_counts is not None:
        keys, counts = np.concatenate([keys, more_keys]), np.concatenate([counts, more_counts])
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    begins = np.flatnonzero(np.r_[len(keys) > 0, keys[1:] != keys[:-1]]) if len(keys) else np.empty(0, np.int64)
    return keys[begins], np.add.reduceat(counts[order], begins) if len(begins) else np.empty(0, np.int64)
