"""Neighbour sampling that does not look ahead: a tree for each seed, and only edges that are not later than it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from hoptrain.engine import Address, Graph, HeteroGraph, InputError
from hoptrain.engine.arrays import Array, id_dtype, is_integer
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.files.untrusted import map_npy
from hoptrain.engine.hetero_graph import Relation
from hoptrain.kernels.cpu.nodewise import temporal as kernels
from hoptrain.kernels.cpu.nodewise.neighbor import Rule
from hoptrain.kernels.shared.draws import fanout_code
from hoptrain.kernels.shared.philox import MAX_DRAWS
from hoptrain.samplers.base import FanoutSampler, HopSampler
from hoptrain.samplers.batch.minibatch import ONLY, HeteroMiniBatch, MiniBatch
from hoptrain.samplers.buffers.hop import most_edges, scratch_for
from hoptrain.samplers.buffers.once import OncePerGraph
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_fanouts, check_seeds
from hoptrain.samplers.hetero import Fanouts, HeteroFanoutSampler
from hoptrain.samplers.hops import Drawn, EdgeReader, GrowingBatch, Request, SeedsByType, Step, columns_of, seeds_of_one_type, types_of

Strategy = Literal["uniform", "recent"]
STRATEGIES = ("uniform", "recent")


def check_strategy(strategy: str, replace: bool) -> None:
    """Refuse an unknown one, or one that does not go with replacement."""
    if strategy not in STRATEGIES:
        raise InputError(f'strategy is {strategy!r}: edges are drawn "uniform" or are the most "recent" ones; choose one')
    if replace and strategy == "recent":
        raise InputError('replace=True with strategy="recent": the latest edges are taken once each; leave replace out')


class TimedDraws(NamedTuple):
    """Draws along one relation that are bounded by time; they are ``hoptrain.samplers.hops.Draws``.

    Attributes:
        fanouts: one a hop.
        replace: whether they are with replacement.
        is_recent: whether the latest edges are taken.
        number: of the relation in the addresses of random numbers.
        in_order: makes the columns in the order of time, once for a graph.
        monotone: whether an edge bounds those behind it, so that nodes are paths.
    """

    fanouts: tuple[int | float, ...]
    replace: bool
    is_recent: bool
    number: int
    in_order: Callable[[], kernels.TimedColumns]
    monotone: bool = False

    def rule(self, hop: int) -> kernels.TimedRule:
        """Return how a hop takes edges."""
        return kernels.TimedRule(fanout_code(self.fanouts[hop]), self.replace, self.is_recent)

    def sample(self, batch: GrowingBatch, steps: Sequence[Step[TimedDraws]]) -> list[Drawn]:
        """Draw the edges of all steps of a hop, one relation after the other. Sources were keys, so they are int64."""
        return [step.draws._sample(batch, step) for step in steps]

    def _sample(self, batch: GrowingBatch, step: Step[TimedDraws]) -> Drawn:
        columns, rule, first, last, total = self.in_order(), self.rule(step.hop), step.first, step.last, step.num_edges
        sources, destinations = batch.frontiers[step.relation[0]], batch.frontiers[step.relation[2]]
        scratch = scratch_for(batch.workspace, Rule(rule.fanout, rule.replace, False))
        bounds, trees = _of_paths(batch, 0) if self.monotone else (batch.times, None)
        most = most_edges(
            last - first, rule.fanout, lambda: kernels.count_edges(columns, destinations.nodes(), first, last, bounds, rule, scratch)
        )
        edges = batch.buffers(step, most, np.int64)
        if most and self.monotone:
            bounds, trees = _of_paths(batch, most)
            drawn = columns, sources.nodes(most), last, first, last, bounds, trees, rule, batch.at(step), scratch, edges, total
            sources.num_nodes, total = kernels.sample_path_hop(*drawn)
        elif most:
            nodes, before = sources.make_room(most), sources.num_nodes  # the destinations are perhaps of the same type, and moved
            known, table = destinations.nodes(), sources.table.view()
            sources.num_nodes, total = kernels.sample_hop(
                columns, known, nodes, before, first, last, bounds, rule, batch.at(step), table, scratch, edges, total
            )
        return Drawn(edges.indptr, edges.edge_ids[:total], edges.indices[:total])

    def arrays(self, columns: RelationColumns) -> dict[str, Array]:
        """Return the sources, and the times of edges that have some."""
        times = {} if columns.times is None else {"times": columns.times}
        return {"indices": columns.indices, **times}

    def read(self, files: EdgeReader, hop: int, requests: Sequence[Request]) -> list[Drawn]:
        """Draw from the times of whole columns, which are read from files."""
        return files.by_time(self.rule(hop), requests)


def _of_paths(batch: GrowingBatch, most: int) -> tuple[Array, Array]:
    """Return the bounds (N + most,) int64 and the trees (N + most,) int32 of the nodes, which are paths: those of N, with room for more."""
    frontier, array = batch.frontiers[""], batch.workspace.array
    number = frontier.num_nodes
    if number + most > kernels.MAX_TREES:
        raise InputError(f"{number + most:,} paths in a batch: there are at most {kernels.MAX_TREES:,}; use smaller batches or fanouts")
    bounds, trees = array("bounds", number + most, np.int64, keep=number), array("path_trees", number + most, np.int32, keep=number)
    if not batch.hops:
        bounds[:number], trees[:number] = batch.times, np.arange(number)
    return bounds, trees


def _split(graph: Graph | HeteroGraph, batch: GrowingBatch, keys: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the nodes of each type, and the trees that they are in with the times of these, of a batch's ``keys``."""
    nodes, extra = {}, {}
    for kind, (_, dtype) in types_of(graph).items():
        trees = f"trees.{kind}" if kind else "trees"
        nodes[kind] = batch.workspace.array(f"nodes.{kind}", len(keys[kind]), dtype)
        extra[trees] = batch.workspace.array(trees, len(keys[kind]), np.int32)
        kernels.split_keys(keys[kind], nodes[kind], extra[trees])
    if batch.times is not None:
        extra["seed_times"] = batch.times
    return nodes, extra


