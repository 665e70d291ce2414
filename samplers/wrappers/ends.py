"""Base class of the link samplers. It draws the negatives of links, and removes the predicted edges from the blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from hoptrain.engine import Address, Dataset, Graph, HeteroDataset, HeteroGraph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.errors import check_choice
from hoptrain.engine.hetero_graph import Relation, relation_name
from hoptrain.kernels.cpu.csc import columns_sorted
from hoptrain.kernels.cpu.relabel import relabel
from hoptrain.kernels.cpu.seeds import link as kernels
from hoptrain.samplers.base import HopSampler, Sampler, SomeBatch, SomeGraph
from hoptrain.samplers.batch.minibatch import ONLY, Block
from hoptrain.samplers.buffers.alias import AliasTables, tables_of
from hoptrain.samplers.buffers.once import OncePerGraph
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_ids
from hoptrain.samplers.hops import columns_of, types_of
from hoptrain.samplers.nodewise.temporal import HeteroTemporalSampler, TemporalSampler

Exclude = Literal["none", "self", "reverse"]

MOST_NEGATIVES = 1 << 24
_NO_WEIGHTS = np.empty(0, np.float32)

Looked: TypeAlias = Mapping[str, Mapping[Relation, Array]]
"""Sources and times of a batch's links, read in advance if the graph is in files: array name (``indices``, ``times``) -> relation -> one entry per link."""


class BatchLinks(NamedTuple):
    """The seeds of a batch of links for the wrapped sampler, and the arrays that are added to its mini-batch.

    Attributes:
        seeds: (S,) seeds of the wrapped sampler.
        times: (S,) int64 times of the seeds if the wrapped sampler is temporal, else None.
        extra: further arrays of the batch, by name; "pairs" has local ids.
        positives: for each relation its links (2, P) as local ids; an empty list if no edges are excluded.
    """

    seeds: Array
    times: Array | None
    extra: dict[str, Array]
    positives: list[Array]

    def copied(self) -> BatchLinks:
        """Return a copy that does not share memory with a workspace."""
        extra = {name: array.copy() for name, array in self.extra.items()}
        return BatchLinks(self.seeds.copy(), self.times, extra, [own.copy() for own in self.positives])


class Negatives(NamedTuple):
    """The distribution of the negatives of a relation.

    Attributes:
        name: "uniform", "degree", "filtered", "in_batch" or "pairs".
        bounds: range [begin, end) of the nodes that may be drawn.
        tables: alias tables for "degree", else None.
        is_sorted: for "filtered", whether sources ascend within every column.
        is_one_type: whether sources and destinations have the same node type.
    """

    name: str
    bounds: tuple[int, int]
    tables: AliasTables | None
    is_sorted: bool
    is_one_type: bool

    def draw(
        self, columns: RelationColumns, numbers: Array, links: Array, out: Array, count: int, address: Address, workspace: Workspace
    ) -> None:
        """Write ``count`` negatives of each of ``links`` (2, n), whose indices are ``numbers`` (n,), into ``out`` (2, n * count)."""
        (begin, end), at, number = self.bounds, address.at_hop(0), len(numbers)
        (src, dst), (tails, heads) = links, out
        tails.reshape(number, count)[:] = src[:, None]
        if self.name == "filtered":
            of_columns = columns.indptr, columns.indices, self.is_sorted, begin, end, self.is_one_type
            kernels.filtered_negatives(*of_columns, numbers, src, count, at, heads)
        elif self.name == "in_batch":
            kernels.in_batch_negatives(numbers, count, dst, at, heads)
        elif self.name == "pairs":
            both = workspace.array("link_both", out.size, out.dtype)
            kernels.uniform_negatives(numbers, 2 * count, end, at, both)
            for half, ends in enumerate((heads, tails)):  # of the 2 k draws of a link, the first k are heads, the last k are tails
                ends.reshape(number, count)[:] = both.reshape(number, 2, count)[:, half]
        else:
            if self.tables is None:
                kernels.uniform_negatives(numbers, count, end - begin, at, heads)
            else:
                kernels.weighted_negatives(numbers, count, *self.tables, at, heads)
            heads += begin


class _OfGraph(NamedTuple):
    """A tuple of the values that a link sampler computes once for a graph."""

    negatives: list[Negatives]
    """Distribution of the negatives of each relation."""
    begins: list[int]
    """(R+1,) index of the first link of each relation among all links, and at the end the number of all links."""
    dtype: Any
    """Dtype of the node ids at the ends of links."""


