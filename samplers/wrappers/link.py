"""Samplers for link prediction, whose batches are positive edges, negatives, and the neighbourhoods of all their ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np

from hoptrain.engine import Dataset, Graph, HeteroDataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.errors import explain_keywords
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import HeteroMiniBatch, MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.hetero import BaseHeteroSampler
from hoptrain.samplers.wrappers.ends import BatchLinks, Exclude, LinkSeeds

HeteroNegatives = Literal["uniform", "in_batch", "degree", "filtered"]
Negatives = Literal["uniform", "in_batch", "degree", "filtered", "pairs"]


@explain_keywords
class LinkSampler(LinkSeeds[Graph, MiniBatch]):
    """A link sampler of homogeneous graphs: a batch holds P edges, k negatives of each, and the blocks that lead to the ends of all of them.

    The items of an epoch, which ``sample`` takes, are edges by their CSC positions in ``graph.indices``; ``Graph.csc_positions`` returns the CSC positions
    of edge ids.

    Every positive edge u -> v comes with ``num_negatives`` pairs (u, w). The distribution of w, independent for each pair:

    * ``uniform``: each node of the graph with the same probability.
    * ``degree``: a node with a probability proportional to its in-degree to the power 3/4 (Mikolov et al. 2013, "Distributed
      representations of words and phrases and their compositionality").
    * ``in_batch``: the destination of another edge of the batch, each other edge with the same probability. A batch of a single edge
      has no negatives.
    * ``filtered``: each node except u to which no edge leads from u, with the same probability. It is found by up to 32 uniform draws, of which the
      last is kept in any case: if edges lead from u to a share p of all nodes, a negative is an edge with probability p**32.
    * ``pairs``: each node with the same probability, and u is replaced by another such node u', so that the pair is (u', w). These are the
      negatives of evaluation among uniform pairs; the model also learns from pairs of two nodes with few edges.

    Negatives other than ``filtered`` are not compared with the graph: some may be edges, and w may be u or v. The expected share of edges among
    uniform negatives is the share of nodes to which an edge leads from u.

    With ``dst_range`` (begin, end) an epoch has only edges into these nodes, and "node" above means one of them. In a graph of users and
    items that has every edge in both directions, let these be the items: then an edge leads from a user to an item, and w is another item.

    The seeds of the batch are the distinct ends, in order of first appearance (sources before destinations, positives before
    negatives). ``extra`` holds ``pairs`` (2, P + P k), sources above destinations as local ids, the positives first and then the negatives
    of each in turn; and ``labels`` (P + P k,) float32, 1 for the positives.

    ``exclude`` removes the predicted edges from message passing: "self" drops every copy of the batch's positive edges from all
    blocks, "reverse" also the edges v -> u. They are dropped after sampling: the other edges keep their distribution and weights, and a
    destination that had drawn a dropped edge has one fewer. The nodes stay the same, since both ends of a dropped edge are seeds.
    ``y`` has the labels of all ends, whatever their split, so train on the pairs, not on ``y``.

    With a ``TemporalSampler`` every pair is sampled at the time of its positive edge. Seeds are then the sources of the positives, their
    destinations, and those of the negatives, each with a tree of its own. Unless ``exclude`` is "none", only edges that are strictly
    earlier pass messages, including earlier copies of a predicted edge.

    Examples:
        >>> from hoptrain import LinkSampler, NeighborSampler, load_dataset
        >>> sampler = LinkSampler(NeighborSampler([3, 2]), num_negatives=2)
        >>> batch = sampler.sample(load_dataset("digits-knn").graph, [0, 100], seed=1)  # two edges
        >>> batch.seeds[batch.extra["pairs"]]  # sources above destinations: two edges, then four negatives
        array([[ 335,  251,  335,  335,  251,  251],
               [   0,    9,  581,  703, 1381, 1486]], dtype=int32)
        >>> batch.extra["labels"]
        array([1., 1., 0., 0., 0., 0.], dtype=float32)
    """

    def __init__(
        self,
        sampler: Sampler,
        negatives: Negatives = "uniform",
        num_negatives: int = 1,
        exclude: Exclude = "reverse",
        edges: Sequence[int] | Array | None = None,
        with_edge_ids: bool = False,
        dst_range: tuple[int, int] | None = None,
    ) -> None:
        """Check and keep the options.

        Args:
            sampler: sampler of the neighbourhoods of the ends, for instance NeighborSampler.
            negatives: distribution of the negatives: uniform, degree, in_batch, filtered or pairs.
            num_negatives: negatives for each positive edge, 0 or more.
            exclude: edges without messages: "none", the positives themselves ("self"), or also their "reverse" edges.
            edges: (N,) ids (``Graph.edge_ids``) of the edges of an epoch; by default all edges into the nodes of the split. An undirected
                graph has two edges for each link, so the default has each link twice; give the ids of one direction to have it once.
            with_edge_ids: add the ids of the positive edges, ``edge_ids`` (P,), to ``extra``.
            dst_range: range [begin, end) of the nodes that the edges of an epoch and all negatives lead to; by default all nodes.

        Raises:
            InputError: the sampler chooses its seeds itself, an option is unknown, or a number is out of range.
        """
        if not sampler.by_seeds:
            raise InputError(
                f"sampler is {type(sampler).__name__}, which chooses its seeds itself: its seeds must be the ends of links; use NeighborSampler"
            )
        super().__init__(sampler, (negatives, Negatives), num_negatives, exclude, edges)
        if negatives == "pairs" and (dst_range is not None or self.is_timed):
            other = "a TemporalSampler" if dst_range is None else "dst_range"
            raise InputError(f'negatives is "pairs" with {other}: a source would be any node, at any time; use "uniform"')
        if dst_range is not None and not (len(dst_range) == 2 and 0 <= dst_range[0] < dst_range[1]):
            raise InputError(
                f"dst_range is {dst_range}: it must be a range [begin, end) of nodes, 0 <= begin < end; give for instance (0, 100)"
            )
        self.with_edge_ids = with_edge_ids
        self.dst_range = dst_range

    def bounds(self, columns: RelationColumns) -> tuple[int, int]:
        """Return the range [begin, end) of nodes that may be destinations of links.

        Raises:
            InputError: the range goes beyond the nodes of the graph.
        """
        begin, end = self.dst_range or (0, columns.num_nodes)
        if end > columns.num_nodes:
            raise InputError(f"dst_range is ({begin}, {end}): the graph has {columns.num_nodes:,} nodes; lower the end")
        return begin, end

    def items(self, graph: Graph, seeds: Array) -> Array:
        """Return the CSC positions (U,) of ``edges``, or of all edges into the nodes of ``seeds`` that are in ``dst_range``, column by column.

        Raises:
            InputError: an edge is outside the graph or leads to a node outside ``dst_range``, or there is no edge.
        """
        begin, end = self.bounds(graph)
        places = super().items(graph, seeds[(seeds >= begin) & (seeds < end)])
        if self.edges is not None and self.dst_range is not None:
            ends = np.searchsorted(graph.indptr, places, side="right") - 1
            outside = np.flatnonzero((ends < begin) | (ends >= end))
            if len(outside):
                edge, node = graph.ids_of(places[outside[:1]])[0], ends[outside[0]]
                raise InputError(f"edge {edge} leads to node {node}: dst_range is ({begin}, {end}); leave the edge out")
        return places


@explain_keywords
class HeteroLinkSampler(LinkSeeds[HeteroGraph, HeteroMiniBatch]):
    """A link sampler of heterogeneous graphs: a batch holds P edges of one or several relations, their negatives, and the blocks that lead to all ends.

    Negatives, and the order and meaning of ``extra``, are those of ``LinkSampler``, with w a node of the relation's destination type. Local ids count
    within a type, and the seeds of each type are its distinct ends, in order of first appearance. ``seed_relation`` is the relation. The items
    of an epoch are edges by their CSC positions in the relation's ``indices``; ``RelationColumns.csc_positions`` returns the CSC positions of edge ids.

    With several relations an item is the index of an edge among the edges of all relations, one relation after another. ``extra`` then
    also holds ``relations`` (P + P k,) int32, the index of each pair's relation in ``relation``, and ``seed_relation`` is None.

    ``exclude`` removes the predicted edges from message passing: "self" drops every copy of the batch's positive edges u -> v from the blocks of their
    relation, "reverse" also the edges v -> u from the blocks of ``reverse_relation``. They are dropped after sampling. With a ``HeteroTemporalSampler``
    pairs are sampled at the time of their link, as in ``LinkSampler`` with a ``TemporalSampler``.

    Examples:
        >>> from hoptrain import HeteroGraph, HeteroLinkSampler, HeteroSampler
        >>> graph = HeteroGraph.from_edges({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 0, 1], [0, 2, 2])}).with_reverse()
        >>> batch = HeteroLinkSampler(HeteroSampler([2]), ("user", "buys", "item")).sample(graph, [0, 2], seed=1)  # two edges
        >>> batch.extra["labels"], batch.extra["pairs"][:, :2]
        (array([1., 1., 0., 0.], dtype=float32), array([[0, 1],
               [0, 1]], dtype=int32))
    """

    def __init__(
        self,
        sampler: BaseHeteroSampler,
        relation: Relation | Sequence[Relation],
        negatives: HeteroNegatives = "uniform",
        num_negatives: int = 1,
        exclude: Exclude = "reverse",
        reverse_relation: Relation | Sequence[Relation | None] | None = None,
        edges: Sequence[int] | Array | Literal["all"] | None = None,
    ) -> None:
        """Check and keep the options.

        Args:
            sampler: sampler of the neighbourhoods of the ends, for instance HeteroSampler without seed_type.
            relation: relation whose edges are predicted, (source type, name, destination type); or a list of several, whose edges are mixed in
                batches in proportion to their numbers.
            negatives: distribution of the negatives: uniform, degree, in_batch or filtered.
            num_negatives: negatives for each positive edge, 0 or more.
            exclude: edges without messages: "none", the positives themselves ("self"), or also their "reverse" edges.
            reverse_relation: relation of the edges v -> u for exclude "reverse"; for several relations a list with one for each, or None. The
                default is the relation named rev_NAME, as ``HeteroGraph.with_reverse`` names it, or the relation itself if both ends have one type.
            edges: (N,) ids of the edges of an epoch, for one relation; or "all" edges; by default all edges into the nodes of the split.

        Raises:
            InputError: the sampler has a ``seed_type``, an option is unknown, options exclude each other, or a number is out of range.
        """
        if sampler.seed_type is not None:
            raise InputError(f"sampler is {sampler!r}: its seeds are of the types of the relation's ends; give the sampler no seed_type")
        super().__init__(sampler, (negatives, HeteroNegatives), num_negatives, exclude, edges)
        self.relations, self._reverses = _relations(relation, reverse_relation)
        if reverse_relation is not None and exclude != "reverse":
            raise InputError(f'exclude is {exclude!r} and reverse_relation {reverse_relation}: set exclude "reverse", or leave it out')
        is_one = len(self.relations) == 1
        self.relation = self.relations[0] if is_one else self.relations
        self.reverse_relation = self._reverses[0] if self._reverses and is_one else self._reverses
        if is_one:
            return
        if negatives == "in_batch":
            raise InputError(
                'negatives is "in_batch" with several relations: a batch may have a single link of a relation, without another; use "uniform"'
            )
        if self.is_timed:
            raise InputError("HeteroTemporalSampler with several relations: temporal links must be of one; name one, or use HeteroSampler")
        if isinstance(self.edges, np.ndarray):
            raise InputError('edges are ids with several relations: each relation has its own; set edges "all", or leave them out')

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Raise ``InputError`` if the wrapped sampler cannot sample the data set or, without ``edges``, the split's nodes are of another type."""
        super().check_data(data)
        other = next((own for own in self.relations if isinstance(data, HeteroDataset) and own[2] != data.seed_type), None)
        if isinstance(data, HeteroDataset) and self.edges is None and other is not None:
            raise InputError(
                f"seed_type of {data.name} is {data.seed_type!r}: edges of {relation_name(other)} lead into {other[2]!r}; give the sampler edges"
            )

    def columns(self, graph: HeteroGraph) -> list[RelationColumns]:
        """Return the columns of each relation of the links.

        Raises:
            InputError: the graph lacks a relation.
        """
        for relation in (*self.relations, *(self._reverses or ())):
            if relation is not None and relation not in graph.relations:
                known = ", ".join(map(relation_name, graph.relations))
                raise InputError(f"relation {relation_name(relation)} is not in the graph: it has {known}; choose one of them")
        return super().columns(graph)

    def reverses_in(self, graph: HeteroGraph) -> tuple[Relation | None, ...]:
        """Return, for each relation, the relation of the excluded reverse edges v -> u, or None."""
        if self.exclude != "reverse":
            return (None,) * len(self.relations)
        return self._reverses or tuple(_reverse_in(graph, relation) for relation in self.relations)

    def with_links(
        self, graph: HeteroGraph, sampled: HeteroMiniBatch, asked: BatchLinks, workspace: Workspace, **changes: Any
    ) -> HeteroMiniBatch:
        """Return the batch of the wrapped sampler with the pairs and their relation, and without the excluded edges."""
        seed_relation = self.relations[0] if len(self.relations) == 1 else None
        return super().with_links(graph, sampled, asked, workspace, seed_relation=seed_relation, **changes)


