"""Checks of a sampler's batches: dtypes and lengths of every batch, and every entry of the first batch in each process.

Samplers may be custom code. Without these checks, a float id or an edge that is not in the graph would silently train another model.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hoptrain.engine import HeteroGraph, InputError
from hoptrain.engine.arrays import Array, is_integer
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.errors import explain_hint
from hoptrain.engine.hetero_graph import Relation
from hoptrain.samplers.base import Sampler, SomeBatch
from hoptrain.samplers.batch.minibatch import ONLY, Block, MiniBatch, SampledBatch

_IDS = (np.dtype(np.int32), np.dtype(np.int64))
_WEIGHTS = (np.dtype(np.float32),)


class _BrokenRule(Exception):
    """An exception for a batch that breaks a rule. The message has value, rule and remedy, but not the sampler's name."""


def prepared(sampler: Sampler[Any, SomeBatch], graph: Any, seeds: Array) -> tuple[Sampler[Any, SomeBatch], Array]:
    """Return the sampler prepared for ``seeds`` (N,), and the items (U,) of an epoch.

    Raises:
        InputError: ``prepare`` does not return a sampler, or ``items`` does not return ids.
    """
    name = type(sampler).__name__
    ready: object = sampler.prepare(graph, seeds)
    if not isinstance(ready, Sampler):
        raise InputError(f"{name}.prepare returned {type(ready).__name__}: it must return the sampler to use; end it with 'return self'")
    items = np.asarray(ready.items(graph, seeds))
    if items.ndim != 1 or not is_integer(items.dtype):
        raise InputError(
            f"{name}.items returned {items.dtype} of shape {items.shape}: items must be ids; return a one-dimensional integer array"
        )
    return ready, items


def check_batch(batch: SampledBatch, sampler: Sampler[Any, Any], graph: Any, asked: Array | None = None) -> None:
    """Check that a mini-batch follows the rules of its class and of ``Block``. On a GPU only dtypes and lengths are checked, without synchronising.

    Args:
        batch: the mini-batch that the sampler returned.
        sampler: the sampler.
        graph: the graph.
        asked: (B,) seeds, or items, that were requested. If given, every entry is checked, which takes about as long as sampling; otherwise only
            the first and last offsets are.

    Raises:
        InputError: the batch breaks a rule.
    """
    try:
        is_on_host = isinstance(next(iter(batch.nodes.values()), None), np.ndarray)
        _check_form(batch, sampler, is_on_host)
        if asked is not None and is_on_host:
            _check_contents(batch, sampler, sampler.graph_of(graph), asked)
    except _BrokenRule as broken:
        raise InputError(f"{type(sampler).__name__} returned {broken}{explain_hint('returned')}") from None


def _check_form(batch: SampledBatch, sampler: Sampler[Any, Any], is_on_host: bool) -> None:
    """Check types, dtypes and lengths, and on the host also the first and last offsets."""
    num_nodes, num_seeds = {}, batch.num_seeds_by_type()
    for kind, ids in batch.nodes.items():
        _check_array(_name_of(kind), ids, _IDS)
        num_nodes[kind] = len(ids)
    if len(batch.blocks) != sampler.num_hops:
        raise _BrokenRule(
            f"{len(batch.blocks)} blocks: the number of blocks must be num_hops, {sampler.num_hops}; return one block for each hop"
        )
    most = sum([min(number, num_nodes[kind]) for kind, number in num_seeds.items()])
    if not 0 < batch.num_seeds <= most:
        raise _BrokenRule(
            f"num_seeds {batch.num_seeds} with {most} nodes: must be at least 1 and at most {most}, since seeds come first; return their number"
        )
    if sum(num_seeds.values()) != batch.num_seeds:
        raise _BrokenRule(
            f"seed_counts {num_seeds} and num_seeds {batch.num_seeds}: the sum of seed_counts must be the same as num_seeds; return this sum"
        )
    _check_chain(batch, num_nodes, num_seeds, is_on_host)
    if (weights := _seed_weights(batch)) is not None:
        _check_array("seed_weights", weights, _WEIGHTS)
        if len(weights) != batch.num_seeds:
            raise _BrokenRule(
                f"{len(weights)} seed_weights for {batch.num_seeds} seeds: each seed must have one weight; return {batch.num_seeds} weights"
            )
    for name, array in batch.extra.items():
        dtype = getattr(array, "dtype", None)
        if dtype is None or dtype == np.dtype(object):
            raise _BrokenRule(f"extra[{name!r}] of {dtype or type(array).__name__}: extras must be arrays of numbers; return a NumPy array")


