"""How likely a node is to be in a mini-batch: what a cache of features, or a look at a sampler's law, asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hoptrain.engine import Graph, HeteroGraph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.columns import copy_columns, total_degree
from hoptrain.kernels.shared.draws import ALL, num_draws
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.nodewise.neighbor import NeighborSampler

_BULK = 16


def sampling_probabilities(
    sampler: Sampler[Any, Any], graph: Graph | HeteroGraph, seeds: Array | Mapping[str, Array], *, num_batches: int = 1000, seed: int = 0
) -> Any:
    """The probability of each node to be a node of the mini-batch of ``seeds``.

    Exact for a ``NeighborSampler`` of one hop without weights, whose destinations draw independently: one of d edges, m of them from u, keeps none of
    these with probability C(d - m, k) / C(d, k), or (1 - m / d)**k with replacement. For all others the share of ``num_batches`` batches
    that have the node, with a standard error of sqrt(p (1 - p) / num_batches).

    Args:
        sampler: the algorithm, prepared.
        graph: the graph.
        seeds: (B,) what ``sampler.sample`` takes; of several types a dictionary by type.
        num_batches: batches that are counted.
        seed: their address, with epoch 0 and batches from 0 on.

    Returns:
        (V,) float64; of a heterogeneous graph a dictionary of such arrays by type.

    Raises:
        InputError: no batch to count; as ``Sampler.sample``.
    """
    if num_batches < 1:
        raise InputError(f"num_batches is {num_batches}: probabilities are counted over one or more; correct it")
    if isinstance(graph, HeteroGraph):
        return _counted(sampler, graph, graph.numbered(seeds) if isinstance(seeds, Mapping) else seeds, num_batches, seed)
    if type(sampler) is NeighborSampler and len(sampler.fanouts) == 1 and not sampler.weighted:
        return _of_one_hop(graph, check_seeds(graph, np.asarray(seeds), distinct=True), sampler.fanout_codes[0], sampler.replace)
    return _counted(sampler, graph, seeds, num_batches, seed)[""]


def _counted(sampler: Sampler[Any, Any], graph: Graph | HeteroGraph, seeds: Any, num_batches: int, seed: int) -> dict[str, Array]:
    """The shares of batches that have each node, by type; "" stands for that of a graph of one type."""
    numbers = graph.num_nodes if isinstance(graph, HeteroGraph) else {"": graph.num_nodes}
    counts, workspace = {name: np.zeros(number) for name, number in numbers.items()}, Workspace()
    for first in range(0, num_batches, _BULK):
        bulk = [seeds] * min(_BULK, num_batches - first)
        for batch in sampler.sample_bulk(graph, bulk, seed=seed, first_batch=first, workspace=workspace):
            for name, ids in batch.node_ids.items() if isinstance(graph, HeteroGraph) else (("", batch.node_ids),):
                counts[name][ids] += 1  # once, though a node may be several nodes
    return {name: found / num_batches for name, found in counts.items()}


def _of_one_hop(graph: Graph, seeds: Array, fanout: int, replace: bool) -> Array:
    """By the copies of each source in each column."""
    total = total_degree(graph.indptr, seeds, len(seeds))
    indptr, sources = np.empty(len(seeds) + 1, np.int64), np.empty(total, graph.indices.dtype)
    copy_columns(graph.indptr, graph.indices, seeds, len(seeds), indptr, sources)
    degrees = np.diff(indptr)
    pairs, copies = np.unique(np.repeat(np.arange(len(seeds)), degrees) * graph.num_nodes + sources, return_counts=True)
    degree = degrees[pairs // graph.num_nodes].astype(np.float64)
    missed = np.zeros(len(pairs))
    draws = np.array([num_draws(own, fanout, replace) for own in degrees])[pairs // graph.num_nodes]
    if fanout != ALL and replace:
        missed = (1 - copies / degree) ** draws
    elif fanout != ALL:
        missed = np.ones(len(pairs))
        for copy in range(int(copies.max(initial=0))):
            missed *= np.where(copy < copies, np.maximum(1 - draws / (degree - np.minimum(copy, copies - 1)), 0), 1)
    kept = np.ones(graph.num_nodes)
    np.multiply.at(kept, pairs % graph.num_nodes, missed)
    kept[seeds] = 0
    probabilities: Array = 1 - kept
    return probabilities