def _join_seeds(graph: Graph | HeteroGraph, nodes: Sequence[tuple[str, Array]]) -> Array:
    """Concatenate nodes of several types into the seeds that the graph's samplers take."""
    if not isinstance(graph, HeteroGraph):
        return nodes[0][1] if len(nodes) == 1 else np.concatenate([ids for _, ids in nodes])
    return np.concatenate([graph.numbered({kind: ids}) for kind, ids in nodes])


class LinkSeeds(Sampler[SomeGraph, SomeBatch]):
    """The base class of ``LinkSampler`` and ``HeteroLinkSampler``: links of one or several relations, numbered one relation after another.

    Attributes:
        relations: relations of the links; for a homogeneous graph only its one relation, ``ONLY``.
        is_timed: whether the wrapped sampler is temporal, so that each pair is sampled at the time of its link.
        with_edge_ids: whether ``extra`` has the ids of the positive edges.
    """

    by_seeds = False
    relations: tuple[Relation, ...] = (ONLY,)
    with_edge_ids: bool = False

    def __init__(
        self,
        sampler: Sampler[SomeGraph, SomeBatch],
        negatives: tuple[str, Any],
        num_negatives: int,
        exclude: str,
        edges: Sequence[int] | Array | Literal["all"] | None,
    ) -> None:
        """Check and keep the options of both link samplers; ``negatives`` is a name and the ``Literal`` type of all names.

        Raises:
            InputError: an option is unknown, or a number is out of range.
        """
        check_choice("negatives", negatives[0], get_args(negatives[1]))
        check_choice("exclude", exclude, get_args(Exclude))
        most = MOST_NEGATIVES // (
            kernels.FILTER_TRIES if negatives[0] == "filtered" else 1
        )  # each try of a filtered negative uses one random number
        if not 0 <= num_negatives < most:
            raise InputError(f"num_negatives is {num_negatives}: an edge has 0 to {most - 1} negatives; give a number in this range")
        if isinstance(edges, str):
            check_choice("edges", edges, ["all"])
        self.sampler: Sampler[SomeGraph, SomeBatch] = sampler
        self.distinct_nodes: bool = sampler.distinct_nodes
        self.repeats_edges: bool = sampler.repeats_edges
        self.is_timed = isinstance(sampler, TemporalSampler | HeteroTemporalSampler)
        self.negatives = negatives[0]
        self.num_negatives = num_negatives
        self.exclude = exclude
        self.edges: Array | Literal["all"] | None = "all" if isinstance(edges, str) else None if edges is None else np.asarray(edges)
        self._once = OncePerGraph[_OfGraph]()

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Raise ``InputError`` if the wrapped sampler cannot sample the data set."""
        self.sampler.check_data(data)

    @property
    def num_hops(self) -> int:
        """Number of hops of the wrapped sampler."""
        return self.sampler.num_hops

    def prepare(self, graph: SomeGraph, seeds: Array) -> LinkSeeds[SomeGraph, SomeBatch]:
        """Return a copy with the tables for drawing negatives, and with the wrapped sampler prepared."""
        prepared = copy(self)
        prepared.sampler = self.sampler.prepare(graph, seeds)
        prepared._once = OncePerGraph()  # a new cache, which is pickled for the workers; the cache of ``self`` may hold another graph
        prepared._once.get(graph, prepared._of_graph)
        return prepared

    def columns(self, graph: SomeGraph) -> list[RelationColumns]:
        """Return the columns of each relation of the links."""
        found = columns_of(graph)
        return [found[relation] for relation in self.relations]

    def reverses_in(self, graph: SomeGraph) -> tuple[Relation | None, ...]:
        """Return, for each relation, the relation of the excluded reverse edges v -> u, or None."""
        return (ONLY if self.exclude == "reverse" else None,)

    def bounds(self, columns: RelationColumns) -> tuple[int, int]:
        """Return the range [begin, end) of nodes that may be destinations of links."""
        return 0, columns.num_nodes

    def items(self, graph: SomeGraph, seeds: Array) -> Array:
        """Return the indices (U,) of an epoch's links: the links ``edges``, or all edges into ``seeds``, column by column.

        Raises:
            InputError: an edge is outside the graph, or no edge leads into ``seeds``.
        """
        parts, begin = [], 0
        for columns in self.columns(graph):
            if isinstance(self.edges, str):
                places = np.arange(columns.num_edges)
            else:
                places = _edges_into(columns, seeds) if self.edges is None else _places_of(columns, self.edges)
            parts.append(begin + places if begin else places)
            begin += columns.num_edges
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def sample_on_cpu(self, graph: SomeGraph, seeds: Array, address: Address, workspace: Workspace) -> SomeBatch:
        """Sample one mini-batch for the links with the indices ``seeds`` (P,); see ``Sampler.sample_on_cpu``."""
        asked = self.asked(graph, seeds, address, workspace)
        options: dict[str, Any] = {} if asked.times is None else {"times": asked.times}
        sampled = self.sampler.sample(graph, asked.seeds, **address._asdict(), workspace=workspace, **options)
        return self.with_links(graph, sampled, asked, workspace)

    @property
    def hop_sampler(self) -> HopSampler[SomeGraph, SomeBatch] | None:
        """The ``hop_sampler`` of the wrapped sampler; None for "filtered" negatives, or if a subclass overrides ``sample_on_cpu``."""
        is_own = type(self).sample_on_cpu is not LinkSeeds.sample_on_cpu
        return None if is_own or self.negatives == "filtered" else self.sampler.hop_sampler

    def links_of(self, graph: SomeGraph, seeds: Array) -> dict[Relation, Array]:
        """Return, by relation, the CSC positions of the links with the indices ``seeds`` (P,), after checking these indices."""
        _, begins, _ = self._once.get(graph, self._of_graph)
        seeds = check_ids(seeds, begins[-1], "edge", "edge", "edges")
        which = np.searchsorted(begins, seeds, side="right") - 1
        return {relation: seeds[which == place] - begins[place] for place, relation in enumerate(self.relations)}

    def asked(self, graph: SomeGraph, seeds: Array, address: Address, workspace: Workspace, looked: Looked | None = None) -> BatchLinks:
        """Draw the negatives of the links with the indices ``seeds`` (P,). Return the distinct ends and the pairs, in workspace arrays.

        If ``looked`` is given, sources and times of the links are taken from it instead of from the graph.
        """
        all_columns, (distributions, begins, dtype) = self.columns(graph), self._once.get(graph, self._of_graph)
        seeds = check_ids(seeds, begins[-1], "edge", "edge", "edges")
        number = len(seeds)
        count = 0 if self.negatives == "in_batch" and number == 1 else self.num_negatives
        total = number * (1 + count)
        pairs, labels = workspace.array("link_pairs", 2 * total, dtype).reshape(2, total), workspace.array("link_labels", total, np.float32)
        labels[:number], labels[number:] = 1, 0
        extra = {"pairs": pairs, "labels": labels}
        links: list[Any] = [slice(number)]
        rows: list[Array] = []

        def write(place: int, numbers: Array, out: Array) -> None:
            """Write the ends of the links with indices ``numbers`` (n,), of one relation, and then their negatives, into ``out`` (2, n + n k)."""
            columns, places, own = all_columns[place], numbers - begins[place] if place else numbers, out[:, : len(numbers)]
            if looked:
                own[0], own[1] = looked["indices"][self.relations[place]], np.searchsorted(columns.indptr, places, side="right") - 1
            else:
                kernels.end_points(columns.indptr, columns.indices, places, own[0], own[1])
            distributions[place].draw(columns, numbers, own, out[:, len(numbers) :], count, address, workspace)

        if len(all_columns) == 1:
            write(0, seeds, pairs)
        else:
            extra["relations"] = relations = workspace.array("link_relations", total, np.int32)
            relations[:number] = np.searchsorted(begins, seeds, side="right") - 1
            relations[number:].reshape(number, count)[:] = relations[:number, None]
            links = [np.flatnonzero(relations[:number] == place) for place in range(len(all_columns))]
            for place, own in enumerate(links):
                out = np.empty((2, len(own) * (1 + count)), dtype)
                write(place, seeds[own], out)
                rows.append(np.concatenate([own, (number + own[:, None] * count + np.arange(count)).reshape(-1)]))
                pairs[:, rows[-1]] = out
        if self.with_edge_ids:
            extra["edge_ids"] = all_columns[0].ids_of(seeds)
        if self.is_timed:
            times = looked["times"][self.relations[0]] if looked else None
            ends, bounds, extra["pairs"] = self._ends_at_times(all_columns[0], seeds, pairs, times)
            return BatchLinks(_join_seeds(graph, ends), bounds, extra, [])
        ends = _distinct_ends({kind: number for kind, (number, _) in types_of(graph).items()}, self.relations, pairs, rows, workspace)
        positives = [] if self.exclude == "none" else [pairs[:, own] for own in links]
        return BatchLinks(_join_seeds(graph, ends), None, extra, positives)

    def with_links(self, graph: SomeGraph, sampled: SomeBatch, asked: BatchLinks, workspace: Workspace, **changes: Any) -> SomeBatch:
        """Return the batch of the wrapped sampler with the pairs and ``changes`` of further fields, and without the excluded edges."""
        changes["extra"] = sampled.extra | asked.extra
        if not asked.positives:
            return replace(sampled, **changes)
        return sampled.with_structure(sampled.nodes, self._drop_excluded(graph, sampled, asked.positives, workspace), **changes)

    def dropped(self, graph: SomeGraph, positives: Sequence[Array], seed_counts: Mapping[str, int]) -> dict[Relation, Array]:
        """Return the excluded edges by relation, (D,) int64 ``source * B + destination`` in local ids, ascending.

        ``positives`` are (2, P) local ids for each relation. B is the number of seeds of the destination type.
        """
        found: dict[Relation, list[Array]] = {}
        for relation, reverse, own in zip(self.relations, self.reverses_in(graph), positives, strict=True):
            src, dst = own.astype(np.int64)
            found.setdefault(relation, []).append(src * seed_counts[relation[2]] + dst)
            if reverse is not None:
                found.setdefault(reverse, []).append(dst * seed_counts[reverse[2]] + src)
        dropped = {relation: np.concatenate(parts) for relation, parts in found.items()}
        for edges in dropped.values():
            edges.sort()
        return dropped

    def _drop_excluded(
        self, graph: SomeGraph, batch: SomeBatch, positives: Sequence[Array], workspace: Workspace
    ) -> list[dict[Relation, Block]]:
        """Return the hops without the excluded edges, in the memory of the given blocks.

        A node of the graph may occur several times in the batch, for instance with ``ShadowSampler``. Only the first occurrence is a seed, but excluded edges
        of all occurrences are dropped.
        """
        seed_counts, node_ids = batch.num_seeds_by_type(), batch.nodes
        dropped = self.dropped(graph, positives, seed_counts)
        seed_of: dict[str, Array] = {}
        for kind in {kind for source, _, destination in dropped for kind in (source, destination)}:
            nodes, num_seeds = node_ids[kind], seed_counts[kind]
            seed_of[kind] = own = workspace.array(f"link_seed_of.{kind}", len(nodes), np.int32)
            if self.distinct_nodes:
                own[:num_seeds], own[num_seeds:] = np.arange(num_seeds, dtype=np.int32), num_seeds
            else:
                workspace.table.start(types_of(graph)[kind][0], num_seeds)
                workspace.table.enter(nodes, num_seeds)
                kernels.find_seeds(nodes, num_seeds, workspace.table.view(), own)
        hops = [dict(hop) for hop in batch.own_hops]
        for hop in hops:
            for (source, name, destination), edges in dropped.items():
                block = hop[source, name, destination]
                arrays = block.indptr, block.indices, block.edge_ids, _NO_WEIGHTS if block.weights is None else block.weights
                ends = seed_of[source], seed_of[destination], seed_counts[source], seed_counts[destination]
                hop[source, name, destination] = block.beginning(block.num_dst, block.num_src, kernels.drop_edges(*arrays, *ends, edges))
        return hops

    def _ends_at_times(
        self, columns: RelationColumns, places: Array, pairs: Array, times: Array | None
    ) -> tuple[list[tuple[str, Array]], Array, Array]:
        """Return the sources of the links and the destinations of all pairs with their types, their times, and the pairs as local ids.

        ``times`` (P,) are the times of the edges at the CSC positions ``places``; if None, they are read from the graph.
        """
        source, _, destination = self.relations[0]
        if columns.times is None:
            what = "the graph" if self.relations[0] == ONLY else relation_name(self.relations[0])
            remedy = "give them to Graph.from_edges or HeteroGraph.from_edges, or use NeighborSampler or HeteroSampler"
            raise InputError(f"{what} has no times: links are sampled at the times of their edges; {remedy}")
        number, total = len(places), pairs.shape[1]
        link_of = np.r_[np.arange(number), np.repeat(np.arange(number), total // number - 1)]
        bounds = (columns.times[places] if times is None else times) - (0 if self.exclude == "none" else 1)
        first = number if source == destination else 0
        local = np.stack([link_of, first + np.arange(total)]).astype(pairs.dtype)
        return [(source, pairs[0, :number]), (destination, pairs[1])], np.concatenate([bounds, bounds[link_of]]), local

    def _of_graph(self, graph: SomeGraph) -> _OfGraph:
        distributions, begins, sizes = list[Negatives](), [0], {kind: number for kind, (number, _) in types_of(graph).items()}
        for (source, _, destination), columns in zip(self.relations, self.columns(graph), strict=True):
            bounds, is_sorted = self.bounds(columns), False
            if self.negatives == "filtered":
                is_sorted = columns.is_sorted if isinstance(columns, Graph) else bool(columns_sorted(columns.indptr, columns.indices))
            tables = tables_by_degree(columns, bounds) if self.negatives == "degree" else None
            distributions.append(Negatives(self.negatives, bounds, tables, is_sorted, source == destination))
            begins.append(begins[-1] + columns.num_edges)
        return _OfGraph(distributions, begins, id_dtype(max(sizes[kind] for relation in self.relations for kind in relation[::2])))


def tables_by_degree(columns: RelationColumns, bounds: tuple[int, int]) -> AliasTables:
    """Return alias tables for the nodes [begin, end), by their in-degrees to the power 3/4.

    Raises:
        InputError: no edge leads to these nodes.
    """
    begin, end = bounds
    if columns.indptr[begin] == columns.indptr[end]:
        raise InputError(f'negatives is "degree": no edge leads to the nodes [{begin}, {end}), so all degrees are 0; use "uniform"')
    root = np.sqrt(np.diff(columns.indptr[begin : end + 1]))
    # Square roots are correctly rounded on every machine; a power need not be.
    return tables_of(np.array([0, end - begin]), root * np.sqrt(root))


def distinct_ends(num_nodes: int, ids: Array, workspace: Workspace, name: str = "link_nodes") -> Array:
    """Return the distinct nodes of ``ids`` in order of first appearance, and turn ``ids`` into local ids in place."""
    nodes = workspace.array(name, ids.size + 1, ids.dtype)
    workspace.table.start(num_nodes, min(ids.size, num_nodes))
    return nodes[: relabel(ids.reshape(-1), 0, ids.size, workspace.table.view(), nodes, 0)]


def _distinct_ends(
    num_nodes: Mapping[str, int], relations: Sequence[Relation], pairs: Array, rows: Sequence[Array], workspace: Workspace
) -> list[tuple[str, Array]]:
    """Return the distinct ends of each node type, and turn ``pairs`` into local ids in place.

    With several relations, ``rows`` has for each relation the positions of its pairs in ``pairs``.
    """
    if len(relations) == 1:
        source, _, destination = relations[0]
        sides = [(source, pairs)] if source == destination else [(source, pairs[0]), (destination, pairs[1])]
        return [(kind, distinct_ends(num_nodes[kind], ids, workspace, f"link_nodes.{kind}")) for kind, ids in sides]
    of_kind: dict[str, list[tuple[int, Array]]] = {}
    for (source, _, destination), own in zip(relations, rows, strict=True):
        for kind, side in ((source, 0), (destination, 1)):
            of_kind.setdefault(kind, []).append((side, own))
    ends = []
    for kind, parts in of_kind.items():
        ids = np.concatenate([pairs[side, own] for side, own in parts])
        ends.append((kind, distinct_ends(num_nodes[kind], ids, workspace, f"link_nodes.{kind}")))
        for (side, own), local in zip(parts, np.split(ids, np.cumsum([len(own) for _, own in parts])[:-1]), strict=True):
            pairs[side, own] = local
    return ends


def _places_of(columns: RelationColumns, edges: Array) -> Array:
    """Return the CSC positions (N,) of the edges with the ids ``edges`` (N,), which are checked."""
    number = columns.num_edges if columns.edge_ids is None else int(columns.edge_ids.max(initial=-1)) + 1
    return columns.csc_positions(check_ids(edges, number, "edge", "edge", "edges"))


def _edges_into(columns: RelationColumns, nodes: Array) -> Array:
    """Return the CSC positions of all edges into ``nodes`` (N,), column by column.

    Raises:
        InputError: no edge leads into ``nodes``.
    """
    begins = columns.indptr[nodes].astype(np.int64)
    degrees = (columns.indptr[nodes + 1] - columns.indptr[nodes]).astype(np.int64)
    if degrees.sum() == 0:
        raise InputError(
            f"no edge leads into any of the {len(nodes):,} nodes of the split: there is no link to learn; choose another split"
        )
    return np.repeat(begins - (np.cumsum(degrees) - degrees), degrees) + np.arange(degrees.sum())
