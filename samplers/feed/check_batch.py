"""What a sampler returns is checked where it enters: in full once in each process, by form and length for every batch.

A sampler may be anybody's. An id that is no integer, or a neighbour that is none, would train another model and say nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine import Graph, HeteroGraph, InputError
from hoptrain.engine.arrays import Array, is_integer
from hoptrain.engine.errors import see
from hoptrain.samplers.base import Sampler, SomeBatch
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block, MiniBatch
from hoptrain.samplers.batch.sampled import SampledBatch
from hoptrain.samplers.feed.check_block import (
    IDS,
    WEIGHTS,
    BrokenRule,
    check_array,
    check_block,
    check_block_form,
    check_ends,
    check_range,
    check_weights,
)


def prepared(sampler: Sampler[Any, SomeBatch], graph: Any, seeds: Array) -> tuple[Sampler[Any, SomeBatch], Array]:
    """The sampler prepared for ``seeds`` (N,), and the items (U,) that an epoch deals out.

    Raises:
        InputError: ``prepare`` or ``items`` returned something else.
    """
    name = type(sampler).__name__
    ready: object = sampler.prepare(graph, seeds)
    if not isinstance(ready, Sampler):
        raise InputError(f"{name}.prepare returned {type(ready).__name__}: it returns the sampler to use; end it with 'return self'")
    items = np.asarray(ready.items(graph, seeds))
    if items.ndim != 1 or not is_integer(items.dtype):
        raise InputError(
            f"{name}.items returned {items.dtype} of shape {items.shape}: an epoch deals out ids; return a one-dimensional integer array"
        )
    return ready, items


def check_batch(batch: SampledBatch, sampler: Sampler[Any, Any], graph: Any, asked: Array | None = None) -> None:
    """Check a mini-batch by what it and ``Block`` say of themselves; arrays on a device only by form, so that nobody waits for it.

    Args:
        batch: what the sampler returned.
        sampler: who it was.
        graph: the graph.
        asked: (B,) the seeds, or items, that it was asked for: with them every entry is looked at, which takes about as long as to sample;
            without, none but the ends of offsets.

    Raises:
        InputError: it breaks a rule.
    """
    try:
        if isinstance(batch, HeteroMiniBatch):
            _check_typed(batch, sampler, graph, asked)
        elif isinstance(batch, MiniBatch):
            _check_plain(batch, sampler, sampler.graph_of(graph), asked)
    except BrokenRule as broken:
        raise InputError(f"{type(sampler).__name__} returned {broken}{see('returned')}") from None


def _check_plain(batch: MiniBatch, sampler: Sampler[Any, Any], graph: Graph, asked: Array | None) -> None:
    check_array("node_ids", batch.node_ids, IDS)
    _check_counts(batch, len(batch.node_ids), sampler)
    _check_chain(batch)
    _check_extras(batch)
    if not isinstance(batch.node_ids, np.ndarray):
        return
    for i, block in enumerate(batch.blocks):
        check_ends(f"blocks[{i}]", block)
    if asked is not None:
        _check_nodes("node_ids", batch.node_ids, graph.num_nodes, sampler)
        if batch.seed_weights is not None:
            check_weights("seed_weights", batch.seed_weights)
        _check_seeds(batch, sampler, asked, weighted=batch.seed_weights is not None)
        _check_blocks(batch, graph)


def _check_typed(batch: HeteroMiniBatch, sampler: Sampler[Any, Any], graph: HeteroGraph, asked: Array | None) -> None:
    for kind, ids in batch.node_ids.items():
        check_array(f"node_ids[{kind!r}]", ids, IDS)
    _check_counts(batch, sum(min(number, len(batch.node_ids[kind])) for kind, number in batch.seed_counts.items()), sampler)
    if sum(batch.seed_counts.values()) != batch.num_seeds:
        raise BrokenRule(f"seed_counts {batch.seed_counts} and num_seeds {batch.num_seeds}: these are all of them; correct one")
    _check_extra(batch.extra)
    named = [(f"blocks[{h}][{relation}]", relation, block) for h, hop in enumerate(batch.blocks) for relation, block in hop.items()]
    for name, (source, _, destination), block in named:
        check_block_form(name, block)
        for what, number, kind in (("sources", block.num_src, source), ("destinations", block.num_dst, destination)):
            if not 0 <= number <= len(batch.node_ids[kind]):
                raise BrokenRule(f"{name} with {number} {what}: they are the first of {len(batch.node_ids[kind])} nodes; correct it")
    if not all(isinstance(ids, np.ndarray) for ids in batch.node_ids.values()):
        return
    for name, _, block in named:
        check_ends(name, block)
    if asked is not None:
        for kind, ids in batch.node_ids.items():
            _check_nodes(f"node_ids[{kind!r}]", ids, graph.num_nodes[kind], sampler)
        _check_seeds(batch, sampler, asked, weighted=False)
        for place, (name, relation, block) in enumerate(named):
            source, _, destination = relation
            if batch.nested and place >= len(batch.blocks[0]):
                _check_beginning(name, block, batch.blocks[0][relation])
            else:
                check_block(name, block, batch.node_ids[source], batch.node_ids[destination], graph.relations[relation])


def _check_counts(batch: MiniBatch | HeteroMiniBatch, num_nodes: int, sampler: Sampler[Any, Any]) -> None:
    """Numbers of hops and of seeds."""
    if len(batch.blocks) != sampler.num_hops:
        raise BrokenRule(f"{len(batch.blocks)} blocks: there is one for each of num_hops, {sampler.num_hops}; correct one of them")
    if not 0 < batch.num_seeds <= num_nodes:
        raise BrokenRule(f"num_seeds {batch.num_seeds} with {num_nodes} nodes: the seeds are the first nodes, at least one; correct it")


def _check_chain(batch: MiniBatch) -> None:
    """A block's sources are the destinations of the one before it; the first has all nodes, the last leads to the seeds."""
    num_src = len(batch.node_ids)
    for i, block in enumerate(batch.blocks):
        check_block_form(f"blocks[{i}]", block)
        if block.num_src != num_src or not 0 <= block.num_dst <= num_src:
            before = "the batch's nodes" if i == 0 else f"the destinations of blocks[{i - 1}]"
            raise BrokenRule(
                f"blocks[{i}] with {block.num_src} sources and {block.num_dst} destinations: its sources are {before}, {num_src}, "
                "and the first of them its destinations; correct it"
            )
        num_src = block.num_dst
    if batch.blocks and num_src != batch.num_seeds:
        raise BrokenRule(
            f"{num_src} destinations of the last block and num_seeds {batch.num_seeds}: these are the seeds; correct one of them"
        )


