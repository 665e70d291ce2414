"""Temporal neighbour sampling: each seed has a tree of its own, whose edges are not later than the seed's time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from hoptrain.engine import Address, Graph, HeteroGraph, InputError
from hoptrain.engine.arrays import Array, id_dtype, is_integer
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.errors import explain_keywords
from hoptrain.engine.files.untrusted import map_npy
from hoptrain.engine.hetero_graph import Relation
from hoptrain.kernels.cpu.nodewise import temporal as kernels
from hoptrain.kernels.cpu.nodewise.neighbor import DrawOptions
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
    """Raise ``InputError`` if ``strategy`` is unknown, or is "recent" with replacement."""
    if strategy not in STRATEGIES:
        raise InputError(f'strategy is {strategy!r}: it must be "uniform" or "recent"; choose one')
    if replace and strategy == "recent":
        raise InputError('replace=True with strategy="recent": the latest edges are taken once each; leave replace out')


class TimedDraws(NamedTuple):
    """Draws along one relation that are bounded by time; implements ``hoptrain.samplers.hops.Draws``.

    Attributes:
        fanouts: number or share of edges for each hop.
        replace: whether edges are drawn with replacement.
        is_recent: whether the latest edges are taken instead of random ones.
        number: number of the relation in the addresses of random numbers.
        in_order: function that returns the columns sorted by time, computed once for a graph.
        monotone: whether the time of an edge bounds the edges of the next hop, so that a node of the batch is a path.
    """

    fanouts: tuple[int | float, ...]
    replace: bool
    is_recent: bool
    number: int
    in_order: Callable[[], kernels.TimedColumns]
    monotone: bool = False

    def rule(self, hop: int) -> kernels.TimedDrawOptions:
        """Return the options of a hop's draws: the fanout, and whether draws are with replacement or take the latest edges."""
        return kernels.TimedDrawOptions(fanout_code(self.fanouts[hop]), self.replace, self.is_recent)

    def sample(self, batch: GrowingBatch, steps: Sequence[Step[TimedDraws]]) -> list[Drawn]:
        """Draw the edges of all steps of a hop, one relation after the other. Sources are local ids in int64, the dtype of keys."""
        return [step.draws._sample(batch, step) for step in steps]

    def _sample(self, batch: GrowingBatch, step: Step[TimedDraws]) -> Drawn:
        columns, rule, first, last, total = self.in_order(), self.rule(step.hop), step.first, step.last, step.num_edges
        sources, destinations = batch.frontiers[step.relation[0]], batch.frontiers[step.relation[2]]
        scratch = scratch_for(batch.workspace, DrawOptions(rule.fanout, rule.replace, False))
        bounds, trees = _path_arrays(batch, 0) if self.monotone else (batch.times, None)
        most = most_edges(
            last - first, rule.fanout, lambda: kernels.count_edges(columns, destinations.nodes(), first, last, bounds, rule, scratch)
        )
        edges = batch.buffers(step, most, np.int64)
        if most and self.monotone:
            bounds, trees = _path_arrays(batch, most)
            drawn = columns, sources.nodes(most), last, first, last, bounds, trees, rule, batch.at(step), scratch, edges, total
            sources.num_nodes, total = kernels.sample_path_hop(*drawn)
        elif most:
            nodes, before = sources.reserve(most), sources.num_nodes
            # reserve may reallocate, and the destinations may be of the same type: get their nodes only now.
            known, table = destinations.nodes(), sources.table.view()
            sources.num_nodes, total = kernels.sample_hop(
                columns, known, nodes, before, first, last, bounds, rule, batch.at(step), table, scratch, edges, total
            )
        return Drawn(edges.indptr, edges.edge_ids[:total], edges.indices[:total])

    def arrays(self, columns: RelationColumns) -> dict[str, Array]:
        """Return the arrays that the draws read: the sources and, if the relation has times, the times."""
        times = {} if columns.times is None else {"times": columns.times}
        return {"indices": columns.indices, **times}

    def read(self, files: EdgeReader, hop: int, requests: Sequence[Request]) -> list[Drawn]:
        """Draw the edges of one hop of several batches from files, which reads the times of whole columns."""
        return files.by_time(self.rule(hop), requests)


