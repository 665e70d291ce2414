"""Vertices as seeds, and edges that no message may pass, given batch by batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.seeds import excluding as kernels
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, nested_blocks
from hoptrain.samplers.checks import check_ids
from hoptrain.samplers.scratch.workspace import Workspace

_NO_WEIGHTS = np.empty(0, np.float32)


class ExcludingSampler(Sampler):
    """Another sampler's batches without some edges: a batch's items are B, its B seeds, and then the places of the edges that it must not have.

    The edges are dropped after sampling, as DGL does it: the others keep their law, weights included, and a destination that had drawn a
    dropped edge has one fewer. A node that nothing but dropped edges led to is gone, and so is what it led to. In nested batches it stays,
    where it has no part in what a model makes of the seeds.
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

        if batch.nested:
            whole, _ = without(batch.blocks[0], graph.indptr, batch.node_ids, batch.num_seeds, dropped)
            return replace(batch, blocks=nested_blocks(whole, [block.num_src for block in batch.blocks], batch.num_seeds))
        found = [without(block, graph.indptr, batch.node_ids, batch.num_seeds, dropped) for block in batch.blocks]
        batch = replace(batch, blocks=tuple(block for block, _ in found))
        return _reached(batch, workspace) if any(lost for _, lost in found) else batch


def without(block: Block, indptr: Array, nodes: Array, num_seeds: int, dropped: Array) -> tuple[Block, bool]:
    """A block without the edges at the places ``dropped``, ascending, of the columns that ``indptr`` (V+1,) says.

    ``nodes`` are global ids of its destinations, and maybe further ones. Also whether an edge was lost whose source is not among the first
    ``num_seeds`` nodes.
    """
    weights = _NO_WEIGHTS if block.weights is None else block.weights
    arrays = block.indptr, block.indices, block.edge_ids, weights
    kept, lost = kernels.drop_places(indptr, nodes, num_seeds, *arrays, dropped)
    return block.beginning(block.num_dst, block.num_src, kept), lost


def _reached(batch: MiniBatch, workspace: Workspace) -> MiniBatch:
    """With those nodes alone that edges lead to, hop by hop from the seeds outward, in order of first appearance."""
    number, num_found = len(batch.node_ids), batch.num_seeds
    new_of, order = workspace.array("new_of", number, np.int32), workspace.array("order", number, np.int32)
    new_of[:], order[:num_found], new_of[:num_found] = -1, np.arange(num_found), np.arange(num_found)
    blocks: list[Block] = []
    for block in reversed(batch.blocks):
        num_rows, weights = num_found, _NO_WEIGHTS if block.weights is None else block.weights
        out = tuple(np.empty_like(array) for array in (block.indptr, block.indices, block.edge_ids, weights))
        num_found = kernels.reach(block.indptr, block.indices, block.edge_ids, weights, num_rows, new_of, order, num_found, out)
        indptr, indices, edge_ids = out[:3]
        made = Block(
            indptr=indptr, indices=indices, edge_ids=edge_ids, num_src=num_found, weights=None if block.weights is None else out[3]
        )
        blocks.append(made.beginning(num_rows, num_found, int(indptr[num_rows])))
    return replace(batch, node_ids=batch.node_ids[order[:num_found]], blocks=tuple(reversed(blocks)))


def items_of(seeds: Array, dropped: Array | None = None) -> Array:
    """The items (1 + B + N,) int64 for ``seeds`` (B,) and the places ``dropped`` (N,) of edges, in any order."""
    parts = [np.array([len(seeds)]), seeds] if dropped is None else [np.array([len(seeds)]), seeds, dropped]
    return np.concatenate(parts).astype(np.int64, copy=False)
