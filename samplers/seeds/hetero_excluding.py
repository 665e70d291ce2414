"""Vertices of typed graphs as seeds, and edges that no message may pass, given batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hoptrain.engine import Address, HeteroGraph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import Relation
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch, nested_hops
from hoptrain.samplers.checks import check_ids
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.seeds.excluding import without
from hoptrain.samplers.typed import TypedSampler


class HeteroExcludingSampler(Sampler[HeteroGraph, HeteroMiniBatch]):
    """Another sampler's batches without some edges: a batch's items are what ``typed_items`` makes of its seeds and these edges.

    As ``ExcludingSampler`` the edges are dropped after sampling. Nodes that nothing but dropped edges led to stay, where they have no part in what a
    model makes of the seeds.
    """

    by_seeds = False

    def __init__(self, sampler: TypedSampler) -> None:
        """State the sampler, one whose seeds may be of several types.

        Raises:
            InputError: another one.
        """
        if sampler.seed_type is not None:
            raise InputError(
                f"sampler is {sampler!r}: edges are excluded around seeds that may be of several types; leave out its seed_type"
            )
        self.sampler = sampler
        self.repeats_edges = sampler.repeats_edges

    @property
    def num_hops(self) -> int:
        """Those of the sampler."""
        return self.sampler.num_hops

    def prepare(self, graph: HeteroGraph, seeds: Array) -> HeteroExcludingSampler:
        """With the sampler prepared."""
        prepared: Any = self.sampler.prepare(graph, seeds)
        return HeteroExcludingSampler(prepared)

    def sample_on_cpu(self, graph: HeteroGraph, seeds: Array, address: Address, workspace: Workspace) -> HeteroMiniBatch:
        """Sample one mini-batch for the items ``seeds``; see ``Sampler.sample_on_cpu``."""
        own, dropped = seeds[1 : 1 + int(seeds[0])], seeds[1 + int(seeds[0]) :]
        batch = self.sampler.sample_on_cpu(graph, own, address, workspace)
        if len(dropped) == 0:
            return batch
        number = sum(columns.num_edges for columns in graph.relations.values())
        dropped = np.sort(check_ids(dropped, number, "excluded edge", "edge", "edges"))
        hops, begin = [dict(hop) for hop in (batch.blocks[:1] if batch.nested else batch.blocks)], 0
        for relation, columns in graph.relations.items():
            low, high = np.searchsorted(dropped, (begin, begin + columns.num_edges))
            places, begin = dropped[low:high] - begin, begin + columns.num_edges
            if len(places):
                for hop in hops:
                    block, nodes = hop[relation], batch.node_ids[relation[2]]
                    hop[relation], _ = without(block, columns.indptr, nodes, block.num_src, places)
        return replace(batch, blocks=nested_hops(hops[0], batch.node_counts) if batch.nested else tuple(hops))


def typed_items(graph: HeteroGraph, seeds: Mapping[str, Array], dropped: Mapping[Relation, Array] | None = None) -> Array:
    """The items (1 + B + N,) int64 for seeds by type, B in all, and the places of N edges by relation, in any order.

    Raises:
        InputError: a type, a relation, a vertex or an edge that does not exist.
    """
    begins, begin = {}, 0
    for relation, columns in graph.relations.items():
        begins[relation], begin = begin, begin + columns.num_edges
    numbers = graph.numbered(seeds)
    parts = [np.array([len(numbers)]), numbers]
    for relation, places in (dropped or {}).items():
        own = check_ids(places, graph.relations[relation].num_edges, "excluded edge", "edge", "edges")
        parts.append(own.astype(np.int64) + begins[relation])
    return np.concatenate(parts)