def _path_arrays(batch: GrowingBatch, most: int) -> tuple[Array, Array]:
    """Return the time bounds (N + most,) int64 and the trees (N + most,) int32 of N nodes that each stand for a path.

    The last ``most`` elements are space for further nodes.
    """
    frontier, array = batch.frontiers[""], batch.workspace.array
    number = frontier.num_nodes
    if number + most > kernels.MAX_TREES:
        raise InputError(
            f"{number + most:,} paths in a batch: a batch has at most {kernels.MAX_TREES:,} with monotone=True; use smaller batches or fanouts"
        )
    bounds, trees = array("bounds", number + most, np.int64, keep=number), array("path_trees", number + most, np.int32, keep=number)
    if not batch.hops:
        bounds[:number], trees[:number] = batch.times, np.arange(number)
    return bounds, trees


def _split(graph: Graph | HeteroGraph, batch: GrowingBatch, keys: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Split keys into the global node ids of each type and ``extra`` arrays: the tree of each node, and the times of the seeds."""
    nodes, extra = {}, {}
    for kind, (_, dtype) in types_of(graph).items():
        trees = f"trees.{kind}" if kind else "trees"
        nodes[kind] = batch.workspace.array(f"nodes.{kind}", len(keys[kind]), dtype)
        extra[trees] = batch.workspace.array(trees, len(keys[kind]), np.int32)
        kernels.split_keys(keys[kind], nodes[kind], extra[trees])
    if batch.times is not None:
        extra["seed_times"] = batch.times
    return nodes, extra


@explain_keywords
class TemporalSampler(FanoutSampler):
    """A temporal sampler that takes, in every hop, up to ``fanout`` in-edges of every node found by the previous hop, none later than the seed's time.

    Every seed has a time, and a tree of its own. Its time bounds all edges of the tree, of all hops (as in PyG's ``NeighborLoader`` with
    ``disjoint=True``). So a node of the batch is a node of the graph in the tree of one seed, and ``node_ids`` holds a node of the graph once for
    each tree that it is in. Seeds may repeat a node, for example at several times. ``sample`` takes ``times`` (B,), the integer time of each
    of at most 2**23 seeds; by default the times are those of ``seed_times``.

    Among the edges into a node that are not later than the bound, the strategy ``uniform`` takes min(number, ``fanout``) distinct ones, every
    subset equally likely, or ``fanout`` independent ones with ``replace``. The plain mean over them is an unbiased estimate of the mean over all
    edges within the bound. The strategy ``recent`` takes the latest edges, among equal times those with larger edge ids; it draws no random
    numbers. If all edges within the bound are taken, they are in the order of time.

    With ``monotone`` times increase along every path to a seed: each edge is earlier than the next edge on the path (Xu, Ruan, Korpeoglu, Kumar, Achan
    2020, "Inductive representation learning on temporal graphs"). A node of the batch is then a path: every drawn edge leads to a new node.

    Blocks are nested, since each node is expanded once. ``extra`` holds ``trees`` (S,) int32, the position (0 to B - 1) of the seed whose tree each node
    is in, and ``seed_times`` (B,) int64. The full-neighbour evaluation of ``NodeClassifier`` uses all edges of the graph, whatever their times.

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
        """Check and keep the options, and read ``seed_times`` if it is a path.

        Args:
            fanouts: in-edges taken for each node, one number for each hop, from the seeds outward. -1 takes all edges within the time bound; a float
                above 0 and at most 1.0 is a share of these, rounded up.
            seed_times: (V,) integers, the time at which each node is a seed, in the unit of ``graph.times``; or the path of a .npy file with
                them. Without it ``sample`` needs ``times``.
            strategy: "uniform" draws edges at random; "recent" takes the latest ones.
            replace: draw edges with replacement; only with strategy "uniform".
            monotone: let times increase along every path to a seed: the edges into a node must be earlier than the edge that led to it. CPU only.

        Raises:
            InputError: there is no hop, a fanout is neither positive nor -1 nor a share, the strategy is unknown, options exclude each other, or
                the times cannot be read.
        """
        self.fanouts: tuple[int | float, ...] = check_fanouts(fanouts, MAX_DRAWS)
        check_strategy(strategy, replace)
        self.strategy = strategy
        self.replace = replace
        self.monotone = monotone
        self.seed_times: Array | None = None if seed_times is None else _read_times(seed_times)
        self._ordered = OncePerGraph[dict[Relation, kernels.TimedColumns]]()

    def prepare(self, graph: Graph, seeds: Array) -> TemporalSampler:
        """Return this sampler, after a check of the times. The first batch sorts every column by time, in 12 bytes an edge (16 from 2**31 edges on).

        Raises:
            InputError: the graph has no times, or ``seed_times`` does not have one time for each node.
        """
        self._check_times(graph)
        if self.seed_times is not None:
            self._times_of(graph, seeds)
        return self

    def roots(self, graph: Graph, seeds: Array, times: Array | None = None) -> tuple[SeedsByType, Array]:
        """Return the seeds, checked, and the times (B,) that bound their edges: ``times``, by default those of ``seed_times``."""
        seeds = check_seeds(graph, seeds)
        check_trees(len(seeds))
        bounds = self._times_of(graph, seeds) if times is None else check_times(times, len(seeds), "times")
        return seeds_of_one_type("", seeds), bounds

    def along(self, graph: Graph) -> Mapping[Relation, TimedDraws]:
        """Return the draws of the graph's only relation.

        Raises:
            InputError: the graph has no times.
        """
        self._check_times(graph)
        return {ONLY: TimedDraws(self.fanouts, self.replace, self.strategy == "recent", 0, partial(self.columns, graph), self.monotone)}

    @property
    def hop_sampler(self) -> HopSampler[Graph, MiniBatch] | None:
        """This sampler; None with ``monotone``, where nodes are paths, and for a subclass that overrides ``sample_on_cpu``."""
        return None if self.monotone or type(self).sample_on_cpu is not TemporalSampler.sample_on_cpu else self

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace, times: Array | None = None) -> MiniBatch:
        """Sample one mini-batch with seeds at ``times`` (B,), by default those of ``seed_times``; see ``Sampler.sample_on_cpu``."""
        return self.sample_from_roots(graph, self.along(graph), self.roots(graph, seeds, times), address, workspace)

    def finished(self, graph: Graph, batch: GrowingBatch, nodes: Mapping[str, Array], extra: dict[str, Array] | None = None) -> MiniBatch:
        """Return the mini-batch of a batch whose hops are all sampled, and whose ``nodes`` are keys."""
        nodes, own = _split(graph, batch, nodes)
        if self.monotone:
            own["trees"] = _path_arrays(batch, 0)[1]
        return super().finished(graph, batch, nodes, own | (extra or {}))

    def _times_of(self, graph: Graph, seeds: Array) -> Array:
        if self.seed_times is None:
            raise InputError(
                "the seeds have no times: each seed's time bounds the edges drawn for it; give TemporalSampler seed_times, or give sample times"
            )
        times: Array = check_times(self.seed_times, graph.num_nodes, "seed_times")[seeds]
        return times

    def _check_times(self, graph: Graph) -> None:
        if graph.times is None:
            raise InputError("the graph has no times: give them to Graph or Graph.from_edges, or use NeighborSampler")

    def columns(self, graph: Graph) -> kernels.TimedColumns:
        """Return the graph's columns sorted by time, which are computed once for a graph and pickled with the sampler for the workers."""
        self._check_times(graph)
        return self._ordered.get(graph, _sort_by_time)[ONLY]


