"""What a sampler returns is checked where it enters: in full once in each process, by form and length for every batch.

A sampler may be anybody's. An id that is no integer, or a neighbour that is none, would train another model and say nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array, is_integer
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import Block, MiniBatch

_IDS = (np.dtype(np.int32), np.dtype(np.int64))
_WEIGHTS = (np.dtype(np.float32),)


def prepared(sampler: Sampler, graph: Graph, seeds: Array) -> tuple[Sampler, Array]:
    """The sampler prepared for ``seeds`` (N,), and the units (U,) that an epoch deals out.

    Raises:
        InputError: ``prepare`` or ``units`` returned something else.
    """
    name = type(sampler).__name__
    ready: object = sampler.prepare(graph, seeds)
    if not isinstance(ready, Sampler):
        raise InputError(f"{name}.prepare returned {type(ready).__name__}: it returns the sampler to use; end it with 'return self'")
    units = np.asarray(ready.units(graph, seeds))
    if units.ndim != 1 or not is_integer(units.dtype):
        raise InputError(
            f"{name}.units returned {units.dtype} of shape {units.shape}: an epoch deals out ids; return a one-dimensional integer array"
        )
    return ready, units


def check_batch(batch: object, sampler: Sampler, graph: Graph, asked: Array | None = None) -> None:
    """Check a mini-batch by what ``MiniBatch`` and ``Block`` say of themselves; arrays on a device only by form, so that nobody waits for it.

    Args:
        batch: what the sampler returned.
        sampler: who it was.
        graph: the graph.
        asked: (B,) the seeds, or units, that it was asked for: with them every entry is looked at, which takes about as long as to sample;
            without, none but the ends of offsets.

    Raises:
        InputError: it breaks a rule.
    """
    try:
        _check_form(batch, sampler)
        if isinstance(batch, MiniBatch) and isinstance(batch.node_ids, np.ndarray):
            _check_ends(batch)
            if asked is not None:
                _check_nodes(batch, sampler, graph, asked)
                _check_blocks(batch, graph)
    except _BrokenRule as broken:
        raise InputError(f"{type(sampler).__name__} returned {broken}") from None


class _BrokenRule(Exception):
    """Value, rule and remedy, without the sampler's name."""


def _check_form(batch: object, sampler: Sampler) -> None:
    """Types, dtypes and lengths."""
    if not isinstance(batch, MiniBatch):
        raise _BrokenRule(f"{type(batch).__name__}: sample_on_cpu makes a mini-batch; return a MiniBatch")
    _check_array("node_ids", batch.node_ids, _IDS)
    if len(batch.blocks) != sampler.num_hops:
        raise _BrokenRule(f"{len(batch.blocks)} blocks: there is one for each of num_hops, {sampler.num_hops}; correct one of them")
    if not 0 < batch.num_seeds <= len(batch.node_ids):
        raise _BrokenRule(
            f"num_seeds {batch.num_seeds} with {len(batch.node_ids)} nodes: the seeds are the first nodes, at least one; correct it"
        )
    num_src = len(batch.node_ids)
    for i, block in enumerate(batch.blocks):
        if not isinstance(block, Block):
            raise _BrokenRule(f"{type(block).__name__} as blocks[{i}]: the graph of a hop is a Block; return one")
        for name, array in block.arrays().items():
            _check_array(f"blocks[{i}].{name}", array, _WEIGHTS if name == "weights" else _IDS)
            if name in ("edge_ids", "weights") and len(array) != block.num_edges:
                raise _BrokenRule(f"{len(array)} blocks[{i}].{name} of {block.num_edges} edges: there is one for each; correct it")
        if block.num_src != num_src or not 0 <= block.num_dst <= num_src:
            before = "the batch's nodes" if i == 0 else f"the destinations of blocks[{i - 1}]"
            raise _BrokenRule(
                f"blocks[{i}] with {block.num_src} sources and {block.num_dst} destinations: its sources are {before}, {num_src}, "
                "and the first of them its destinations; correct it"
            )
        num_src = block.num_dst
    if batch.blocks and num_src != batch.num_seeds:
        raise _BrokenRule(
            f"{num_src} destinations of the last block and num_seeds {batch.num_seeds}: these are the seeds; correct one of them"
        )
    _check_extras(batch)


def _check_extras(batch: MiniBatch) -> None:
    if batch.seed_weights is not None:
        _check_array("seed_weights", batch.seed_weights, _WEIGHTS)
        if len(batch.seed_weights) != batch.num_seeds:
            raise _BrokenRule(f"{len(batch.seed_weights)} seed_weights for {batch.num_seeds} seeds: there is one for each; correct it")
    for name, array in batch.extra.items():
        dtype = getattr(array, "dtype", None)
        if dtype is None or dtype == np.dtype(object):
            raise _BrokenRule(
                f"extra[{name!r}] of {dtype or type(array).__name__}: extras travel as arrays of numbers; return a NumPy array"
            )