class TemporalSampler(FanoutSampler):
    """For every hop, up to ``fanout`` in-edges of every node found on the hop before, none of them later than the seed's time.

    Every seed has a time, and a tree of its own: its time bounds all edges of the tree, of all hops (as in PyG's ``NeighborLoader`` with
    ``disjoint=True``). So a node of the batch is a node in the tree of one seed, and ``node_ids`` names a node once for each tree that it
    is in. Seeds need not be distinct: the same node may be asked for at several times. ``sample`` takes ``times`` (B,), integers,
    the time of each of at most 2**23 seeds; by default they are what ``seed_times`` says.

    Of the edges into a node that are not later than the bound, ``uniform`` takes min(number, ``fanout``) distinct ones, every subset equally
    likely, or ``fanout`` independent ones with ``replace``: the plain mean over them estimates the mean over all that the bound admits.
    ``recent`` takes the latest ones, among equal times those with larger edge ids; no random number is drawn, and nothing is estimated. A
    node without an admitted edge gives none. Edges that are not drawn stand in the order of time.

    With ``monotone`` times increase along every path to a seed: each edge is earlier than the one that it leads to, so that a message on its way
    meets no edge that was there before it (Xu, Ruan, Korpeoglu, Kumar, Achan 2020, "Inductive representation learning on temporal graphs"). Then a node
    is a path: every edge that is drawn leads to one of its own.

    Blocks are nested: a node is expanded once. ``extra`` holds ``trees`` (S,) int32, the seed (0 to B - 1) whose tree each node is in, and
    ``seed_times`` (B,) int64. Exact evaluation by ``NodeClassifier`` takes all edges of the graph whatever their times.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import Graph, TemporalSampler
        >>> graph = Graph.from_edges([1, 2, 3], [0, 0, 0], 4, times=[10, 20, 30])
        >>> sampler = TemporalSampler([-1])
        >>> for time in (5, 20, 99):
        ...     print(time, sampler.sample(graph, [0], times=[time]).node_ids)
        5 [0]
        20 [0 1 2]
        99 [0 1 2 3]
    """

    distinct_nodes = False
    expand = "new"
    is_timed = True

    def __init__(
        self,
        fanouts: Sequence[int | float],
        seed_times: str | Sequence[int] | Array | None = None,
        strategy: Strategy = "uniform",
        replace: bool = False,
        monotone: bool = False,
    ) -> None:
        """State the hops and the seeds' times.

        Args:
            fanouts: edges per node, one number a hop, from the seeds outward; -1 takes all that the bound admits, a float above 0
                and at most 1.0 is a share of these, rounded up.
            seed_times: (V,) integers, for each node the time at which it is a seed, in the unit of ``graph.times``; or the path of a .npy file with
                them. Without it ``sample`` has to be given ``times``.
            strategy: uniform or recent.
            replace: draw with replacement; with uniform only.
            monotone: whether an edge bounds those behind it; on the CPU only.

        Raises:
            InputError: no hop, a fanout that is neither positive nor -1 nor a share, an unknown strategy, options that exclude each other, times that
                cannot be read.
        """
        self.fanouts: tuple[int | float, ...] = check_fanouts(fanouts, MAX_DRAWS)
        check_strategy(strategy, replace)
        self.strategy = strategy
        self.replace = replace
        self.monotone = monotone
        self.seed_times: Array | None = None if seed_times is None else _read_times(seed_times)
        self._ordered = OncePerGraph[dict[Relation, kernels.TimedColumns]]()

    def prepare(self, graph: Graph, seeds: Array) -> TemporalSampler:
        """As it is. The first batch puts every column in the order of time: 12 bytes an edge (16 from 2**31 edges on).

        Raises:
            InputError: the graph has no times, or not one for each node is given.
        """
        self._check_times(graph)
        if self.seed_times is not None:
            self._times_of(graph, seeds)
        return self

    def roots(self, graph: Graph, seeds: Array, times: Array | None = None) -> tuple[SeedsByType, Array]:
        """Return the seeds, checked, and the times that bound their edges: ``times`` (B,), or what ``seed_times`` says."""
        seeds = check_seeds(graph, seeds)
        check_trees(len(seeds))
        bounds = self._times_of(graph, seeds) if times is None else checked_times(times, len(seeds), "times")
        return seeds_of_one_type("", seeds), bounds

    def along(self, graph: Graph) -> Mapping[Relation, TimedDraws]:
        """Return the draws of the only relation.

        Raises:
            InputError: the graph has no times.
        """
        self._check_times(graph)
        return {ONLY: TimedDraws(self.fanouts, self.replace, self.strategy == "recent", 0, partial(self.columns, graph), self.monotone)}

    @property
    def hop_sampler(self) -> HopSampler[Graph, MiniBatch] | None:
        """This sampler; None with ``monotone``, where nodes are paths, and for a subclass that samples in a way of its own."""
        return None if self.monotone or type(self).sample_on_cpu is not TemporalSampler.sample_on_cpu else self

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace, times: Array | None = None) -> MiniBatch:
        """Sample one mini-batch at ``times`` (B,), or those that ``seed_times`` says; see ``Sampler.sample_on_cpu``."""
        return self.grown(graph, self.along(graph), self.roots(graph, seeds, times), address, workspace)

    def finished(self, graph: Graph, batch: GrowingBatch, nodes: Mapping[str, Array], extra: dict[str, Array] | None = None) -> MiniBatch:
        """Return the mini-batch of a batch that has all hops, whose ``nodes`` are keys."""
        nodes, own = _split(graph, batch, nodes)
        if self.monotone:
            own["trees"] = _of_paths(batch, 0)[1]
        return super().finished(graph, batch, nodes, own | (extra or {}))

    def _times_of(self, graph: Graph, seeds: Array) -> Array:
        if self.seed_times is None:
            raise InputError(
                "the seeds have no times: give TemporalSampler seed_times, or sample times; an edge later than its seed is not drawn"
            )
        times: Array = checked_times(self.seed_times, graph.num_nodes, "seed_times")[seeds]
        return times

    def _check_times(self, graph: Graph) -> None:
        if graph.times is None:
            raise InputError("the graph has no times: give them to Graph or Graph.from_edges, or take NeighborSampler")

    def columns(self, graph: Graph) -> kernels.TimedColumns:
        """Return the graph's columns in the order of time. They are made once for a graph, and travel to the workers with the sampler."""
        self._check_times(graph)
        return self._ordered.get(graph, _in_order_of_time)[ONLY]


