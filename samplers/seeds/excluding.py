"""Vertices as seeds, and edges that no message may pass, given batch by batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.seeds.excluding import drop_places
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, nested_blocks
from hoptrain.samplers.checks import check_ids
from hoptrain.samplers.scratch.workspace import Workspace

_NO_WEIGHTS = np.empty(0, np.float32)


class ExcludingSampler(Sampler):
    """Another sampler's batches without some edges: a batch's items are B, its B seeds, and then the places of the edges that it must not have.

    The edges are dropped after sampling, as DGL does it: the others keep their law, weights included, and a destination that had drawn a
    dropped edge has one fewer. Nodes stay what they were. Those that nothing but dropped edges leads to have no part in what a model makes of the
    seeds.
    """

    by_seeds = False

    def __init__(self, sampler: Sampler) -> None:
        """State the sampler.

        Raises:
            InputError: one that is not asked for by its seeds.
        """
        if not sampler.by_seeds:
            raise InputError(
                f"sampler is {sampler!r}, which chooses its seeds itself: edges are excluded around given ones; use NeighborSampler"
            )
        self.sampler = sampler
        self.distinct_nodes, self.repeats_edges = sampler.distinct_nodes, sampler.repeats_edges

    @property
    def num_hops(self) -> int:
        """Those of the sampler."""
        return self.sampler.num_hops

    def prepare(self, graph: Graph, seeds: Array) -> ExcludingSampler:
        """With the sampler prepared."""
        return ExcludingSampler(self.sampler.prepare(graph, seeds))

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch for the items ``seeds``, as ``items_of`` makes them; see ``Sampler.sample_on_cpu``."""
        own, dropped = seeds[1 : 1 + int(seeds[0])], seeds[1 + int(seeds[0]) :]
        batch = self.sampler.sample_on_cpu(graph, own, address, workspace)
        if len(dropped) == 0:
            return batch
        dropped = np.sort(check_ids(dropped, graph.num_edges, "excluded edge", "edge", "edges"))

        def without(block: Block) -> Block:
            weights = _NO_WEIGHTS if block.weights is None else block.weights
            kept = drop_places(graph.indptr, batch.node_ids, block.indptr, block.indices, block.edge_ids, weights, dropped)
            return block.beginning(block.num_dst, block.num_src, kept)

        if batch.nested:
            blocks = nested_blocks(without(batch.blocks[0]), [block.num_src for block in batch.blocks], batch.num_seeds)
        else:
            blocks = tuple(without(block) for block in batch.blocks)
        return replace(batch, blocks=blocks)


def items_of(seeds: Array, dropped: Array | None = None) -> Array:
    """The items (1 + B + N,) int64 for ``seeds`` (B,) and the places ``dropped`` (N,) of edges, in any order."""
    parts = [np.array([len(seeds)]), seeds] if dropped is None else [np.array([len(seeds)]), seeds, dropped]
    return np.concatenate(parts).astype(np.int64, copy=False)