def _check_extras(batch: MiniBatch) -> None:
    if batch.seed_weights is not None:
        check_array("seed_weights", batch.seed_weights, WEIGHTS)
        if len(batch.seed_weights) != batch.num_seeds:
            raise BrokenRule(f"{len(batch.seed_weights)} seed_weights for {batch.num_seeds} seeds: there is one for each; correct it")
    _check_extra(batch.extra)


def _check_extra(extra: dict[str, Any]) -> None:
    for name, array in extra.items():
        dtype = getattr(array, "dtype", None)
        if dtype is None or dtype == np.dtype(object):
            raise BrokenRule(
                f"extra[{name!r}] of {dtype or type(array).__name__}: extras travel as arrays of numbers; return a NumPy array"
            )


def _check_nodes(name: str, node_ids: Array, num_nodes: int, sampler: Sampler[Any, Any]) -> None:
    """Every vertex is one."""
    check_range(name, node_ids, 0, num_nodes)
    if sampler.distinct_nodes and len(node_ids):
        vertices, counts = np.unique(node_ids, return_counts=True)
        if counts.max() > 1:
            raise BrokenRule(
                f"vertex {vertices[counts.argmax()]} twice in {name}: a vertex is one node; return it once, or state distinct_nodes = False"
            )


def _check_seeds(batch: SampledBatch, sampler: Sampler[Any, Any], asked: Array, *, weighted: bool) -> None:
    """The seeds are those that were asked for."""
    if sampler.by_seeds and not (np.isin(batch.seeds, asked).all() if weighted else np.array_equal(batch.seeds, asked)):
        rule = "with seed_weights they are among the seeds asked for" if weighted else "the seeds asked for come first, in their order"
        raise BrokenRule(f"other seeds than it was asked for: {rule}; return them so, or state by_seeds = False")


def _check_blocks(batch: MiniBatch, graph: Graph) -> None:
    """Offsets, sources, edges and weights."""
    for i, block in enumerate(batch.blocks):
        if batch.nested and i:
            _check_beginning(f"blocks[{i}]", block, batch.blocks[0])
        else:
            check_block(f"blocks[{i}]", block, batch.node_ids, batch.node_ids, graph)


def _check_beginning(name: str, block: Block, outermost: Block) -> None:
    """A block of a nested batch."""
    outer = outermost.arrays()
    if any(not np.array_equal(array, outer[what][: len(array)]) for what, array in block.arrays().items()):
        raise BrokenRule(f"{name} that is not the beginning of blocks[0]: in a nested batch each is; return nested=False")
