"""The probability that a node is in a mini-batch, for each node; for feature caches and for studies of a sampler's distribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hoptrain.engine import Graph, HeteroGraph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.columns import copy_columns, total_degree
from hoptrain.kernels.shared.draws import ALL, fanout_code, num_draws
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import ONLY
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.nodewise.neighbor import NeighborDraws

_BULK = 16


def sampling_probabilities(
    sampler: Sampler[Any, Any], graph: Graph | HeteroGraph, seeds: Array | Mapping[str, Array], *, num_batches: int = 1000, seed: int = 0
) -> Any:
    """Return the probability that each node of the graph is in the mini-batch of ``seeds``.

    The result is exact for uniform neighbour sampling of one hop. There destinations draw independently: if m of the d in-edges of a destination
    come from u, it draws none of these with probability C(d - m, k) / C(d, k), or (1 - m / d)**k with replacement. For all other samplers the
    result is the share of ``num_batches`` batches that contain the node, with a standard error of sqrt(p (1 - p) / num_batches).

    Args:
        sampler: the algorithm, prepared.
        graph: graph to sample.
        seeds: (B,) seeds or items as ``sampler.sample`` takes them; seeds of several types are a dictionary by type.
        num_batches: number of batches to count.
        seed: random seed of the counted batches; they are batches 0, 1, ... of epoch 0.

    Returns:
        (V,) float64; for a heterogeneous graph a dictionary of such arrays by type.

    Raises:
        InputError: ``num_batches`` is below 1, a seed is outside the graph or repeated, or the sampler does not fit the graph.
    """
    if num_batches < 1:
        raise InputError(f"num_batches is {num_batches}: probabilities are counted over at least one batch; give 1 or more")
    if isinstance(graph, HeteroGraph):
        return _count(sampler, graph, graph.numbered(seeds) if isinstance(seeds, Mapping) else seeds, num_batches, seed)
    draws = _uniform_draws(sampler, graph)
    if draws is not None and len(draws.fanouts) == 1:
        return _compute_one_hop(graph, check_seeds(graph, np.asarray(seeds), distinct=True), fanout_code(draws.fanouts[0]), draws.replace)
    return _count(sampler, graph, seeds, num_batches, seed)[""]


def _uniform_draws(sampler: Sampler[Any, Any], graph: Graph) -> NeighborDraws | None:
    """Return the draws of a sampler whose items are seeds and whose nodes draw in-edges uniformly; None for any other sampler."""
    hop_sampler = sampler.hop_sampler if sampler.by_seeds else None
    draws = None if hop_sampler is None else hop_sampler.along(graph)[ONLY]
    return draws if isinstance(draws, NeighborDraws) and draws.weights is None else None


def _count(sampler: Sampler[Any, Any], graph: Graph | HeteroGraph, seeds: Any, num_batches: int, seed: int) -> dict[str, Array]:
    """Sample ``num_batches`` batches. Return for each node the share of batches that contain it, by type; a homogeneous graph has the type ""."""
    numbers = graph.num_nodes if isinstance(graph, HeteroGraph) else {"": graph.num_nodes}
    counts, workspace = {name: np.zeros(number) for name, number in numbers.items()}, Workspace()
    for first in range(0, num_batches, _BULK):
        bulk = [seeds] * min(_BULK, num_batches - first)
        for batch in sampler.sample_bulk(graph, bulk, seed=seed, first_batch=first, workspace=workspace):
            for name, ids in batch.node_ids.items() if isinstance(graph, HeteroGraph) else (("", batch.node_ids),):
                counts[name][ids] += 1  # counts a node once, even if ids repeats it
    return {name: found / num_batches for name, found in counts.items()}


def _compute_one_hop(graph: Graph, seeds: Array, fanout: int, replace: bool) -> Array:
    """Return the exact probabilities, from the number of parallel edges of each source in each column."""
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