def _check_chain(batch: SampledBatch, num_nodes: dict[str, int], num_seeds: dict[str, int], is_on_host: bool) -> None:
    """Check that the sources of each block are the destinations of the block before, that the first block has all nodes, and the last leads to the seeds."""
    known, limit = num_nodes, num_nodes  # upper bounds of the nodes of types that are not destinations of the previous hop
    for i, hop in enumerate(batch.hops):
        ends: dict[str, int] = {}
        for relation, block in hop.items():
            name, (source, _, destination) = _name_of_block(i, relation), relation
            _check_block_form(name, block)
            num_src, num_dst = block.num_src, block.num_dst
            is_whole = num_src == limit[source] or (source not in known and 0 <= num_src < limit[source])
            is_other = destination in ends and num_dst != ends[destination]
            ends[destination] = num_dst
            if not is_whole or is_other or not 0 <= num_dst <= limit[destination]:
                before = "the batch's nodes" if i == 0 else f"the destinations of blocks[{i - 1}]"
                raise _BrokenRule(
                    f"{name} with {num_src} sources and {num_dst} destinations: its sources must be {before}, {limit[source]}, "
                    "and its destinations the first of these sources; return the block with these numbers"
                )
            if is_on_host:
                _check_ends(name, block)
        known, limit = ends, limit | ends
    for kind, number in known.items() if batch.blocks else ():
        if number != num_seeds[kind]:
            raise _BrokenRule(
                f"{number} destinations of the last block and num_seeds {num_seeds[kind]}: must be the same; let the last block have the seeds as destinations"
            )


def _check_contents(batch: SampledBatch, sampler: Sampler[Any, Any], graph: Any, asked: Array) -> None:
    """Check every entry of a batch, such as ids, offsets and edges."""
    is_hetero = isinstance(graph, HeteroGraph)
    num_nodes, relations = (graph.num_nodes, graph.relations) if is_hetero else ({"": graph.num_nodes}, {ONLY: graph})
    for kind, ids in batch.nodes.items():
        _check_nodes(_name_of(kind), ids, num_nodes[kind], sampler)
    if (weights := _seed_weights(batch)) is not None:
        _check_weights("seed_weights", weights)
    _check_seeds(batch, sampler, asked, weighted=weights is not None)
    for i, hop in enumerate(batch.hops):
        for relation, block in hop.items():
            name, (source, _, destination) = _name_of_block(i, relation), relation
            if batch.nested and i:
                _check_beginning(name, block, batch.hops[0][relation])
            else:
                _check_block(name, block, batch.nodes[source], batch.nodes[destination], relations[relation])


def _seed_weights(batch: SampledBatch) -> Any:
    return batch.seed_weights if isinstance(batch, MiniBatch) else None


def _name_of(kind: str) -> str:
    return f"node_ids[{kind!r}]" if kind else "node_ids"


def _name_of_block(hop: int, relation: Relation) -> str:
    return f"blocks[{hop}]" if relation == ONLY else f"blocks[{hop}][{relation}]"


def _check_nodes(name: str, node_ids: Array, num_nodes: int, sampler: Sampler[Any, Any]) -> None:
    _check_range(name, node_ids, 0, num_nodes)
    if sampler.distinct_nodes and len(node_ids):
        nodes, counts = np.unique(node_ids, return_counts=True)
        if counts.max() > 1:
            raise _BrokenRule(
                f"node {nodes[counts.argmax()]} twice in {name}: nodes must be distinct; return each node once, or set distinct_nodes = False"
            )


def _check_seeds(batch: SampledBatch, sampler: Sampler[Any, Any], asked: Array, *, weighted: bool) -> None:
    if sampler.by_seeds and not (np.isin(batch.seeds, asked).all() if weighted else np.array_equal(batch.seeds, asked)):
        rule = (
            "with seed_weights all seeds must be among the requested seeds"
            if weighted
            else "the first nodes must be the requested seeds, in the same order"
        )
        raise _BrokenRule(f"other seeds than requested: {rule}; return these, or set by_seeds = False if items are not seeds")