class HeteroTemporalSampler(HeteroFanoutSampler):
    """A temporal sampler of heterogeneous graphs. Each hop takes up to ``fanout`` in-edges, by every relation, of every node found by the previous hop.

    Each relation has the distribution of ``TemporalSampler``: every seed has a time, and a tree of its own, whose edges of all relations and hops
    are not later than that time (as in PyG's ``NeighborLoader`` with ``disjoint=True`` on ``HeteroData``). In a relation without times all edges are
    within the bound and are drawn uniformly whatever the strategy. At least one relation must have times. Seeds may repeat a node.

    ``sample`` takes ``times`` (B,), the integer time of each seed in the order of the seeds; seeds of several types have the order of
    ``HeteroGraph.numbered``. Blocks are nested. ``extra`` holds, for each type t, ``trees.t`` (S_t,) int32, the position (0 to B - 1) of the seed whose
    tree each node is in, and ``seed_times`` (B,) int64. Draws have the addresses of ``HeteroSampler``, with local ids instead of global node ids.
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
        """Check and keep the options.

        Args:
            fanouts: in-edges taken for each node, one number for each hop, from the seeds outward, for all relations; or such a list for each
                relation, by "source:name:destination" or the tuple of the three. -1 takes all edges within the time bound, 0 leaves the relation
                out of a hop, and a float above 0 and at most 1.0 is a share of the edges within the bound, rounded up.
            seed_type: node type of the seeds; None if they may be of several types.
            seed_times: (V_t,) integers for each type t that has seeds, the time at which each node is a seed, in the unit of the edges' times.
                Without it ``sample`` needs ``times``.
            strategy: "uniform" draws edges at random; "recent" takes the latest ones.
            replace: draw edges with replacement; only with strategy "uniform".
            default: fanouts of the relations that ``fanouts`` does not name. Without it ``fanouts`` must name every relation.

        Raises:
            InputError: there is no hop or more than 16, lists differ in length, a fanout is out of range, the strategy is unknown, options exclude each
                other, or times are not integers.
        """
        super().__init__(fanouts, seed_type, default, MAX_DRAWS)
        check_strategy(strategy, replace)
        self.strategy = strategy
        self.replace: bool = replace
        self.repeats_edges: bool = replace
        if seed_times is not None and not isinstance(seed_times, Mapping):
            raise InputError(
                f"seed_times is a {type(seed_times).__name__}: it must have a time for each node of each type; give a dictionary by type"
            )
        self.seed_times: dict[str, Array] = {kind: check_times(times, None, "seed_times") for kind, times in (seed_times or {}).items()}
        self._ordered = OncePerGraph[dict[Relation, kernels.TimedColumns]]()

    def __repr__(self) -> str:
        fanouts = self._shown_fanouts()
        return f"HeteroTemporalSampler(fanouts={fanouts}, seed_type={self.seed_type!r}, strategy={self.strategy!r}, replace={self.replace})"

    def along(self, graph: HeteroGraph) -> Mapping[Relation, TimedDraws]:
        """Return the draws along each relation.

        The first batch sorts every column by time, in 12 bytes an edge (16 from 2**31 edges of a relation on).

        Raises:
            InputError: the fanouts do not fit the graph's relations, or no relation has times.
        """
        fanouts, columns = self.fanouts_of(graph), graph.relations
        if all(own.times is None for own in columns.values()):
            raise InputError(
                "no relation of the graph has times: HeteroTemporalSampler needs them to bound its draws; give them to HeteroGraph, name "
                "them by time_attr of from_pyg, or use HeteroSampler"
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
        """This sampler; None for a subclass that overrides ``sample_on_cpu``."""
        return self if type(self).sample_on_cpu is HeteroTemporalSampler.sample_on_cpu else None

    def sample_on_cpu(
        self,
        graph: HeteroGraph,
        seeds: Array | Mapping[str, Array],
        address: Address,
        workspace: Workspace,
        times: Sequence[int] | Array | None = None,
    ) -> HeteroMiniBatch:
        """Sample one mini-batch with seeds at ``times`` (B,), by default those of ``seed_times``; see ``Sampler.sample_on_cpu``."""
        return self.sample_from_roots(graph, self.along(graph), self.roots(graph, seeds, times), address, workspace)

    def finished(
        self, graph: HeteroGraph, batch: GrowingBatch, nodes: Mapping[str, Array], extra: dict[str, Array] | None = None
    ) -> HeteroMiniBatch:
        """Return the mini-batch of a batch whose hops are all sampled, and whose ``nodes`` are keys."""
        nodes, own = _split(graph, batch, nodes)
        return super().finished(graph, batch, nodes, own | (extra or {}))

    def _in_order(self, graph: HeteroGraph, relation: Relation) -> kernels.TimedColumns:
        return self._ordered.get(graph, _sort_by_time)[relation]

    def roots(
        self, graph: HeteroGraph, seeds: Array | Mapping[str, Array], times: Sequence[int] | Array | None = None
    ) -> tuple[SeedsByType, Array]:
        """Return the seeds, checked, and the times (B,) that bound their edges: ``times``, by default those of ``seed_times``."""
        found = self.seeds_of(graph, seeds)
        check_trees(found.number)
        return found, self._bounds(graph, found, times)

    def _bounds(self, graph: HeteroGraph, seeds: SeedsByType, times: Sequence[int] | Array | None) -> Array:
        """Return the times (B,) int64 of the seeds."""
        if times is not None:
            return check_times(times, seeds.number, "times")
        bounds = np.empty(seeds.number, np.int64)
        for kind, (ids, places) in seeds.by_type.items():
            if kind not in self.seed_times:
                raise InputError(
                    f"seeds of {kind!r} have no times: each seed's time bounds the edges drawn for it; give HeteroTemporalSampler seed_times of it, "
                    "or give sample times"
                )
            bounds[places] = check_times(self.seed_times[kind], graph.num_nodes[kind], "seed_times")[ids]
        return bounds


def check_trees(number: int) -> None:
    """Raise ``InputError`` if a batch has more seeds, and so more trees, than keys can distinguish."""
    if number > kernels.MAX_TREES:
        raise InputError(
            f"{number:,} seeds in a batch: each has a tree, and a batch has at most {kernels.MAX_TREES:,}; use smaller batches"
        )


def _sort_by_time(graph: Graph | HeteroGraph) -> dict[Relation, kernels.TimedColumns]:
    """Return the columns of each relation sorted by time. Without times edges keep their order and are earlier than any bound."""
    return {
        relation: _sort_columns(columns) if columns.times is not None else _keep_order(columns)
        for relation, columns in columns_of(graph).items()
    }


def _sort_columns(columns: RelationColumns) -> kernels.TimedColumns:
    by_time, times = np.empty(columns.num_edges, id_dtype(columns.num_edges)), np.empty(columns.num_edges, np.int64)
    kernels.order_by_time(columns.indptr, columns.times, by_time, times)
    return kernels.TimedColumns(columns.indptr, columns.indices, times, by_time)


def _keep_order(columns: RelationColumns) -> kernels.TimedColumns:
    times = np.full(columns.num_edges, np.iinfo(np.int64).min)
    return kernels.TimedColumns(columns.indptr, columns.indices, times, np.arange(columns.num_edges, dtype=id_dtype(columns.num_edges)))


def _read_times(times: str | Sequence[int] | Array) -> Array:
    """Return the times (V,) int64, read from a .npy file if ``times`` is its path."""
    if not isinstance(times, str):
        return check_times(times, None, "seed_times")
    try:
        array = map_npy(times)
    except (OSError, ValueError) as error:
        raise InputError(
            f"seed_times is {times}: it cannot be read as a .npy file ({error}); give the path of a file that np.save wrote"
        ) from None
    return check_times(array, None, "seed_times")


def check_times(times: Sequence[int] | Array, number: int | None, name: str) -> Array:
    """Return times as (``number``,) int64, or of any length if ``number`` is None; ``name`` is the option in messages.

    Raises:
        InputError: ``times`` are not integers that fit in int64, or their number is not ``number``.
    """
    array = np.asarray(times)
    if array.ndim != 1 or not is_integer(array.dtype) or array.dtype == np.uint64 or number not in (None, len(array)):
        wanted = "each node" if name == "seed_times" else "each seed"
        raise InputError(
            f"{name} are {array.dtype} of shape {array.shape}: they must be integers up to int64, one for {wanted}; convert them to int64"
        )
    return np.ascontiguousarray(array, np.int64)