class HeteroTemporalSampler(HeteroFanoutSampler):
    """For every hop and relation, up to ``fanout`` in-edges of every node found on the hop before, none of them later than the seed's time.

    The law is ``TemporalSampler``'s, relation by relation: every seed has a time, and a tree of its own, whose edges of all relations and hops it
    bounds (as in PyG's ``NeighborLoader`` with ``disjoint=True`` on ``HeteroData``). Edges of a relation without times are all admitted, and drawn
    uniformly whatever the strategy; a graph without any times is refused. Seeds need not be distinct.

    ``sample`` takes ``times`` (B,), integers, the time of each seed in the order of the seeds, which is that of ``HeteroGraph.numbered`` where they
    are of several types. Blocks are nested. ``extra`` holds for each type t ``trees.t`` (S_t,) int32, the seed (0 to B - 1) whose tree each node is in,
    and ``seed_times`` (B,) int64. Draws have the addresses of ``HeteroSampler``, with a node's local id in place of the node.
    """

    distinct_nodes = False
    expand = "new"
    is_timed = True

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
            seed_type: the type of nodes that seeds are of; None for several.
            seed_times: (V_t,) integers for the types t that have seeds: for each node the time at which it is a seed, in the unit of the edges' times.
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
                f"seed_times are a {type(seed_times).__name__}: they are by type, a time for each of its nodes; give a dictionary"
            )
        self.seed_times: dict[str, Array] = {kind: checked_times(times, None, "seed_times") for kind, times in (seed_times or {}).items()}
        self._ordered = OncePerGraph[dict[Relation, kernels.TimedColumns]]()

    def __repr__(self) -> str:
        fanouts = self._shown_fanouts()
        return f"HeteroTemporalSampler(fanouts={fanouts}, seed_type={self.seed_type!r}, strategy={self.strategy!r}, replace={self.replace})"

    def along(self, graph: HeteroGraph) -> Mapping[Relation, TimedDraws]:
        """Return the draws of each relation. The first batch puts every column in the order of time: 12 bytes an edge (16 from 2**31 edges of a relation on).

        Raises:
            InputError: fanouts that do not fit the graph's relations, or no relation has times.
        """
        fanouts, columns = self.fanouts_of(graph), graph.relations
        if all(own.times is None for own in columns.values()):
            raise InputError(
                "no relation of the graph has times, so that nothing bounds what HeteroTemporalSampler draws: give them to HeteroGraph, or name "
                "them by time_attr of from_pyg; or take HeteroSampler"
            )
        is_recent = self.strategy == "recent"
        return {
            relation: TimedDraws(
                own, self.replace, is_recent and columns[relation].times is not None, number, partial(self._in_order, graph, relation)
            )
            for number, (relation, own) in enumerate(fanouts.items())
        }

    @property
    def hop_sampler(self) -> HopSampler[HeteroGraph, HeteroMiniBatch] | None:
        """This sampler; None for a subclass that samples in a way of its own."""
        return self if type(self).sample_on_cpu is HeteroTemporalSampler.sample_on_cpu else None

    def sample_on_cpu(
        self,
        graph: HeteroGraph,
        seeds: Array | Mapping[str, Array],
        address: Address,
        workspace: Workspace,
        times: Sequence[int] | Array | None = None,
    ) -> HeteroMiniBatch:
        """Sample one mini-batch at ``times`` (B,), or those that ``seed_times`` says; see ``Sampler.sample_on_cpu``."""
        return self.grown(graph, self.along(graph), self.roots(graph, seeds, times), address, workspace)

    def finished(
        self, graph: HeteroGraph, batch: GrowingBatch, nodes: Mapping[str, Array], extra: dict[str, Array] | None = None
    ) -> HeteroMiniBatch:
        """Return the mini-batch of a batch that has all hops, whose ``nodes`` are keys."""
        nodes, own = _split(graph, batch, nodes)
        return super().finished(graph, batch, nodes, own | (extra or {}))

    def _in_order(self, graph: HeteroGraph, relation: Relation) -> kernels.TimedColumns:
        return self._ordered.get(graph, _in_order_of_time)[relation]

    def roots(
        self, graph: HeteroGraph, seeds: Array | Mapping[str, Array], times: Sequence[int] | Array | None = None
    ) -> tuple[SeedsByType, Array]:
        """Return the seeds, checked, and the times that bound their edges: ``times`` (B,), or what ``seed_times`` says."""
        found = self.seeds_of(graph, seeds)
        check_trees(found.number)
        return found, self._bounds(graph, found, times)

    def _bounds(self, graph: HeteroGraph, seeds: SeedsByType, times: Sequence[int] | Array | None) -> Array:
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