def _reverse_in(graph: HeteroGraph, relation: Relation) -> Relation | None:
    """Return the relation with the reversed edges of ``relation``, by its name; None if there is none."""
    source, name, destination = relation
    turned = destination, name[4:] if name.startswith("rev_") else f"rev_{name}", source
    return turned if turned in graph.relations else relation if source == destination else None


def _relations(given: Any, reverse: Any) -> tuple[tuple[Relation, ...], tuple[Relation | None, ...] | None]:
    """Return the relations as triples, and one reverse relation for each, or None if these are not given.

    Raises:
        InputError: there is no relation, a relation is repeated, or a reverse relation is missing or joins other types.
    """
    relations = [cast(Relation, tuple(own)) for own in ([given] if given and isinstance(given[0], str) else given)]
    if not relations or len(set(relations)) < len(relations):
        raise InputError(f"relation is {given}: it must be (source type, name, destination type), or several such, each once; give one")
    if reverse is None:
        return tuple(relations), None
    reverses = [None if own is None else cast(Relation, tuple(own)) for own in ([reverse] if isinstance(reverse[0], str) else reverse)]
    if len(reverses) != len(relations):
        raise InputError(f"reverse_relation is {reverse} for {len(relations)} relations: give one for each, null where there is none")
    for own, turned in zip(relations, reverses, strict=True):
        if turned is not None and (turned[0], turned[2]) != (own[2], own[0]):
            raise InputError(
                f"reverse_relation is {turned}: it must lead from {own[2]} to {own[0]}, as reversed edges of {relation_name(own)} do; name such a one"
            )
    return tuple(relations), tuple(reverses)
