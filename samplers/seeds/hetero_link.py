"""Edges of a typed graph as seeds, for link prediction: positive edges of some relations, negatives, and the neighbourhoods of all their end points."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np

from hoptrain.engine import Address, Dataset, HeteroDataset, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.errors import check_choice
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.kernels.cpu.csc import columns_sorted
from hoptrain.kernels.cpu.seeds import link as kernels
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch, nested_hops
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.checks import check_ids
from hoptrain.samplers.nodewise.hetero_temporal import HeteroTemporalSampler
from hoptrain.samplers.scratch.once import OncePerGraph
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.seeds.ends import Links, Looked, distinct_ends, edges_into, places_of, write_ends
from hoptrain.samplers.seeds.link import EXCLUSIONS, NO_WEIGHTS, NegativeLaw, draw_negatives, most_negatives, tables_by_degree
from hoptrain.samplers.typed import TypedSampler

TypedNegatives = Literal["uniform", "in_batch", "degree", "filtered"]


class _Asked(NamedTuple):
    """What a batch asks for.

    Attributes:
        seeds: (P,) numbers of the links.
        pairs: (2, P + P k) sources above destinations, the links first and then the negatives of each in turn.
        labels: (P + P k,) float32.
        relations: (P + P k,) int32.
        of_relations: of each relation how many links of it there are, and the places of its pairs, those of the links first.
    """

    seeds: Array
    pairs: Array
    labels: Array
    relations: Array
    of_relations: list[tuple[int, Array]]


class HeteroLinkSampler(Sampler[HeteroGraph, HeteroMiniBatch]):
    """Deals out edges of one relation, or of several; a batch holds P of them, k vertices that each was not asked for, and the blocks that lead to all ends.

    What is dealt out, and what ``sample`` takes as seeds, are the edges' places in the relation's ``indices``; ``RelationColumns.places_of`` tells those
    of ids. Every positive edge u -> v comes with ``num_negatives`` pairs (u, w); w is a vertex of the destinations' type. Its law is one of
    ``LinkSampler``'s, in the words of the relation: ``uniform``, by ``degree``, ``in_batch`` or ``filtered``; draws are those of ``LinkSampler``.

    The seeds are the end points of each type, each once, in order of first appearance; where both ends are of one type sources come before
    destinations. ``extra`` holds ``pairs`` (2, P + P k), sources above destinations as local ids of their types, the positives first and then the
    negatives of each in turn; and ``labels`` (P + P k,) float32, 1 for the positives. ``seed_relation`` is the relation.

    Of several relations the edges are numbered by one count, those of each relation behind those of the one before: such numbers are dealt out, and are
    the seeds of ``sample``. ``extra`` holds ``relations`` (P + P k,) int32 as well, which relation each pair is of, by its place among those given; there
    is no ``seed_relation``.

    With ``exclude`` no message passes along the edges that are to be predicted: "self" drops every copy of the batch's positive edges u -> v from their
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
        relation: Relation | Sequence[Relation],
        num_negatives: int = 1,
        exclude: Literal["none", "self", "reverse"] = "self",
        reverse_relation: Relation | Sequence[Relation | None] | None = None,
        edges: Sequence[int] | Array | Literal["all"] | None = None,
        negatives: TypedNegatives = "uniform",
    ) -> None:
        """State what a batch holds.

        Args:
            sampler: samples the neighbourhoods of the end points, for instance HeteroSampler without seed_type.
            relation: whose edges are predicted: (source type, name, destination type); or several, which share the batches by their numbers of edges.
            num_negatives: k, negatives of each positive edge; may be 0.
            exclude: edges that pass no message: "none", the positives themselves ("self"), or also their "reverse" edges.
            reverse_relation: with exclude="reverse", the relation of edges v -> u; of several relations that of each, None where there is none.
            edges: (N,) ids of the edges that an epoch deals out, of one relation; or "all"; by default all edges into the vertices of the split.
            negatives: the law of the negatives: uniform, degree, in_batch or filtered.

        Raises:
            InputError: a sampler of one type of seeds, an unknown option, options that do not go together, or a number out of range.
        """
        if sampler.seed_type is not None:
            raise InputError(f"sampler is {sampler!r}: the ends of links are of the relation's types; give the sampler no seed_type")
        if exclude not in EXCLUSIONS:
            raise InputError(f'exclude is {exclude!r}: the edges without messages are "none", "self" or "reverse"; choose one')
        relations, reverses = _relations(relation, reverse_relation)
        if (exclude == "reverse") != any(reverses):
            raise InputError(
                f"exclude is {exclude!r} and reverse_relation {reverse_relation}: give both of them for reverse edges, or neither"
            )
        for own, turned in zip(relations, reverses, strict=True):
            if turned is not None and (turned[0], turned[2]) != (own[2], own[0]):
                raise InputError(f"reverse_relation is {turned}: edges of {relation_name(own)} turned round lead elsewhere; correct it")
        check_choice("negatives", negatives, get_args(TypedNegatives))
        most = most_negatives(negatives)
        if not 0 <= num_negatives < most:
            raise InputError(f"num_negatives is {num_negatives}: an edge has 0 to {most - 1} negatives; correct it")
        self.sampler: TypedSampler = sampler
        self.distinct_nodes: bool = sampler.distinct_nodes
        self.repeats_edges: bool = sampler.repeats_edges
        self.relations: tuple[Relation, ...] = relations
        self.reverses: tuple[Relation | None, ...] = reverses
        one = len(relations) == 1  # as they were given
        self.relation: Relation | tuple[Relation, ...] = relations[0] if one else relations
        self.reverse_relation: Relation | tuple[Relation | None, ...] | None = reverses[0] if one else reverses
        self.num_negatives = num_negatives
        self.negatives = negatives
        self.exclude = exclude
        self.edges: Array | Literal["all"] | None = "all" if isinstance(edges, str) else None if edges is None else np.asarray(edges)
        if isinstance(edges, str):
            check_choice("edges", edges, ["all"])
        if len(relations) > 1:
            self._check_several()
        self._laws = OncePerGraph[list[NegativeLaw]]()

    def _check_several(self) -> None:
        """Refuse what is of one relation alone."""
        if self.negatives == "in_batch":
            raise InputError('negatives is "in_batch" with several relations: a batch may have one link of some; draw them "uniform"')
        if isinstance(self.sampler, HeteroTemporalSampler):
            raise InputError("HeteroTemporalSampler with several relations: links at times are of one; name one, or take HeteroSampler")
        if isinstance(self.edges, np.ndarray):
            raise InputError('edges are ids with several relations: each relation has its own; set edges "all", or leave them out')

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """What the sampler within refuses; and without ``edges`` a split of vertices that no edge of the relation leads into."""
        self.sampler.check_data(data)
        other = next((own for own in self.relations if isinstance(data, HeteroDataset) and own[2] != data.seed_type), None)
        if isinstance(data, HeteroDataset) and self.edges is None and other is not None:
            raise InputError(
                f"seed_type of {data.name} is {data.seed_type!r}, and edges of {relation_name(other)} lead into {other[2]!r}: "
                "give the sampler edges"
            )

    @property
    def num_hops(self) -> int:
        """Those of the sampler of neighbourhoods."""
        return self.sampler.num_hops

    def prepare(self, graph: HeteroGraph, seeds: Array) -> HeteroLinkSampler:
        """With the sampler of neighbourhoods prepared."""
        self._laws.get(graph, self._laws_of)
        prepared = copy(self)
        prepared.sampler = self.sampler.prepare(graph, seeds)  # type: ignore[assignment]  # it prepares itself
        return prepared

    def items(self, graph: HeteroGraph, seeds: Array) -> Array:
        """Numbers of edges (U,), of one relation their places in its ``indices``: those of ``edges``, or of all edges into ``seeds``, column by column.

        Raises:
            InputError: an edge outside the graph, or none at all.
        """
        parts, begin = [], 0
        for columns in self._columns(graph):
            if self.edges is None:
                places = edges_into(columns, seeds)
            else:
                places = np.arange(columns.num_edges) if isinstance(self.edges, str) else places_of(columns, self.edges)
            parts.append(begin + places)
            begin += columns.num_edges
        return np.concatenate(parts)

    def _columns(self, graph: HeteroGraph) -> list[RelationColumns]:
        """The relations'."""
        for relation in (*self.relations, *self.reverses):
            if relation is not None and relation not in graph.relations:
                known = ", ".join(map(relation_name, graph.relations))
                raise InputError(f"relation {relation_name(relation)} is not in the graph: it has {known}; choose one of them")
        return [graph.relations[relation] for relation in self.relations]

    def sample_on_cpu(self, graph: HeteroGraph, seeds: Array, address: Address, workspace: Workspace) -> HeteroMiniBatch:
        """Sample one mini-batch for the edges with the numbers ``seeds`` (P,); see ``Sampler.sample_on_cpu``."""
        asked = self.asked(graph, seeds, address, workspace)
        options: dict[str, Any] = {} if asked.times is None else {"times": asked.times}
        sampled = self.sampler.sample(graph, asked.seeds, **address._asdict(), workspace=workspace, **options)
        return self.with_links(graph, sampled, asked, workspace)

    def links_of(self, graph: HeteroGraph, seeds: Array) -> dict[Relation, Array]:
        """Of each relation the places (n,) of its links among those with the numbers ``seeds`` (P,), which are checked."""
        begins = np.cumsum([0, *(columns.num_edges for columns in self._columns(graph))])
        seeds = check_ids(seeds, int(begins[-1]), "edge", "edge", "edges")
        places = np.searchsorted(begins, seeds, side="right") - 1
        return {relation: seeds[places == place] - begins[place] for place, relation in enumerate(self.relations)}

    def asked(self, graph: HeteroGraph, seeds: Array, address: Address, workspace: Workspace, looked: Looked | None = None) -> Links:
        """What the links with the numbers ``seeds`` (P,) ask for; with ``looked`` sources and times are not looked at."""
        asked, times, positives = self._asked(graph, seeds, address, workspace, looked), None, list[Array]()
        if isinstance(self.sampler, HeteroTemporalSampler):
            source, _, destination = self.relations[0]
            (own, other), times, local = self._ends_at_times(graph.relations[self.relations[0]], asked, looked)
            ends = [(source, own), (destination, other)]
        else:
            ends, local = self._ends(graph, asked, workspace), asked.pairs
            if self.exclude != "none":
                positives = [local[:, places[:own]].astype(np.int64) for own, places in asked.of_relations]
        numbers = np.concatenate([graph.numbered({kind: ids}) for kind, ids in ends])
        extra = {"pairs": local, "labels": asked.labels} | ({"relations": asked.relations} if len(self.relations) > 1 else {})
        return Links(numbers, times, extra, positives)

    def with_links(self, graph: HeteroGraph, sampled: HeteroMiniBatch, asked: Links, workspace: Workspace) -> HeteroMiniBatch:
        """The batch of the ends with the links, and without edges that are to pass no message."""
        if asked.positives:
            sampled = self._without(sampled, asked.positives)
        return replace(sampled, extra=sampled.extra | asked.extra, seed_relation=None if len(self.relations) > 1 else self.relations[0])

    def _laws_of(self, graph: HeteroGraph) -> list[NegativeLaw]:
        """Made once for a graph; they travel to the workers with the sampler."""
        laws = []
        for relation, columns in zip(self.relations, self._columns(graph), strict=True):
            bounds = (0, columns.num_nodes)
            tables = tables_by_degree(columns, bounds) if self.negatives == "degree" else None
            is_sorted = self.negatives == "filtered" and bool(columns_sorted(columns.indptr, columns.indices))
            laws.append(NegativeLaw(self.negatives, bounds, tables, is_sorted, relation[0] == relation[2]))
        return laws

    def _asked(self, graph: HeteroGraph, seeds: Array, address: Address, workspace: Workspace, looked: Looked | None) -> _Asked:
        """The links with the numbers ``seeds`` (P,), and their negatives, as global ids."""
        all_columns, laws = self._columns(graph), self._laws.get(graph, self._laws_of)
        begins = np.cumsum([0, *(columns.num_edges for columns in all_columns)])
        seeds, number = check_ids(seeds, int(begins[-1]), "edge", "edge", "edges"), len(seeds)
        count = 0 if self.negatives == "in_batch" and number == 1 else self.num_negatives
        total = number * (1 + count)
        dtype = id_dtype(max(max(columns.num_src, columns.num_nodes) for columns in all_columns))
        pairs = workspace.array("link_pairs", 2 * total, dtype).reshape(2, total)
        labels = workspace.array("link_labels", total, np.float32)
        labels[:number], labels[number:] = 1, 0
        relations = workspace.array("link_relations", total, np.int32)
        relations[:number] = np.searchsorted(begins, seeds, side="right") - 1
        relations[number:].reshape(number, count)[:] = relations[:number, None]
        of_relations = []
        for place, (columns, law) in enumerate(zip(all_columns, laws, strict=True)):
            own = np.flatnonzero(relations[:number] == place)
            src, dst, drawn = (np.empty(size, dtype) for size in (len(own), len(own), len(own) * count))
            write_ends(columns, seeds[own] - begins[place], looked["indices"][self.relations[place]] if looked else None, src, dst)
            draw_negatives(law, columns, seeds[own], (src, dst), count, address, drawn)
            others = (number + own[:, None] * count + np.arange(count)).reshape(-1)
            pairs[:, own], pairs[:, others] = (src, dst), (np.repeat(src, count), drawn)
            of_relations.append((len(own), np.concatenate([own, others])))
        return _Asked(seeds, pairs, labels, relations, of_relations)

    def _ends(self, graph: HeteroGraph, asked: _Asked, workspace: Workspace) -> list[tuple[str, Array]]:
        """The distinct sources and destinations of each type; the pairs become local ids."""
        rows: dict[str, list[tuple[int, Array]]] = {}
        for (source, _, destination), (_, places) in zip(self.relations, asked.of_relations, strict=True):
            for kind, side in ((source, 0), (destination, 1)):
                rows.setdefault(kind, []).append((side, places))
        ends = []
        for kind, parts in rows.items():
            ids = np.concatenate([asked.pairs[side, places] for side, places in parts])
            ends.append((kind, distinct_ends(graph.num_nodes[kind], ids, workspace, f"link_nodes.{kind}")))
            begins = np.cumsum([len(places) for _, places in parts])[:-1]
            for (side, places), own in zip(parts, np.split(ids, begins), strict=True):
                asked.pairs[side, places] = own
        return ends

    def _ends_at_times(self, columns: RelationColumns, asked: _Asked, looked: Looked | None) -> tuple[list[Array], Array, Array]:
        """The sources of the positives and the destinations of all pairs, their times, and the pairs as local ids."""
        if columns.times is None:
            raise InputError(f"{relation_name(self.relations[0])} has no times: give them to HeteroGraph, or take HeteroSampler")
        pairs, number, total = asked.pairs, len(asked.seeds), asked.pairs.shape[1]
        each = np.r_[np.arange(number), np.repeat(np.arange(number), total // number - 1)]  # the positive of each pair
        bounds = (looked["times"][self.relations[0]] if looked else columns.times[asked.seeds]) - (0 if self.exclude == "none" else 1)
        first = number if self.relations[0][0] == self.relations[0][2] else 0
        local = np.stack([each, first + np.arange(total)]).astype(pairs.dtype)
        return [pairs[0, :number], pairs[1]], np.concatenate([bounds, bounds[each]]), local

    def _without(self, batch: HeteroMiniBatch, positives: Sequence[Array]) -> HeteroMiniBatch:
        """The batch without the edges that are predicted, (2, P) of each relation; the memory of its blocks is used again. Seeds stand first."""
        parts: dict[Relation, list[Array]] = {}
        for relation, reverse, own in zip(self.relations, self.reverses, positives, strict=True):
            parts.setdefault(relation, []).append(own)
            if reverse is not None:
                parts.setdefault(reverse, []).append(own[::-1])
        pairs = {relation: np.concatenate(own, axis=1) for relation, own in parts.items()}
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


def _relations(given: Any, reverse: Any) -> tuple[tuple[Relation, ...], tuple[Relation | None, ...]]:
    """The relations as triples, and as many reverse ones.

    Raises:
        InputError: none, the same one twice, or not a reverse one for each.
    """
    relations = [given] if given and isinstance(given[0], str) else list(given)
    reverses = [reverse] * len(relations) if reverse is None else [reverse] if isinstance(reverse[0], str) else list(reverse)
    named = [None if own is None else cast(Relation, tuple(own)) for own in (*relations, *reverses)]
    first = named[: len(relations)]
    if not first or len(set(first)) < len(first):
        raise InputError(f"relation is {given}: it is (source type, name, destination type), or several such, each once; correct it")
    if len(reverses) != len(relations):
        raise InputError(f"reverse_relation is {reverse} for {len(relations)} relations: give one for each, null where there is none")
    return cast(tuple[Relation, ...], tuple(first)), tuple(named[len(relations) :])
