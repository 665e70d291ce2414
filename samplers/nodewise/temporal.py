"""Neighbour sampling that does not look ahead: only edges that are not later than the seed they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype, is_integer
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.files.untrusted import map_npy
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.nodewise import temporal as kernels
from hoptrain.kernels.cpu.nodewise.neighbor import Edges, Rule, Scratch
from hoptrain.kernels.shared.philox import MAX_DRAWS
from hoptrain.samplers.base import FanoutSampler
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, nested_blocks
from hoptrain.samplers.checks import check_fanouts, check_seeds
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.hop import most_edges, scratch_for
from hoptrain.samplers.scratch.once import OncePerGraph
from hoptrain.samplers.scratch.workspace import Workspace

Strategy = Literal["uniform", "recent"]
STRATEGIES = ("uniform", "recent")


def check_strategy(strategy: str, replace: bool) -> None:
    """Refuse an unknown one, or one that does not go with replacement."""
    if strategy not in STRATEGIES:
        raise InputError(f'strategy is {strategy!r}: edges are drawn "uniform" or are the most "recent" ones; choose one')
    if replace and strategy == "recent":
        raise InputError('replace=True with strategy="recent": the latest edges are taken once each; leave replace out')


class TemporalSampler(FanoutSampler):
    """For every hop, up to ``fanout`` in-edges of every vertex found on the hop before, none of them later than the seed's time.

    Every seed has a time, and a tree of its own: its time bounds all edges of the tree, of all hops (as in PyG's ``NeighborLoader`` with
    ``disjoint=True``). So a node of the batch is a vertex in the tree of one seed, and ``node_ids`` names a vertex once for each tree that it
    is in. Seeds need not be distinct: the same vertex may be asked for at several times. ``sample`` takes ``times`` (B,), integers,
    the time of each of at most 2**23 seeds; by default they are what ``seed_times`` says.

    Of the edges into a vertex that are not later than the bound, ``uniform`` takes min(number, ``fanout``) distinct ones, every subset equally
    likely, or ``fanout`` independent ones with ``replace``: the plain mean over them estimates the mean over all that the bound admits.
    ``recent`` takes the latest ones, among equal times those with larger edge ids; no random number is drawn, and nothing is estimated. A
    vertex without an admitted edge gives none. Edges that are not drawn stand in the order of time.

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
            seed_times: (V,) integers, for each vertex the time at which it is a seed, in the unit of ``graph.times``; or the path of a .npy file with
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
        self._ordered = OncePerGraph[kernels.TimedColumns]()

    def prepare(self, graph: Graph, seeds: Array) -> TemporalSampler:
        """As it is. The first batch puts every column in the order of time: 12 bytes an edge (16 from 2**31 edges on).

        Raises:
            InputError: the graph has no times, or not one for each vertex is given.
        """
        self._check_times(graph)
        if self.seed_times is not None:
            self._times_of(graph, seeds)
        return self

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace, times: Array | None = None) -> MiniBatch:
        """Sample one mini-batch at ``times`` (B,), or those that ``seed_times`` says; see ``Sampler.sample_on_cpu``."""
        seeds, bounds = self.seeds_and_bounds(graph, seeds, times)
        kind = _Paths if self.monotone else _Batch
        work = kind(graph, self.columns(graph), bounds, Frontier(workspace, workspace.table, 1 << 63, np.int64, "keys"))
        work.enter_seeds(seeds)
        num_src = [len(seeds)]
        for hop in range(self.num_hops):
            work.sample_hop(num_src[-2] if hop else 0, self.rule(hop), address.at_hop(hop))
            num_src.append(work.keys.num_nodes)
        nodes, trees = work.nodes_and_trees()
        return MiniBatch(
            node_ids=nodes,
            blocks=nested_blocks(work.block(), num_src[:0:-1], len(seeds)),
            num_seeds=len(seeds),
            extra={"trees": trees, "seed_times": bounds},
            nested=True,
        )

    def seeds_and_bounds(self, graph: Graph, seeds: Array, times: Array | None) -> tuple[Array, Array]:
        """The seeds (B,), checked, and the times (B,) int64 that bound their edges: ``times``, or what ``seed_times`` says."""
        seeds = check_seeds(graph, seeds)
        check_trees(len(seeds))
        return seeds, self._times_of(graph, seeds) if times is None else checked_times(times, len(seeds), "times")

    def _times_of(self, graph: Graph, seeds: Array) -> Array:
        if self.seed_times is None:
            raise InputError(
                "the seeds have no times: give TemporalSampler seed_times, or sample times; an edge later than its seed is not drawn"
            )
        times: Array = checked_times(self.seed_times, graph.num_nodes, "seed_times")[seeds]
        return times

    def rule(self, hop: int) -> kernels.TimedRule:
        """How a hop takes edges."""
        return kernels.TimedRule(self.fanout_codes[hop], self.replace, self.strategy == "recent")

    def _check_times(self, graph: Graph) -> None:
        if graph.times is None:
            raise InputError("the graph has no times: give them to Graph or Graph.from_edges, or take NeighborSampler")

    def columns(self, graph: Graph) -> kernels.TimedColumns:
        """The graph's columns in the order of time. Made once for a graph; they travel to the workers with the sampler."""
        self._check_times(graph)
        return self._ordered.get(graph, in_order_of_time)


def check_trees(number: int) -> None:
    """Refuse more seeds than there are trees."""
    if number > kernels.MAX_TREES:
        raise InputError(f"{number:,} seeds in a batch: each has a tree, and there are at most {kernels.MAX_TREES:,}; use smaller batches")


