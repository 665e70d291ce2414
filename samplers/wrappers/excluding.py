"""A sampler that leaves edges out of its batches: each batch is requested with its seeds and the edges to exclude."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hoptrain.engine import Address, HeteroGraph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import Relation
from hoptrain.kernels.cpu.seeds import excluding as kernels
from hoptrain.samplers.base import Sampler, SomeBatch, SomeGraph
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_ids
from hoptrain.samplers.hetero import BaseHeteroSampler
from hoptrain.samplers.hops import columns_of

_NO_WEIGHTS = np.empty(0, np.float32)


class ExcludingSampler(Sampler[SomeGraph, SomeBatch]):
    """A sampler that returns the batches of another sampler without some edges.

    The items of a batch are its seeds and these edges, as ``items_of`` or ``hetero_items`` encodes them. The edges are dropped after
    sampling, as in DGL: the others keep their distribution and weights, and a destination that had drawn a dropped edge has one fewer. Nodes that are
    then no longer connected to a seed are dropped too. In nested batches they stay, without an effect on the outputs of the seeds.
    """

    by_seeds = False

    def __init__(self, sampler: Sampler[SomeGraph, SomeBatch]) -> None:
        """Wrap a sampler whose items are seeds.

        Raises:
            InputError: the sampler chooses its seeds itself.
        """
        if not (sampler.by_seeds or isinstance(sampler, BaseHeteroSampler)):
            raise InputError(
                f"sampler is {sampler!r}, which chooses its seeds itself: edges are excluded for given seeds; use NeighborSampler"
            )
        self.sampler: Sampler[SomeGraph, SomeBatch] = sampler
        self.distinct_nodes, self.repeats_edges = sampler.distinct_nodes, sampler.repeats_edges

    @property
    def num_hops(self) -> int:
        """Number of hops of the wrapped sampler."""
        return self.sampler.num_hops

    def prepare(self, graph: SomeGraph, seeds: Array) -> ExcludingSampler[SomeGraph, SomeBatch]:
        """Return a sampler with the wrapped sampler prepared."""
        return ExcludingSampler(self.sampler.prepare(graph, seeds))

    def sample_on_cpu(self, graph: SomeGraph, seeds: Array, address: Address, workspace: Workspace) -> SomeBatch:
        """Sample one mini-batch for the items ``seeds``; see ``Sampler.sample_on_cpu``."""
        own, dropped = seeds[1 : 1 + int(seeds[0])], seeds[1 + int(seeds[0]) :]
        batch = self.sampler.sample_on_cpu(graph, own, address, workspace)
        if len(dropped) == 0:
            return batch
        relations = columns_of(graph)
        number = sum(columns.num_edges for columns in relations.values())
        dropped = np.sort(check_ids(dropped, number, "excluded edge", "edge", "edges"))
        nodes, counts, begin, is_node_lost = batch.nodes, batch.num_seeds_by_type(), 0, False
        hops = [dict(hop) for hop in batch.own_hops]
        for relation, columns in relations.items():
            low, high = np.searchsorted(dropped, (begin, begin + columns.num_edges))
            places, begin = dropped[low:high] - begin, begin + columns.num_edges
            source, _, destination = relation
            for hop in hops if len(places) else ():
                hop[relation], is_lost = _drop_edges(hop[relation], columns.indptr, nodes[destination], counts[source], places)
                is_node_lost |= is_lost
        if is_node_lost and not batch.nested:
            nodes, hops = _keep_reached(nodes, counts, hops, workspace)
        return batch.with_structure(nodes, hops)


def _drop_edges(block: Block, indptr: Array, nodes: Array, num_seeds: int, dropped: Array) -> tuple[Block, bool]:
    """Return a block without the ``dropped`` edges, and whether a dropped edge had a source that is not a seed.

    Args:
        block: block to change, whose memory is used again.
        indptr: (V+1,) offsets of the relation's columns.
        nodes: global ids of the block's destinations, and possibly of further nodes.
        num_seeds: number of seeds of the source type, which are its first nodes.
        dropped: CSC positions of the edges to drop, ascending.
    """
    weights = _NO_WEIGHTS if block.weights is None else block.weights
    kept, lost = kernels.drop_places(indptr, nodes, num_seeds, block.indptr, block.indices, block.edge_ids, weights, dropped)
    return block.beginning(block.num_dst, block.num_src, kept), lost


def _keep_reached(
    node_ids: dict[str, Array], seed_counts: dict[str, int], found: list[dict[Relation, Block]], workspace: Workspace
) -> tuple[dict[str, Array], list[dict[Relation, Block]]]:
    """Return the nodes that are still connected to the seeds, hop by hop, in order of first appearance, and their blocks."""
    new_of, order, counts = dict[str, Array](), dict[str, Array](), dict(seed_counts)
    for kind, nodes in node_ids.items():
        new_of[kind], order[kind] = (workspace.array(f"{name}.{kind}", len(nodes), np.int32) for name in ("new_of", "order"))
        new_of[kind][:] = -1
        new_of[kind][: counts[kind]] = order[kind][: counts[kind]] = np.arange(counts[kind])
    hops = list[dict[Relation, Block]]()
    for hop in reversed(found):
        num_rows, made = dict(counts), dict[Relation, Block]()
        for relation, block in hop.items():
            source, _, destination = relation
            weights = _NO_WEIGHTS if block.weights is None else block.weights
            arrays = block.indptr, block.indices, block.edge_ids, weights
            out = tuple(map(np.empty_like, arrays))
            rows = order[destination][: num_rows[destination]]
            counts[source] = kernels.reach(*arrays, rows, new_of[source], order[source], counts[source], out)
            of_edges = {"edge_ids": out[2]} if block.weights is None else {"edge_ids": out[2], "weights": out[3]}
            made[relation] = Block(indptr=out[0], indices=out[1], num_src=block.num_src, **of_edges)
        hops.append(
            {
                relation: block.beginning(num_rows[relation[2]], counts[relation[0]], int(block.indptr[num_rows[relation[2]]]))
                for relation, block in made.items()
            }
        )
    return {kind: nodes[order[kind][: counts[kind]]] for kind, nodes in node_ids.items()}, hops[::-1]


def items_of(seeds: Array, dropped: Array | None = None) -> Array:
    """Return the items (1 + B + N,) int64 for ``seeds`` (B,) and the CSC positions ``dropped`` (N,) of edges, in any order."""
    parts = [np.array([len(seeds)]), seeds] if dropped is None else [np.array([len(seeds)]), seeds, dropped]
    return np.concatenate(parts).astype(np.int64, copy=False)


def hetero_items(graph: HeteroGraph, seeds: Mapping[str, Array], dropped: Mapping[Relation, Array] | None = None) -> Array:
    """Return the items (1 + B + N,) int64 for B seeds by type, and the CSC positions of N edges by relation, in any order.

    Raises:
        InputError: a type, a relation, a node or an edge does not exist.
    """
    begins, begin = {}, 0
    for relation, columns in graph.relations.items():
        begins[relation], begin = begin, begin + columns.num_edges
    numbers = [np.zeros(0, np.int64)]
    for relation, places in (dropped or {}).items():
        own = check_ids(places, graph.relations[relation].num_edges, "excluded edge", "edge", "edges")
        numbers.append(own.astype(np.int64) + begins[relation])
    return items_of(graph.numbered(seeds), np.concatenate(numbers))