def _check_beginning(name: str, block: Block, outermost: Block) -> None:
    outer = outermost.arrays()
    if any(not np.array_equal(array, outer[what][: len(array)]) for what, array in block.arrays().items()):
        raise _BrokenRule(
            f"{name} that is not the beginning of blocks[0]: in a nested batch every block must be; return the batch with nested=False"
        )


def _check_block_form(name: str, block: object) -> None:
    if not isinstance(block, Block):
        raise _BrokenRule(f"{type(block).__name__} as {name}: the graph of a hop must be a Block; return one")
    for key, array in block.arrays().items():
        _check_array(f"{name}.{key}", array, _WEIGHTS if key == "weights" else _IDS)
        if key in ("edge_ids", "weights") and len(array) != block.num_edges:
            raise _BrokenRule(f"{len(array)} {name}.{key} for {block.num_edges} edges: each edge must have one; return {block.num_edges}")


def _check_array(name: str, array: Any, dtypes: tuple[np.dtype[Any], ...]) -> None:
    dtype, shape = getattr(array, "dtype", None), getattr(array, "shape", ())
    on_gpu = getattr(array, "is_cuda", False)  # a tensor on a GPU; on the CPU a batch has NumPy arrays
    if (str(dtype) not in _torch_names(dtypes)) if on_gpu else (dtype not in dtypes):
        kind, remedy = (
            ("weights must be float32", "numpy float32") if dtypes is _WEIGHTS else ("ids must be integers", "numpy int32 or int64")
        )
        raise _BrokenRule(f"{name} of {dtype or type(array).__name__}: {kind}; return {remedy}")
    if len(shape) != 1:
        raise _BrokenRule(f"{name} of shape {shape}: the array must have one dimension; flatten it")
    if name.endswith("indptr") and len(array) == 0:
        raise _BrokenRule(
            f"{name} with no entry: offsets must begin with 0, followed by the end of each destination's edges; return num_dst + 1 offsets"
        )


@cache
def _torch_names(dtypes: tuple[np.dtype[Any], ...]) -> set[str]:
    return {f"torch.{dtype}" for dtype in dtypes}


def _check_ends(name: str, block: Block) -> None:
    first, last = block.indptr[0], block.indptr[-1]
    if first != 0 or last != block.num_edges:
        raise _BrokenRule(
            f"{name}.indptr from {first} to {last}: offsets must run from 0 to the number of edges, {block.num_edges}; return offsets into indices"
        )


def _check_block(name: str, block: Block, sources: Array, destinations: Array, columns: RelationColumns) -> None:
    """Check every entry of a block with global ids ``sources`` and ``destinations``; ``columns`` are those of the graph or the relation."""
    if (np.diff(block.indptr) < 0).any():
        raise _BrokenRule(f"{name}.indptr that falls: offsets must not decrease; return the end of each destination's edges, in order")
    _check_range(f"{name}.indices", block.indices, 0, block.num_src)
    if block.weights is not None:
        _check_weights(f"{name}.weights", block.weights)
    _check_range(f"{name}.edge_ids", block.edge_ids, -1, columns.num_edges)
    own = block.edge_ids >= 0  # -1 marks an edge that is not in the graph
    edges, src = block.edge_ids[own], sources[block.indices[own]]
    dst = np.repeat(destinations[: block.num_dst], np.diff(block.indptr))[own]
    is_right = (columns.indices[edges] == src) & (columns.indptr[dst] <= edges) & (edges < columns.indptr[dst + 1])
    if not is_right.all():
        wrong = np.flatnonzero(~is_right)[0]
        raise _BrokenRule(
            f"{edges[wrong]} in {name}.edge_ids for the edge from node {src[wrong]} to {dst[wrong]}: an edge id must be a CSC position "
            "in graph.indices, in the column of its destination; return this position, or -1 for an edge that is not in the graph"
        )


def _check_range(name: str, values: Array, least: int, end: int) -> None:
    """Check that all values are in [least, end)."""
    if len(values) and not (least <= values.min() and values.max() < end):
        wrong = values.min() if values.min() < least else values.max()
        raise _BrokenRule(f"{wrong} in {name}: all values must be from {least} to {end - 1}; return values in this range")


def _check_weights(name: str, weights: Array) -> None:
    wrong = weights[~(np.isfinite(weights) & (weights >= 0))]
    if len(wrong):
        raise _BrokenRule(f"{wrong[0]} in {name}: weights must be finite and not negative; return finite values of at least 0")