def in_order_of_time(graph: Graph | RelationColumns) -> kernels.TimedColumns:
    """The columns with the edges of each in the order of time."""
    by_time, times = np.empty(graph.num_edges, id_dtype(graph.num_edges)), np.empty(graph.num_edges, np.int64)
    kernels.order_by_time(graph.indptr, graph.times, by_time, times)
    return kernels.TimedColumns(graph.indptr, graph.indices, times, by_time)


@dataclass(eq=False, slots=True)
class _Batch:
    """A mini-batch in the making. Its nodes are keys, see ``hoptrain.kernels.cpu.nodewise.temporal``."""

    graph: Graph
    columns: kernels.TimedColumns
    bounds: Array
    keys: Frontier
    """Over all keys there are, so that its table is a hash table."""
    num_edges: int = 0
    edges: Edges = field(init=False)

    def enter_seeds(self, seeds: Array) -> None:
        keys = self.keys.workspace.array("seed_keys", len(seeds), np.int64)
        kernels.enter_seeds(seeds, keys)
        self.keys.enter_seeds(keys)

    def sample_hop(self, first: int, rule: kernels.TimedRule, address: HopAddress) -> None:
        """Expand the nodes from ``first`` on."""
        workspace, last = self.keys.workspace, self.keys.num_nodes
        scratch = scratch_for(workspace, Rule(rule.fanout, rule.replace, False))
        most = most_edges(
            last - first,
            rule.fanout,
            lambda: kernels.count_edges(self.columns, self.keys.nodes(), first, last, self.bounds, rule, scratch),
        )
        keys = self._room(most)
        self.edges = Edges(
            indptr=workspace.array("indptr", last + 1, id_dtype(self.num_edges + most + 1), keep=first + 1 if first else 0),
            edge_ids=workspace.array("edge_ids", self.num_edges + most, id_dtype(self.graph.num_edges), keep=self.num_edges),
            indices=workspace.array("sources", self.num_edges + most, np.int64, keep=self.num_edges),
        )
        self.edges.indptr[first] = self.num_edges
        self.keys.num_nodes, self.num_edges = self._draw(keys, first, rule, address, scratch)

    def _draw(self, keys: Array, first: int, rule: kernels.TimedRule, address: HopAddress, scratch: Scratch) -> tuple[int, int]:
        """The numbers of nodes and edges after the hop."""
        last, table = self.keys.num_nodes, self.keys.table.view()
        made: tuple[int, int] = kernels.sample_hop(
            self.columns, keys, keys, last, first, last, self.bounds, rule, address, table, scratch, self.edges, self.num_edges
        )
        return made

    def _room(self, most: int) -> Array:
        """The keys, with room for so many more."""
        return self.keys.make_room(most)

    def block(self) -> Block:
        """The outermost block. Sources were keys, so they are int64 until here."""
        sources = self.edges.indices[: self.num_edges]
        indices = self.keys.workspace.array("indices", self.num_edges, self.graph.indices.dtype)
        np.copyto(indices, sources, casting="same_kind")
        return Block(indptr=self.edges.indptr, indices=indices, edge_ids=self.edges.edge_ids[: self.num_edges], num_src=self.keys.num_nodes)

    def nodes_and_trees(self) -> tuple[Array, Array]:
        """The vertices and the trees of the nodes."""
        nodes = self.keys.workspace.array("nodes", self.keys.num_nodes, self.graph.indices.dtype)
        trees = self.keys.workspace.array("trees", self.keys.num_nodes, np.int32)
        kernels.split_keys(self.keys.nodes(), nodes, trees)
        return nodes, trees


@dataclass(eq=False, slots=True)
class _Paths(_Batch):
    """One whose nodes are paths: their keys are ``node << TREE_SHIFT | vertex``, and bounds are those of nodes."""

    trees: Array = field(init=False)

    def enter_seeds(self, seeds: Array) -> None:
        _Batch.enter_seeds(self, seeds)
        self.trees = np.arange(len(seeds), dtype=np.int32)

    def _room(self, most: int) -> Array:
        last = self.keys.num_nodes
        if last + most > kernels.MAX_TREES:
            raise InputError(f"{last + most:,} paths in a batch: there are at most {kernels.MAX_TREES:,}; use smaller batches or fanouts")
        array = self.keys.workspace.array
        bounds, trees = array("bounds", last + most, np.int64), array("path_trees", last + most, np.int32)
        bounds[:last], trees[:last] = self.bounds[:last], self.trees[:last]
        self.bounds, self.trees = bounds, trees
        return self.keys.nodes(most)

    def _draw(self, keys: Array, first: int, rule: kernels.TimedRule, address: HopAddress, scratch: Scratch) -> tuple[int, int]:
        last = self.keys.num_nodes
        made: tuple[int, int] = kernels.sample_path_hop(
            self.columns, keys, last, first, last, self.bounds, self.trees, rule, address, scratch, self.edges, self.num_edges
        )
        return made

    def nodes_and_trees(self) -> tuple[Array, Array]:
        nodes, _ = _Batch.nodes_and_trees(self)
        return nodes, self.trees[: len(nodes)]


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
        wanted = "each vertex" if name == "seed_times" else "each seed"
        raise InputError(f"{name} are {array.dtype} of shape {array.shape}: they are integers up to int64, one for {wanted}; convert them")
    return np.ascontiguousarray(array, np.int64)
