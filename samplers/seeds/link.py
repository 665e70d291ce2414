"""Edges as seeds, for link prediction: positive edges, negatives, and the neighbourhoods of all their end points."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from hoptrain.engine import Address, Dataset, Graph, HeteroDataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.hetero_graph import Relation
from hoptrain.kernels.cpu.seeds import link as kernels
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import ONLY, Block, MiniBatch, nested_blocks
from hoptrain.samplers.checks import check_ids
from hoptrain.samplers.nodewise.temporal import TemporalSampler
from hoptrain.samplers.scratch.alias import AliasTables, tables_of
from hoptrain.samplers.scratch.once import OncePerGraph
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.seeds.ends import Links, Looked, distinct_ends, edges_into, places_of, write_ends

Negatives = Literal["uniform", "in_batch", "degree", "filtered", "pairs"]
Exclude = Literal["none", "self", "reverse"]

NEGATIVES = get_args(Negatives)
EXCLUSIONS = ("none", "self", "reverse")

NO_WEIGHTS = np.empty(0, np.float32)
MOST_NEGATIVES = 1 << 24


class LinkSampler(Sampler):
    """Deals out edges; a batch holds P of them, k vertices that each was not asked for, and the blocks that lead to all end points.

    What is dealt out, and what ``sample`` takes as seeds, are the edges' places in ``graph.indices``; ``Graph.places_of`` tells those of ids.

    Every positive edge u -> v comes with ``num_negatives`` pairs (u, w). The law of w, independent for each pair:

    * ``uniform``: each vertex of the graph with the same probability.
    * ``degree``: a vertex with a probability proportional to its in-degree to the power 3/4 (Mikolov et al. 2013, "Distributed
      representations of words and phrases and their compositionality").
    * ``in_batch``: the destination of another edge of the batch, each other edge with the same probability. In a batch of a single edge
      there is none to take, and it has no negatives.
    * ``filtered``: each vertex but u to which no edge leads from u, with the same probability. It is found by up to 32 uniform draws, of which the
      last stays whatever it is: where edges lead from u to a share p of all vertices, an edge is left with probability p**32.
    * ``pairs``: each vertex with the same probability, and the pair is (u', w) with another such vertex u' in place of u: as in evaluation
      among uniform pairs, so that pairs of two vertices of few edges are learnt from, too.

    No other negative is compared with the graph: a few may be edges, or w may be u or v. In expectation that is the share of vertices that u
    is joined to.

    With ``destinations`` (begin, end) only edges into these vertices are dealt out, and "vertex" above means one of them: of a graph of users and
    items, kept in both directions, the items, so that an edge leads from a user to an item and a negative is another item.

    The seeds of the batch are the end points, each once, in order of first appearance (sources before destinations, positives before
    negatives). ``extra`` holds ``pairs`` (2, P + P k), sources above destinations as local ids, the positives first and then the negatives
    of each in turn; and ``labels`` (P + P k,) float32, 1 for the positives.

    With ``exclude`` no message passes along the edges that are to be predicted: "self" drops every copy of the batch's positive edges from all
    blocks, "reverse" also the edges v -> u. They are dropped after sampling: the other edges keep their law, weights included, and a
    destination that had drawn a dropped edge has one fewer. Nodes stay what they were, since both ends of a dropped edge are seeds.
    A vertex's label comes along for every end point, whatever its split: train on the pairs, not on ``y``.

    With a ``TemporalSampler`` every pair is asked for at the time of its positive edge. Seeds are then the sources of the positives, their
    destinations, and those of the negatives, each with a tree of its own; and unless ``exclude`` is "none", only edges that are strictly
    earlier pass messages, earlier copies of a predicted edge among them.

    Examples:
        >>> from hoptrain import LinkSampler, NeighborSampler, load_dataset
        >>> sampler = LinkSampler(NeighborSampler([3, 2]), num_negatives=2)
        >>> batch = sampler.sample(load_dataset("digits-knn").graph, [0, 100], seed=1)  # two edges
        >>> batch.seeds[batch.extra["pairs"]]  # sources above destinations: two edges, then four pairs that are none
        array([[ 335,  251,  335,  335,  251,  251],
               [   0,    9,  581,  703, 1381, 1486]], dtype=int32)
        >>> batch.extra["labels"]
        array([1., 1., 0., 0., 0., 0.], dtype=float32)
    """

    by_seeds = False

    def __init__(
        self,
        sampler: Sampler,
        negatives: Negatives = "uniform",
        num_negatives: int = 1,
        exclude: Exclude = "reverse",
        edges: Sequence[int] | Array | None = None,
        with_edge_ids: bool = False,
        destinations: tuple[int, int] | None = None,
    ) -> None:
        """State what a batch holds.

        Args:
            sampler: samples the neighbourhoods of the end points, for instance NeighborSampler.
            negatives: the law of the negatives: uniform, degree, in_batch, filtered or pairs.
            num_negatives: k, negatives of each positive edge; may be 0.
            exclude: edges that pass no message: "none", the positives themselves ("self"), or also their "reverse" edges.
            edges: (N,) ids (``Graph.edge_ids``) of the edges that an epoch deals out; by default all edges into the vertices of the split. In an
                undirected graph, kept as two edges a link, that is each link twice: give one direction's ids to have it once.
            with_edge_ids: let ``extra`` hold ``edge_ids`` (P,), the ids of the positive edges.
            destinations: vertices [begin, end) that the edges of an epoch and all negatives lead to; by default any.

        Raises:
            InputError: a sampler that is not asked for by its seeds, an unknown option, or a number out of range.
        """
        if not sampler.by_seeds:
            raise InputError(
                f"sampler is {type(sampler).__name__}, which chooses its seeds itself: a link's ends are given ones; use NeighborSampler"
            )
        if negatives not in NEGATIVES:
            raise InputError(
                f'negatives is {negatives!r}: they are drawn "uniform", by "degree", "in_batch", "filtered" or as "pairs"; choose one'
            )
        if negatives == "pairs" and (destinations is not None or isinstance(sampler, TemporalSampler)):
            beside = "a TemporalSampler" if destinations is None else "destinations"
            raise InputError(f'negatives is "pairs" with {beside}: a source would be any vertex, at any time; draw them "uniform"')
        if exclude not in EXCLUSIONS:
            raise InputError(f'exclude is {exclude!r}: the edges without messages are "none", "self" or "reverse"; choose one')
        most = most_negatives(negatives)
        if not 0 <= num_negatives < most:
            raise InputError(f"num_negatives is {num_negatives}: an edge has 0 to {most - 1} negatives; correct it")
        if destinations is not None and not (len(destinations) == 2 and 0 <= destinations[0] < destinations[1]):
            raise InputError(f"destinations is {destinations}: edges lead to the vertices [begin, end), 0 <= begin < end; correct it")
        self.sampler = sampler
        self.distinct_nodes: bool = sampler.distinct_nodes
        self.repeats_edges: bool = sampler.repeats_edges
        self.negatives = negatives
        self.num_negatives = num_negatives
        self.exclude = exclude
        self.edges: Array | None = None if edges is None else np.asarray(edges)
        self.with_edge_ids = with_edge_ids
        self.destinations = destinations
        self._table = OncePerGraph[AliasTables]()

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """What the sampler within refuses."""
        self.sampler.check_data(data)

    @property
    def num_hops(self) -> int:
        """Those of the sampler of neighbourhoods."""
        return self.sampler.num_hops

    def prepare(self, graph: Graph, seeds: Array) -> LinkSampler:
        """With the table that negatives are drawn from, and the sampler of neighbourhoods prepared."""
        prepared = copy(self)
        prepared.sampler = self.sampler.prepare(graph, seeds)
        if self.negatives == "degree":
            prepared._degree_table(graph)
        return prepared

    def bounds(self, graph: Graph) -> tuple[int, int]:
        """The vertices [begin, end) that edges lead to.

        Raises:
            InputError: the graph has fewer.
        """
        begin, end = (0, graph.num_nodes) if self.destinations is None else self.destinations
        if end > graph.num_nodes:
            raise InputError(f"destinations is ({begin}, {end}) and the graph has {graph.num_nodes:,} vertices: correct it")
        return begin, end

    def items(self, graph: Graph, seeds: Array) -> Array:
        """Places in ``graph.indices`` (U,): those of ``edges``, or of all edges into ``seeds`` that are ``destinations``, column by column.

        Raises:
            InputError: an edge outside the graph, or none at all.
        """
        begin, end = self.bounds(graph)
        if self.edges is None:
            return edges_into(graph, seeds[(seeds >= begin) & (seeds < end)])
        places = places_of(graph, self.edges)
        if self.destinations is not None:
            ends = np.searchsorted(graph.indptr, places, side="right") - 1
            outside = np.flatnonzero((ends < begin) | (ends >= end))
            if len(outside):
                edge, vertex = self.edges[outside[0]], ends[outside[0]]
                raise InputError(f"edge {edge} leads to vertex {vertex} and destinations is ({begin}, {end}): leave the edge out")
        return places

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch for the edges at the places ``seeds`` (P,) in ``graph.indices``; see ``Sampler.sample_on_cpu``."""
        asked = self.asked(graph, seeds, address, workspace)
        options: dict[str, Any] = {} if asked.times is None else {"times": asked.times}
        sampled = self.sampler.sample(graph, asked.seeds, **address._asdict(), workspace=workspace, **options)
        return self.with_links(graph, sampled, asked, workspace)

    def links_of(self, graph: Graph, seeds: Array) -> dict[Relation, Array]:
        """The places (P,) of the links, checked, by their relation, of which there is one."""
        return {ONLY: check_ids(seeds, graph.num_edges, "edge", "edge", "edges")}

    def asked(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace, looked: Looked | None = None) -> Links:
        """What the edges at the places ``seeds`` (P,) ask for, in memory of the workspace; with ``looked`` sources and times are not looked at."""
        edge_ids, pairs, labels = self.pairs(graph, seeds, address, workspace, looked)
        if isinstance(self.sampler, TemporalSampler):
            ends, times, pairs = self.ends_at_times(graph, edge_ids, pairs, looked)
            return Links(ends, times, self.extra(graph, edge_ids, pairs, labels), [])
        ends = distinct_ends(graph.num_nodes, pairs, workspace)
        positives = [] if self.exclude == "none" else [pairs[:, : len(edge_ids)]]
        return Links(ends, None, self.extra(graph, edge_ids, pairs, labels), positives)

    def with_links(self, graph: Graph, sampled: MiniBatch, asked: Links, workspace: Workspace) -> MiniBatch:
        """The batch of the ends with the links, and without edges that are to pass no message."""
        for positives in asked.positives:
            dropped = self.dropped(positives, len(asked.seeds))
            sampled = replace(sampled, blocks=_without(sampled, dropped, graph.num_nodes, workspace))
        return replace(sampled, extra=sampled.extra | asked.extra)

    def extra(self, graph: Graph, places: Array, pairs: Array, labels: Array) -> dict[str, Array]:
        """What a batch holds beside its blocks: ``pairs`` as local ids, and the edges at ``places``."""
        return {"pairs": pairs, "labels": labels} | ({"edge_ids": graph.ids_of(places)} if self.with_edge_ids else {})

    def ends_at_times(self, graph: Graph, edge_ids: Array, pairs: Array, looked: Looked | None = None) -> tuple[Array, Array, Array]:
        """Seeds and their times, and the pairs as local ids; ``pairs`` are global."""
        if graph.times is None:
            raise InputError("the graph has no times: give them to Graph or Graph.from_edges, or take NeighborSampler")
        num_edges, num_pairs = len(edge_ids), pairs.shape[1]
        each = np.r_[np.arange(num_edges), np.repeat(np.arange(num_edges), num_pairs // num_edges - 1)]  # the positive of each pair
        bounds = (looked["times"][ONLY] if looked else graph.times[edge_ids]) - (0 if self.exclude == "none" else 1)
        ends = np.concatenate([pairs[0, :num_edges], pairs[1]])
        local = np.stack([each, num_edges + np.arange(num_pairs)]).astype(pairs.dtype)
        return ends, np.concatenate([bounds, bounds[each]]), local

    def pairs(
        self, graph: Graph, edge_ids: Array, address: Address, workspace: Workspace, looked: Looked | None = None
    ) -> tuple[Array, Array, Array]:
        """The checked places of the edges, the pairs, global ids, and their labels."""
        edge_ids = self.links_of(graph, edge_ids)[ONLY]
        num_edges = len(edge_ids)
        count = 0 if self.negatives == "in_batch" and num_edges == 1 else self.num_negatives
        total = num_edges * (1 + count)
        pairs = workspace.array("link_pairs", 2 * total, graph.indices.dtype).reshape(2, total)
        labels = workspace.array("link_labels", total, np.float32)
        labels[:num_edges], labels[num_edges:] = 1, 0
        (src, dst), (tails, drawn) = pairs[:, :num_edges], pairs[:, num_edges:]
        write_ends(graph, edge_ids, looked["indices"][ONLY] if looked else None, src, dst)
        tails.reshape(num_edges, count)[:] = src[:, None]
        begin, end = self.bounds(graph)
        if self.negatives == "pairs":
            both = workspace.array("link_both", 2 * len(drawn), graph.indices.dtype)
            kernels.uniform_negatives(edge_ids, 2 * count, graph.num_nodes, address.at_hop(0), both)
            for half, ends in enumerate((drawn, tails)):  # the first k of an edge's draws, then the others
                ends.reshape(num_edges, count)[:] = both.reshape(num_edges, 2, count)[:, half]
        else:
            tables = self._degree_table(graph) if self.negatives == "degree" else None
            law = NegativeLaw(self.negatives, (begin, end), tables, graph.is_sorted)
            draw_negatives(law, graph, edge_ids, (src, dst), count, address, drawn)
        return edge_ids, pairs, labels

    def dropped(self, positives: Array, num_seeds: int) -> Array:
        """The edges that pass no message, sorted as ``drop_edges`` takes them; ``positives`` (2, P) local ids."""
        src, dst = positives.astype(np.int64)
        dropped: Array = src * num_seeds + dst
        if self.exclude == "reverse":
            dropped = np.concatenate([dropped, dst * num_seeds + src])
        dropped.sort()
        return dropped

    def _degree_table(self, graph: Graph) -> AliasTables:
        """Made once for a graph; it travels to the workers with the sampler."""
        return self._table.get(graph, self._by_degree)

    def _by_degree(self, graph: Graph) -> AliasTables:
        return tables_by_degree(graph, self.bounds(graph))


def most_negatives(negatives: str) -> int:
    """More negatives an edge than there may be: a try of each has a number of its own."""
    return MOST_NEGATIVES // (kernels.FILTER_TRIES if negatives == "filtered" else 1)


class NegativeLaw(NamedTuple):
    """How vertices are drawn that an edge does not lead to.

    Attributes:
        name: uniform, degree, filtered or in_batch.
        bounds: the vertices [begin, end) that are drawn.
        tables: with degree those of ``tables_by_degree``.
        is_sorted: with filtered whether sources ascend within every column.
        is_one_type: whether a source may be a destination.
    """

    name: str
    bounds: tuple[int, int]
    tables: AliasTables | None = None
    is_sorted: bool = False
    is_one_type: bool = True


def draw_negatives(
    law: NegativeLaw,
    columns: Graph | RelationColumns,
    places: Array,
    positives: tuple[Array, Array],
    count: int,
    address: Address,
    out: Array,
) -> None:
    """Write ``count`` negatives of each of P edges at ``places`` (P,), whose sources and destinations are ``positives``, into ``out`` (P * count,)."""
    (begin, end), at = law.bounds, address.at_hop(0)
    if law.name == "filtered":
        of_columns = columns.indptr, columns.indices, law.is_sorted, begin, end, law.is_one_type
        kernels.filtered_negatives(*of_columns, places, positives[0], count, at, out)
    elif law.name == "in_batch":
        kernels.in_batch_negatives(places, count, positives[1], at, out)
    else:
        if law.tables is None:
            kernels.uniform_negatives(places, count, end - begin, at, out)
        else:
            kernels.weighted_negatives(places, count, *law.tables, at, out)
        out += begin


def tables_by_degree(columns: Graph | RelationColumns, bounds: tuple[int, int]) -> AliasTables:
    """Those of the vertices [begin, end), by their in-degrees to the power 3/4.

    Raises:
        InputError: no edge leads to them.
    """
    begin, end = bounds
    if columns.indptr[begin] == columns.indptr[end]:
        raise InputError(f'negatives by "degree" and no edge leads to the vertices [{begin}, {end}): draw them "uniform"')
    root = np.sqrt(np.diff(columns.indptr[begin : end + 1]))
    # Square roots are exact to the last bit on every machine; a power need not be.
    return tables_of(np.array([0, end - begin]), root * np.sqrt(root))


def _without(batch: MiniBatch, dropped: Array, num_vertices: int, workspace: Workspace) -> tuple[Block, ...]:
    """The batch's blocks without some edges between seeds; their memory is used again.

    A vertex may be several nodes, of which a seed is only the first (of ``ShadowSampler``, for instance): edges of the others count too.
    """
    num_seeds, nodes = batch.num_seeds, batch.node_ids
    workspace.table.start(num_vertices, num_seeds)
    workspace.table.enter(nodes, num_seeds)
    seed_of = workspace.array("link_seed_of", len(nodes), np.int32)
    kernels.find_seeds(nodes, num_seeds, workspace.table.view(), seed_of)

    def without(block: Block) -> Block:
        weights = NO_WEIGHTS if block.weights is None else block.weights
        kept = kernels.drop_edges(block.indptr, block.indices, block.edge_ids, weights, seed_of, seed_of, num_seeds, num_seeds, dropped)
        return block.beginning(block.num_dst, block.num_src, kept)

    if batch.nested:
        return nested_blocks(without(batch.blocks[0]), [block.num_src for block in batch.blocks], num_seeds)
    return tuple(without(block) for block in batch.blocks)