def check_trees(number: int) -> None:
    """Refuse more seeds than there are trees."""
    if number > kernels.MAX_TREES:
        raise InputError(f"{number:,} seeds in a batch: each has a tree, and there are at most {kernels.MAX_TREES:,}; use smaller batches")


def _in_order_of_time(graph: Graph | HeteroGraph) -> dict[Relation, kernels.TimedColumns]:
    """Return the edges of each column in the order of time; edges without times in that of their places, earlier than any bound."""
    return {
        relation: _ordered(columns) if columns.times is not None else _timeless(columns) for relation, columns in columns_of(graph).items()
    }


def _ordered(columns: RelationColumns) -> kernels.TimedColumns:
    by_time, times = np.empty(columns.num_edges, id_dtype(columns.num_edges)), np.empty(columns.num_edges, np.int64)
    kernels.order_by_time(columns.indptr, columns.times, by_time, times)
    return kernels.TimedColumns(columns.indptr, columns.indices, times, by_time)


def _timeless(columns: RelationColumns) -> kernels.TimedColumns:
    times = np.full(columns.num_edges, np.iinfo(np.int64).min)
    return kernels.TimedColumns(columns.indptr, columns.indices, times, np.arange(columns.num_edges, dtype=id_dtype(columns.num_edges)))


def _read_times(times: str | Sequence[int] | Array) -> Array:
    """(V,) int64, from a file or as given."""
    if not isinstance(times, str):
        return checked_times(times, None, "seed_times")
    try:
        array = map_npy(times)
    except (OSError, ValueError) as error:
        raise InputError(
            f"seed_times is {times}: it cannot be read as a .npy file ({error}); give the path of one, made by np.save"
        ) from None
    return checked_times(array, None, "seed_times")


def checked_times(times: Sequence[int] | Array, number: int | None, name: str) -> Array:
    """(number,) int64."""
    array = np.asarray(times)
    if array.ndim != 1 or not is_integer(array.dtype) or array.dtype == np.uint64 or number not in (None, len(array)):
        wanted = "each node" if name == "seed_times" else "each seed"
        raise InputError(f"{name} are {array.dtype} of shape {array.shape}: they are integers up to int64, one for {wanted}; convert them")
    return np.ascontiguousarray(array, np.int64)
