"""Sampling of typed edges that does not look ahead: a tree for each seed, and only edges that are not later than it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as changed
from functools import partial
from typing import NamedTuple

import numpy as np

from hoptrain.engine import Address, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.nodewise import temporal as kernels
from hoptrain.kernels.cpu.nodewise.neighbor import Rule
from hoptrain.kernels.shared.draws import fanout_code
from hoptrain.kernels.shared.philox import MAX_DRAWS
from hoptrain.kernels.shared.temporal import TREE_SHIFT
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.nodewise.hetero_hops import Fanouts, HeteroFanoutSampler, Step, TypedHops, drawn_block
from hoptrain.samplers.nodewise.temporal import Strategy, check_strategy, check_trees, checked_times, in_order_of_time
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.hop import most_edges, scratch_for
from hoptrain.samplers.scratch.once import OncePerGraph
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.typed import MOST_HOPS, TypedSeeds


class OneTimed(NamedTuple):
    """What of a ``HeteroTemporalSampler`` draws along one relation, as a ``TemporalSampler`` would."""

    fanouts: tuple[int | float, ...]
    replace: bool
    is_recent: bool

    def rule(self, hop: int) -> kernels.TimedRule:
        """How a hop takes edges."""
        return kernels.TimedRule(fanout_code(self.fanouts[hop]), self.replace, self.is_recent)


class HeteroTemporalSampler(HeteroFanoutSampler):
    """For every hop and relation, up to ``fanout`` in-edges of every vertex found on the hop before, none of them later than the seed's time.

    The law is ``TemporalSampler``'s, relation by relation: every seed has a time, and a tree of its own, whose edges of all relations and hops it
    bounds (as in PyG's ``NeighborLoader`` with ``disjoint=True`` on ``HeteroData``). Edges of a relation without times are all admitted, and drawn
    uniformly whatever the strategy; a graph without any times is refused. Seeds need not be distinct.

    ``sample`` takes ``times`` (B,), integers, the time of each seed in the order of the seeds, which is that of ``HeteroGraph.numbered`` where they
    are of several types. Blocks are nested. ``extra`` holds for each type t ``trees.t`` (S_t,) int32, the seed (0 to B - 1) whose tree each node is in,
    and ``seed_times`` (B,) int64. Draws have the addresses of ``HeteroSampler``, with a node's local id in place of the vertex.
    """

    distinct_nodes = False
    expand = "new"

    def __init__(
        self,
        fanouts: Fanouts,
        seed_type: str | None = None,
        seed_times: Mapping[str, Sequence[int] | Array] | None = None,
        strategy: Strategy = "uniform",
        replace: bool = False,
        *,
        default: Sequence[int | float] | None = None,
    ) -> None:
        """State the hops and the seeds' times.

        Args:
            fanouts: as of ``HeteroSampler``; -1 takes all that the bound admits.
            seed_type: the type of vertices that seeds are of; None for several.
            seed_times: (V_t,) integers for the types t that have seeds: for each vertex the time at which it is a seed, in the unit of the edges' times.
                Without it ``sample`` has to be given ``times``.
            strategy: "uniform", or "recent" for the latest edges.
            replace: draw with replacement; with uniform only.
            default: the fanouts of the relations that ``fanouts`` does not name.

        Raises:
            InputError: as ``HeteroSampler``; an unknown strategy, options that exclude each other, times that are no integers.
        """
        super().__init__(fanouts, seed_type, default, MAX_DRAWS)
        check_strategy(strategy, replace)
        self.strategy = strategy
        self.replace: bool = replace
        self.repeats_edges: bool = replace
        if seed_times is not None and not isinstance(seed_times, Mapping):
            raise InputError(
                f"seed_times are a {type(seed_times).__name__}: they are by type, a time for each of its vertices; give a dictionary"
            )
        self.seed_times: dict[str, Array] = {kind: checked_times(times, None, "seed_times") for kind, times in (seed_times or {}).items()}
        self._ordered = OncePerGraph[dict[Relation, kernels.TimedColumns]]()

    def __repr__(self) -> str:
        fanouts = self._shown_fanouts()
        return f"HeteroTemporalSampler(fanouts={fanouts}, seed_type={self.seed_type!r}, strategy={self.strategy!r}, replace={self.replace})"

    def prepare(self, graph: HeteroGraph, seeds: Array) -> HeteroTemporalSampler:
        """As it is. The first batch puts every column in the order of time: 12 bytes an edge (16 from 2**31 edges of a relation on).

        Raises:
            InputError: fanouts that do not fit the graph's relations, or no relation has times.
        """
        self.along(graph)
        return self

    def along(self, graph: HeteroGraph) -> dict[Relation, OneTimed]:
        """What draws along each of the graph's relations; edges without times are drawn uniformly.

        Raises:
            InputError: as ``prepare``.
        """
        self.fanouts_of(graph)
        if all(columns.times is None for columns in graph.relations.values()):
            raise InputError(
                "no relation of the graph has times, so that nothing bounds what HeteroTemporalSampler draws: give them to HeteroGraph, or name "
                "them by time_attr of from_pyg; or take HeteroSampler"
            )
        is_recent, common = self.strategy == "recent", self.fanouts.get("", ())
        return {
            relation: OneTimed(self.fanouts.get(relation_name(relation), common), self.replace, is_recent and columns.times is not None)
            for relation, columns in graph.relations.items()
        }

    def sample_on_cpu(
        self,
        graph: HeteroGraph,
        seeds: Array | Mapping[str, Array],
        address: Address,
        workspace: Workspace,
        times: Sequence[int] | Array | None = None,
    ) -> HeteroMiniBatch:
        """Sample one mini-batch at ``times`` (B,), or those that ``seed_times`` says; see ``Sampler.sample_on_cpu``."""
        along, columns = self.along(graph), self._ordered.get(graph, _in_order_of_time)
        asked, bounds = self.seeds_and_bounds(graph, seeds, times)
        work = TypedHops(graph, workspace, _roots(graph, asked, workspace), nested=True)

        def draw(step: Step) -> Block:
            rule = along[step.relation].rule(step.hop)
            return _draw(work, step, columns[step.relation], bounds, rule, address.at_hop(step.number * MOST_HOPS + step.hop))

        hops = work.run(self.num_hops, partial(map, draw))
        hops[-1] = {relation: _narrowed(workspace, number, graph, relation, hops[-1]) for number, relation in enumerate(graph.relations)}
        nodes, trees = _nodes_and_trees(work)
        return changed(work.batch(hops, asked), node_ids=nodes, extra={**trees, "seed_times": bounds})

    def seeds_and_bounds(
        self, graph: HeteroGraph, seeds: Array | Mapping[str, Array], times: Sequence[int] | Array | None
    ) -> tuple[TypedSeeds, Array]:
        """The seeds, checked, and the times (B,) int64 that bound their edges: ``times``, or what ``seed_times`` says."""
        asked = self.seeds_of(graph, seeds)
        check_trees(asked.number)
        return asked, self._bounds(graph, asked, times)

    def _bounds(self, graph: HeteroGraph, seeds: TypedSeeds, times: Sequence[int] | Array | None) -> Array:
        """(B,) int64."""
        if times is not None:
            return checked_times(times, seeds.number, "times")
        bounds = np.empty(seeds.number, np.int64)
        for kind, (ids, places) in seeds.by_type.items():
            if kind not in self.seed_times:
                raise InputError(
                    f"seeds of {kind!r} have no times: give HeteroTemporalSampler seed_times of it, or sample times; "
                    "an edge later than its seed is not drawn"
                )
            bounds[places] = checked_times(self.seed_times[kind], graph.num_nodes[kind], "seed_times")[ids]
        return bounds


def _in_order_of_time(graph: HeteroGraph) -> dict[Relation, kernels.TimedColumns]:
    return {
        relation: in_order_of_time(columns) if columns.times is not None else _timeless(columns)
        for relation, columns in graph.relations.items()
    }


def _timeless(columns: RelationColumns) -> kernels.TimedColumns:
    """In the order of places, earlier than any bound."""
    times = np.full(columns.num_edges, np.iinfo(np.int64).min)
    return kernels.TimedColumns(columns.indptr, columns.indices, times, np.arange(columns.num_edges, dtype=id_dtype(columns.num_edges)))


def _roots(graph: HeteroGraph, seeds: TypedSeeds, workspace: Workspace) -> dict[str, Frontier]:
    """The keys of each type's seeds; they are over all keys there are, so that their tables are hash tables."""
    frontiers = {}
    for kind in graph.num_nodes:
        ids, places = seeds.by_type.get(kind, (np.zeros(0, np.int64),) * 2)
        frontiers[kind] = Frontier(workspace, workspace.table_of(kind), 1 << 63, np.int64, f"keys.{kind}")
        frontiers[kind].enter_seeds((places.astype(np.int64) << TREE_SHIFT) | ids.astype(np.int64))
    return frontiers


def _draw(work: TypedHops, step: Step, columns: kernels.TimedColumns, bounds: Array, rule: kernels.TimedRule, address: HopAddress) -> Block:
    """The edges of a step; sources are keys until they have local ids, so they are int64."""
    sources, destinations = work.frontiers[step.relation[0]], work.frontiers[step.relation[2]]
    first, last, total = step.first, step.last, step.num_edges
    scratch = scratch_for(work.workspace, Rule(rule.fanout, rule.replace, False))

    def count() -> int:
        counted: int = kernels.count_edges(columns, destinations.nodes(), first, last, bounds, rule, scratch)
        return counted

    most = most_edges(last - first, rule.fanout, count)
    edges = work.room(step, most, "sources", np.int64)
    if most:
        nodes, before = sources.make_room(most), sources.num_nodes  # the destinations are perhaps of the same type, and moved
        known, table = destinations.nodes(), sources.table.view()
        sources.num_nodes, total = kernels.sample_hop(
            columns, known, nodes, before, first, last, bounds, rule, address, table, scratch, edges, total
        )
    return drawn_block(edges, total)


def _narrowed(workspace: Workspace, number: int, graph: HeteroGraph, relation: Relation, hop: dict[Relation, Block]) -> Block:
    """A relation's block with sources of the dtype of ids."""
    block = hop[relation]
    indices = workspace.array(f"indices.{number}", block.num_edges, graph.relations[relation].indices.dtype)
    np.copyto(indices, block.indices, casting="same_kind")
    return changed(block, indices=indices)


def _nodes_and_trees(work: TypedHops) -> tuple[dict[str, Array], dict[str, Array]]:
    """The vertices of each type's nodes; and their trees, by the names of extras."""
    nodes, trees = {}, {}
    for kind, frontier in work.frontiers.items():
        nodes[kind] = work.workspace.array(f"nodes.{kind}", frontier.num_nodes, id_dtype(work.graph.num_nodes[kind]))
        trees[f"trees.{kind}"] = work.workspace.array(f"trees.{kind}", frontier.num_nodes, np.int32)
        kernels.split_keys(frontier.nodes(), nodes[kind], trees[f"trees.{kind}"])
    return nodes, trees