def _check_array(name: str, array: Any, dtypes: tuple[np.dtype[Any], ...]) -> None:
    dtype, shape = getattr(array, "dtype", None), getattr(array, "shape", ())
    if dtype not in dtypes:
        kind, remedy = ("weights are float32", "numpy float32") if dtypes is _WEIGHTS else ("ids are integers", "numpy int32 or int64")
        raise _BrokenRule(f"{name} of {dtype or type(array).__name__}: {kind}; return {remedy}")
    if len(shape) != 1:
        raise _BrokenRule(f"{name} of shape {shape}: it has one dimension; correct it")
    if name.endswith("indptr") and len(array) == 0:
        raise _BrokenRule(f"{name} of no entry: offsets begin with 0, followed by an end for each destination; correct it")


def _check_ends(batch: MiniBatch) -> None:
    for i, block in enumerate(batch.blocks):
        if block.indptr[0] != 0 or block.indptr[-1] != block.num_edges:
            raise _BrokenRule(
                f"blocks[{i}].indptr from {block.indptr[0]} to {block.indptr[-1]}: offsets run from 0 to the number of edges, "
                f"{block.num_edges}; correct it"
            )


def _check_nodes(batch: MiniBatch, sampler: Sampler, graph: Graph, asked: Array) -> None:
    """Every vertex is one, the seeds are those that were asked for."""
    _check_range("node_ids", batch.node_ids, 0, graph.num_nodes)
    if sampler.distinct_nodes:
        vertices, counts = np.unique(batch.node_ids, return_counts=True)
        if counts.max() > 1:
            raise _BrokenRule(
                f"vertex {vertices[counts.argmax()]} twice in node_ids: a vertex is one node; return it once, or state distinct_nodes = False"
            )
    weighted = batch.seed_weights is not None
    if weighted:
        _check_weights("seed_weights", batch.seed_weights)
    if sampler.deals_seeds and not (np.isin(batch.seeds, asked).all() if weighted else np.array_equal(batch.seeds, asked)):
        rule = "with seed_weights they are among the seeds asked for" if weighted else "the seeds asked for come first, in their order"
        raise _BrokenRule(f"other seeds than it was asked for: {rule}; return them so, or state deals_seeds = False")


def _check_blocks(batch: MiniBatch, graph: Graph) -> None:
    """Offsets, sources, edges and weights."""
    for i, block in enumerate(batch.blocks):
        if batch.nested and i:
            outer = batch.blocks[0].arrays()
            if any(not np.array_equal(array, outer[name][: len(array)]) for name, array in block.arrays().items()):
                raise _BrokenRule(f"blocks[{i}] that is not the beginning of blocks[0]: in a nested batch each is; return nested=False")
            continue
        if (np.diff(block.indptr) < 0).any():
            raise _BrokenRule(f"blocks[{i}].indptr that falls: offsets never do; correct it")
        _check_range(f"blocks[{i}].indices", block.indices, 0, block.num_src)
        if block.weights is not None:
            _check_weights(f"blocks[{i}].weights", block.weights)
        _check_edges(i, block, batch.node_ids, graph)


def _check_edges(i: int, block: Block, node_ids: Array, graph: Graph) -> None:
    """An edge id is -1, of an edge that is not the graph's, or that of an edge of its destination's column from its source."""
    _check_range(f"blocks[{i}].edge_ids", block.edge_ids, -1, graph.num_edges)
    own = block.edge_ids >= 0
    edges, sources = block.edge_ids[own], node_ids[block.indices[own]]
    destinations = np.repeat(node_ids[: block.num_dst], np.diff(block.indptr))[own]
    is_right = (graph.indices[edges] == sources) & (graph.indptr[destinations] <= edges) & (edges < graph.indptr[destinations + 1])
    if not is_right.all():
        wrong = np.flatnonzero(~is_right)[0]
        raise _BrokenRule(
            f"{edges[wrong]} in blocks[{i}].edge_ids for the edge from vertex {sources[wrong]} to {destinations[wrong]}: an edge id is a place "
            "in graph.indices, in the column of its destination; correct it, or return -1 for an edge that the graph has not"
        )


def _check_range(name: str, values: Array, least: int, end: int) -> None:
    if len(values) and not (least <= values.min() and values.max() < end):
        wrong = values.min() if values.min() < least else values.max()
        raise _BrokenRule(f"{wrong} in {name}: they lie from {least} to {end - 1}; correct it")


def _check_weights(name: str, weights: Array) -> None:
    wrong = weights[~(np.isfinite(weights) & (weights >= 0))]
    if len(wrong):
        raise _BrokenRule(f"{wrong[0]} in {name}: weights are finite and not negative; correct it")
