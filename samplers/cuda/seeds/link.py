"""The edges that ``LinkSampler`` excludes, taken out of a bulk on a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.kernels.cuda.seeds import link as kernels
from hoptrain.samplers.cuda.bulk import Bulk, Edges


def drop_edges(dropped: Sequence[Array], bulk: Bulk) -> None:
    """Queue it after the last hop.

    Args:
        dropped: for each batch (D,) int64, ``source * num_seeds + destination`` in local ids, ascending.
        bulk: whose nodes are different vertices, so that seeds alone are the ends of these edges.
    """
    table = bulk.buffers.array("dropped", (bulk.num_batches, max(len(own) for own in dropped)), np.int64)
    counts = bulk.buffers.array("num_dropped", bulk.zeros.shape, np.int64)
    host, host_counts = bulk.buffers.pinned("dropped", table), bulk.buffers.pinned("num_dropped", counts)
    for b, own in enumerate(dropped):
        host[b, : len(own)], host_counts[b] = own, len(own)
    table.copy_to_device(host, stream=bulk.stream)
    counts.copy_to_device(host_counts, stream=bulk.stream)
    shared = len(bulk.edges) < len(bulk.num_edges)  # by all hops
    for h, edges in enumerate(bulk.edges):
        hop = len(bulk.num_edges) - 1 if shared else h
        bulk.edges[h] = _left(bulk, edges, h, (bulk.num_nodes[hop], bulk.num_nodes[0], table, counts), bulk.num_edges[hop])
    if shared:
        for num_nodes, num_edges in zip(bulk.num_nodes[:-1], bulk.num_edges, strict=True):
            bulk.launch.one_block_each(kernels.read_ends, bulk.edges[0].indptr, num_nodes, num_edges)


def _left(bulk: Bulk, edges: Edges, number: int, rule: tuple[Any, Any, Any, Any], num_edges: Any) -> Edges:
    """The edges that are left, in arrays of their own; their number goes to ``num_edges``."""
    array = bulk.buffers.array
    capacity, num_dst = edges.indptr.shape[1] - 1, rule[0]
    left = Edges(
        array(f"left_indptr{number}", edges.indptr.shape, edges.indptr.dtype),
        array(f"left_edge_ids{number}", edges.edge_ids.shape, edges.edge_ids.dtype),
        array(f"left_indices{number}", edges.indices.shape, edges.indices.dtype),
        None if edges.weights is None else array(f"left_weights{number}", edges.weights.shape, np.uint32),
    )
    bulk.launch.rows(kernels.count_left, capacity, edges.indptr, edges.indices, *rule, left.indptr)
    exclusive_scan(bulk.launch, left.indptr, capacity, bulk.zeros, num_dst, bulk.zeros, bulk.sums(capacity), num_edges)
    has_weights, none = int(edges.weights is not None), array("no_weights", (1, 1), np.uint32)
    weights = (edges.weights, left.weights) if has_weights else (none, none)
    bulk.launch.rows(kernels.move_left, capacity, *edges[:3], weights[0], *rule, has_weights, *left[:3], weights[1])
    return left
