"""Edges of a typed graph as seeds, for link prediction: positive edges of one relation, negatives, and the neighbourhoods of all their end points."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from hoptrain.engine import Address, Dataset, HeteroDataset, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.errors import check_choice
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, RelationColumns, relation_name
from hoptrain.kernels.cpu.csc import columns_sorted
from hoptrain.kernels.cpu.seeds import link as kernels
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch, nested_hops
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.checks import check_ids
from hoptrain.samplers.nodewise.hetero_temporal import HeteroTemporalSampler
from hoptrain.samplers.scratch.once import OncePerGraph
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.seeds.link import (
    EXCLUSIONS,
    NO_WEIGHTS,
    NegativeLaw,
    distinct_ends,
    draw_negatives,
    edges_into,
    most_negatives,
    places_of,
    tables_by_degree,
)
from hoptrain.samplers.typed import TypedSampler

TypedNegatives = Literal["uniform", "in_batch", "degree", "filtered"]


class HeteroLinkSampler(Sampler[HeteroGraph, HeteroMiniBatch]):
    """Deals out edges of one relation; a batch holds P of them, k vertices that each was not asked for, and the blocks that lead to all end points.

    What is dealt out, and what ``sample`` takes as seeds, are the edges' places in the relation's ``indices``; ``RelationColumns.places_of`` tells those
    of ids. Every positive edge u -> v comes with ``num_negatives`` pairs (u, w); w is a vertex of the destinations' type. Its law is one of
    ``LinkSampler``'s, in the words of the relation: ``uniform``, by ``degree``, ``in_batch`` or ``filtered``; draws are those of ``LinkSampler``.

    The seeds are the end points of each type, each once, in order of first appearance; where both ends are of one type sources come before
    destinations. ``extra`` holds ``pairs`` (2, P + P k), sources above destinations as local ids of their types, the positives first and then the
    negatives of each in turn; and ``labels`` (P + P k,) float32, 1 for the positives. ``seed_relation`` is the relation.

    With ``exclude`` no message passes along the edges that are to be predicted: "self" drops every copy of the batch's positive edges u -> v from the
    relation's blocks, "reverse" also the edges v -> u from those of ``reverse_relation``. They are dropped after sampling, as in ``LinkSampler``.

    With a ``HeteroTemporalSampler`` every pair is asked for at the time of its positive edge. Seeds are then the sources of the positives, their
    destinations, and those of the negatives, each with a tree of its own; and unless ``exclude`` is "none", only edges that are strictly
    earlier pass messages.

    Examples:
        >>> from hoptrain import HeteroGraph, HeteroLinkSampler, HeteroSampler
        >>> graph = HeteroGraph.from_edges({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 0, 1], [0, 2, 2])}).with_reverse()
        >>> batch = HeteroLinkSampler(HeteroSampler([2]), ("user", "buys", "item")).sample(graph, [0, 2], seed=1)  # two edges
        >>> batch.extra["labels"], batch.extra["pairs"][:, :2]
        (array([1., 1., 0., 0.], dtype=float32), array([[0, 1],
               [0, 1]], dtype=int32))
    """

    by_seeds = False

    def __init__(
        self,
        sampler: TypedSampler,
        relation: Relation,
        num_negatives: int = 1,
        exclude: Literal["none", "self", "reverse"] = "self",
        reverse_relation: Relation | None = None,
        edges: Sequence[int] | Array | None = None,
        negatives: TypedNegatives = "uniform",
    ) -> None:
        """State what a batch holds.

        Args:
            sampler: samples the neighbourhoods of the end points, for instance HeteroSampler without seed_type.
            relation: whose edges are predicted: (source type, name, destination type).
            num_negatives: k, negatives of each positive edge; may be 0.
            exclude: edges that pass no message: "none", the positives themselves ("self"), or also their "reverse" edges.
            reverse_relation: with exclude="reverse", the relation of edges v -> u.
            edges: (N,) ids of the edges that an epoch deals out; by default all edges into the vertices of the split.
            negatives: the law of the negatives: uniform, degree, in_batch or filtered.

        Raises:
            InputError: a sampler of one type of seeds, an unknown option, options that do not go together, or a number out of range.
        """
        if sampler.seed_type is not None:
            raise InputError(f"sampler is {sampler!r}: the ends of links are of the relation's types; give the sampler no seed_type")
        if exclude not in EXCLUSIONS:
            raise InputError(f'exclude is {exclude!r}: the edges without messages are "none", "self" or "reverse"; choose one')
        if (exclude == "reverse") != (reverse_relation is not None):
            raise InputError(
                f"exclude is {exclude!r} and reverse_relation {reverse_relation}: give both of them for reverse edges, or neither"
            )
        if reverse_relation is not None and (reverse_relation[0], reverse_relation[2]) != (relation[2], relation[0]):
            raise InputError(
                f"reverse_relation is {reverse_relation}: edges of {relation_name(relation)} turned round lead elsewhere; correct it"
            )
        check_choice("negatives", negatives, get_args(TypedNegatives))
        most = most_negatives(negatives)
        if not 0 <= num_negatives < most:
            raise InputError(f"num_negatives is {num_negatives}: an edge has 0 to {most - 1} negatives; correct it")
        self.sampler: TypedSampler = sampler
        self.distinct_nodes: bool = sampler.distinct_nodes
        self.repeats_edges: bool = sampler.repeats_edges
        self.relation: Relation = (relation[0], relation[1], relation[2])
        self.num_negatives = num_negatives
        self.negatives = negatives
        self.exclude = exclude
        self.reverse_relation: Relation | None = None
        if reverse_relation is not None:
            self.reverse_relation = (reverse_relation[0], reverse_relation[1], reverse_relation[2])
        self.edges: Array | None = None if edges is None else np.asarray(edges)
        self._law = OncePerGraph[NegativeLaw]()

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """What the sampler within refuses; and without ``edges`` a split of vertices that no edge of the relation leads into."""
        self.sampler.check_data(data)
        if isinstance(data, HeteroDataset) and self.edges is None and data.seed_type != self.relation[2]:
            raise InputError(
                f"seed_type of {data.name} is {data.seed_type!r}, and edges of {relation_name(self.relation)} lead into {self.relation[2]!r}: "
                "give the sampler edges"
            )

    @property
    def num_hops(self) -> int:
        """Those of the sampler of neighbourhoods."""
        return self.sampler.num_hops

    def prepare(self, graph: HeteroGraph, seeds: Array) -> HeteroLinkSampler:
        """With the sampler of neighbourhoods prepared."""
        self._law.get(graph, self._law_of)
        prepared = copy(self)
        prepared.sampler = self.sampler.prepare(graph, seeds)  # type: ignore[assignment]  # it prepares itself
        return prepared

    def items(self, graph: HeteroGraph, seeds: Array) -> Array:
        """Places in the relation's ``indices`` (U,): those of ``edges``, or of all edges into ``seeds``, column by column.

        Raises:
            InputError: an edge outside the graph, or none at all.
        """
        columns = self._columns(graph)
        return edges_into(columns, seeds) if self.edges is None else places_of(columns, self.edges)

    def _columns(self, graph: HeteroGraph) -> RelationColumns:
        """The relation's."""
        for relation in (self.relation, self.reverse_relation):
            if relation is not None and relation not in graph.relations:
                known = ", ".join(map(relation_name, graph.relations))
                raise InputError(f"relation {':'.join(relation)} is not in the graph: it has {known}; choose one of them")
        return graph.relations[self.relation]

    def sample_on_cpu(self, graph: HeteroGraph, seeds: Array, address: Address, workspace: Workspace) -> HeteroMiniBatch:
        """Sample one mini-batch for the edges at the places ``seeds`` (P,) of the relation; see ``Sampler.sample_on_cpu``."""
        columns, (source, _, destination) = self._columns(graph), self.relation
        places = check_ids(seeds, columns.num_edges, "edge", "edge", "edges")
        pairs, labels = self._pairs(graph, places, address, workspace)
        options: dict[str, Any] = {**address._asdict(), "workspace": workspace}
        if isinstance(self.sampler, HeteroTemporalSampler):
            ends, times, local = self._ends_at_times(columns, places, pairs)
            options["times"] = times
        else:
            ends, local = self._ends(graph, pairs, workspace), pairs
        numbers = np.concatenate([graph.numbered({kind: ids}) for kind, ids in zip((source, destination), ends, strict=False)])
        sampled = self.sampler.sample(graph, numbers, **options)
        if self.exclude != "none" and not isinstance(self.sampler, HeteroTemporalSampler):
            sampled = self._without(sampled, pairs[:, : len(places)].astype(np.int64))
        return replace(sampled, extra=sampled.extra | {"pairs": local, "labels": labels}, seed_relation=self.relation)

    def _law_of(self, graph: HeteroGraph) -> NegativeLaw:
        """Made once for a graph; it travels to the workers with the sampler."""
        columns = self._columns(graph)
        bounds = (0, columns.num_nodes)
        tables = tables_by_degree(columns, bounds) if self.negatives == "degree" else None
        is_sorted = self.negatives == "filtered" and bool(columns_sorted(columns.indptr, columns.indices))
        return NegativeLaw(self.negatives, bounds, tables, is_sorted, self.relation[0] == self.relation[2])

    def _pairs(self, graph: HeteroGraph, places: Array, address: Address, workspace: Workspace) -> tuple[Array, Array]:
        """The pairs, global ids, and their labels."""
        columns, number = graph.relations[self.relation], len(places)
        count = 0 if self.negatives == "in_batch" and number == 1 else self.num_negatives
        total = number * (1 + count)
        pairs = workspace.array("link_pairs", 2 * total, id_dtype(max(columns.num_src, columns.num_nodes))).reshape(2, total)
        labels = workspace.array("link_labels", total, np.float32)
        labels[:number], labels[number:] = 1, 0
        src, dst = pairs[:, :number]
        kernels.end_points(columns.indptr, columns.indices, places, src, dst)
        pairs[0, number:].reshape(number, count)[:] = src[:, None]
        draw_negatives(self._law.get(graph, self._law_of), columns, places, (src, dst), count, address, pairs[1, number:])
        return pairs, labels

    def _ends(self, graph: HeteroGraph, pairs: Array, workspace: Workspace) -> list[Array]:
        """The distinct sources and destinations, or where they are of one type all in one; ``pairs`` become local ids."""
        source, _, destination = self.relation
        if source == destination:
            return [distinct_ends(graph.num_nodes[source], pairs, workspace)]
        rows = (source, pairs[0], "link_sources"), (destination, pairs[1], "link_destinations")
        return [distinct_ends(graph.num_nodes[kind], row, workspace, name) for kind, row, name in rows]

    def _ends_at_times(self, columns: RelationColumns, places: Array, pairs: Array) -> tuple[list[Array], Array, Array]:
        """The sources of the positives and the destinations of all pairs, their times, and the pairs as local ids."""
        if columns.times is None:
            raise InputError(f"{relation_name(self.relation)} has no times: give them to HeteroGraph, or take HeteroSampler")
        number, total = len(places), pairs.shape[1]
        each = np.r_[np.arange(number), np.repeat(np.arange(number), total // number - 1)]  # the positive of each pair
        bounds = columns.times[places] - (0 if self.exclude == "none" else 1)
        first = number if self.relation[0] == self.relation[2] else 0
        local = np.stack([each, first + np.arange(total)]).astype(pairs.dtype)
        return [pairs[0, :number], pairs[1]], np.concatenate([bounds, bounds[each]]), local

    def _without(self, batch: HeteroMiniBatch, positives: Array) -> HeteroMiniBatch:
        """The batch without the edges that are predicted; the memory of its blocks is used again. Nodes that are seeds stand first."""
        pairs = {self.relation: positives}
        if self.reverse_relation is not None:
            reversed_pairs = positives[::-1]
            if self.reverse_relation == self.relation:
                pairs[self.relation] = np.concatenate([positives, reversed_pairs], axis=1)
            else:
                pairs[self.reverse_relation] = reversed_pairs
        seed_of = {
            kind: np.minimum(np.arange(len(ids), dtype=np.int32), np.int32(batch.seed_counts[kind])) for kind, ids in batch.node_ids.items()
        }

        def without(relation: Relation, block: Block) -> Block:
            if relation not in pairs:
                return block
            source, _, destination = relation
            num_sources, num_destinations = batch.seed_counts[source], batch.seed_counts[destination]
            dropped = np.sort(pairs[relation][0] * num_destinations + pairs[relation][1])
            weights = NO_WEIGHTS if block.weights is None else block.weights
            arrays = block.indptr, block.indices, block.edge_ids, weights
            kept = kernels.drop_edges(*arrays, seed_of[source], seed_of[destination], num_sources, num_destinations, dropped)
            return block.beginning(block.num_dst, block.num_src, kept)

        hops = batch.blocks[:1] if batch.nested else batch.blocks
        made = tuple({relation: without(relation, block) for relation, block in hop.items()} for hop in hops)
        return replace(batch, blocks=nested_hops(made[0], batch.node_counts) if batch.nested else made)
