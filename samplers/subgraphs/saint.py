"""GraphSAINT's subgraph samplers (Zeng, Zhou, Srivastava, Kannan, Prasanna 2020, "GraphSAINT: graph sampling based inductive learning method")."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.subgraphs import inclusion, visits
from hoptrain.kernels.cpu.subgraphs import saint as kernels
from hoptrain.kernels.cpu.subgraphs.inclusion import Rates
from hoptrain.kernels.shared.philox import HOP_PRESAMPLE
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.buffers.alias import NO_TABLES, AliasTables, tables_of
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.subgraphs.induced import MAX_ATTEMPTS, Members, SingleSubgraphSampler, bitmap, find_members

_MOST_DRAWS = 1 << 31
_MOST_WALKS = 1 << 32
"""Maximum number of walks whose visits are counted, since counts have 32 bits."""
_SLICE = 1 << 16
"""Number of walks that are drawn at a time, before their visits are counted."""
_ERROR = 0.1


class SaintWeights(NamedTuple):
    """The weights of nodes and edges of the graph that normalise any subgraph."""

    of_nodes: Array
    """(V,) float32 weight of each node in the loss if it is a seed, divided by the batch's number of seeds."""
    of_edges: Array
    """(E,) float32 weight of each edge."""


class SaintSampler(SingleSubgraphSampler):
    """A sampler of subgraphs that are induced by random draws of nodes, with weights such that sums over a subgraph estimate sums over the graph.

    A batch is one subgraph; see ``SingleSubgraphSampler``. If the draws contain no node of the split, they are repeated, up to
    100 times. All probabilities below are conditional on a subgraph with such a node.

    Let p(v) be the probability that a subgraph contains node v, and p(u, v) the probability that it contains both ends of an edge u -> v. The
    weight of the edge is p(v) / p(u, v). Over the subgraphs that contain v, the mean of the weighted sum over v's edges is the sum over all its
    in-edges (the paper's aggregator normalisation, for one layer; later layers of a model are not unbiased). In-edges from nodes that cannot be
    drawn are missing from the sum. The weight of a seed is B / (N p(v)), with B seeds in the batch and N in the split: the mean of the weighted
    losses of a batch is an unbiased estimate of the mean loss over the split (the paper's loss normalisation). A node of the split that cannot
    be drawn, for instance an isolated one, adds nothing.

    The paper counts p(v) and p(u, v) over subgraphs drawn beforehand. Here the n draws of a subgraph are independent and identically distributed:
    with a, b and c the probabilities that one draw hits u, v and both, a subgraph contains both ends with probability
    1 - (1 - a)**n - (1 - b)**n + (1 - a - b + c)**n. For draws of nodes and of edges a, b and c are known, so the weights are
    exact up to float32 rounding. For walks they are counted, see ``SaintWalkSampler``.

    Weights take 4 bytes for each node and each edge, shared by the workers. They do not depend on the random seed.
    """

    def __init__(self, num_layers: int, normalise: bool, num_subgraphs: int | None) -> None:
        """Check and keep the options that all GraphSAINT samplers have.

        Raises:
            InputError: a number is out of range.
        """
        super().__init__(num_layers)
        if num_subgraphs is not None and num_subgraphs < 1:
            raise InputError(f"num_subgraphs is {num_subgraphs}: an epoch has at least one subgraph; give 1 or more")
        self.normalise = normalise
        self.num_subgraphs = num_subgraphs
        self._weights: SaintWeights | None = None

    def prepare(self, graph: Graph, seeds: Array) -> SaintSampler:
        """Return a copy for a split, with the tables that the draws need and the weights."""
        other = self.prepared_copy(graph, seeds)
        other._prepare_draws(graph)
        other._weigh(graph)
        return other

    def members(self, graph: Graph, items: Array, address: HopAddress, workspace: Workspace) -> Members:
        """Return the nodes of the subgraph that the random numbers at ``address`` give."""
        self.check_item(items)
        is_seed = self.split.is_seed
        for attempt in range(MAX_ATTEMPTS):
            members = find_members(graph, self._draw(graph, address, attempt, workspace), is_seed, workspace)
            if members.num_seeds:
                return members
        raise self.no_seed_met()

    def normalisation(self, members: Members, block: Block, workspace: Workspace) -> tuple[Array | None, Array | None]:
        """Return the weights of the block's edges and of the seeds; None for both without normalisation."""
        if self._weights is None:
            return None, None
        weights = workspace.array("weights", block.num_edges, np.float32)
        kernels.edge_weights(block.edge_ids, self._weights.of_edges, weights)
        seed_weights = workspace.array("seed_weights", members.num_seeds, np.float32)
        kernels.loss_weights(members.nodes, self._weights.of_nodes, seed_weights)
        return weights, seed_weights

    def no_seed_met(self) -> InputError:
        """Return the error for a batch whose ``MAX_ATTEMPTS`` drawn subgraphs all lack a node of the split."""
        return InputError(
            f"{MAX_ATTEMPTS} subgraphs in a row contain none of the {len(self.split.seeds):,} nodes to train on: "
            f"let {type(self).__name__} draw more nodes"
        )

    @property
    def weights(self) -> SaintWeights | None:
        """Weights of nodes and edges; None before ``prepare`` and without normalisation."""
        return self._weights

    @abstractmethod
    def _prepare_draws(self, graph: Graph) -> None:
        """Compute the tables that the draws need."""

    @abstractmethod
    def _draw(self, graph: Graph, address: HopAddress, attempt: int, workspace: Workspace) -> Array:
        """Return the drawn nodes (K,), each as often as it was drawn, in an array of the workspace."""

    @abstractmethod
    def _rates(self, graph: Graph, pairs: Array) -> Rates:
        """Return the probabilities that one draw hits each node.

        The array ``pairs`` (E,) float32 of zeros is filled with the probability that one draw hits both ends of each edge. It may be empty (0,).
        """

    def _weigh(self, graph: Graph) -> None:
        """Compute the weights and, unless ``num_subgraphs`` is given, the number of subgraphs that together have as many seeds as the split."""
        of_nodes, of_edges = (np.zeros(n, np.float32) for n in (graph.num_nodes, graph.num_edges if self.normalise else 0))
        rates = self._rates(graph, of_edges)
        num_seeds, met = inclusion.weigh_seeds(rates, self.split.seeds, of_nodes)
        if met * MAX_ATTEMPTS < 1:
            raise self.no_seed_met()
        if self.normalise:
            inclusion.weigh_edges(graph.indptr, graph.indices, rates, of_edges)
            self._weights = SaintWeights(of_nodes, of_edges)
        if self.num_subgraphs is None:
            self.num_subgraphs = math.ceil(len(self.split.seeds) / num_seeds)


class BudgetSampler(SaintSampler):
    """A GraphSAINT sampler whose subgraphs are induced by ``budget`` nodes or edges, drawn with replacement."""

    def __init__(self, budget: int, num_layers: int = 2, normalise: bool = True, num_subgraphs: int | None = None) -> None:
        """Check and keep the options.

        Args:
            budget: number of draws for a subgraph, which has at most ``budget`` nodes, or twice as many if edges are drawn.
            num_layers: number of layers of the model, and of blocks of a batch.
            normalise: weight edges and seeds so that estimates are unbiased.
            num_subgraphs: subgraphs of an epoch; by default so many that an epoch has, on average, as many seeds as the split.

        Raises:
            InputError: a number is out of range.
        """
        super().__init__(num_layers, normalise, num_subgraphs)
        self.budget: int = check_draws(budget, "budget")


class SaintNodeSampler(BudgetSampler):
    """A GraphSAINT node sampler: a subgraph is induced by ``budget`` draws of a node with replacement, from the paper's distribution.

    Node v has probability proportional to the sum of 1 / d(w)**2 over its edges v -> w, with d(w) the in-degree of w. This is ||A(:, v)||**2 for
    the matrix A that takes means over in-edges; parallel edges count separately. A node without out-edges is never drawn. Epochs, batches and
    weights are those of ``SaintSampler``.

    Examples:
        >>> from hoptrain import SaintNodeSampler, SampleLoader, load_dataset
        >>> batch = next(iter(SampleLoader(load_dataset("digits-knn"), SaintNodeSampler(200), batch_size=1)))
        >>> len(batch.node_ids), batch.num_seeds, batch.num_edges  # distinct nodes, seeds among them, edges between the nodes
        (187, 109, 246)
    """

    tables: AliasTables = NO_TABLES

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        weights = np.empty(graph.num_nodes)
        kernels.squared_columns(graph.indptr, graph.indices, weights)
        self.tables = tables_of(np.array([0, graph.num_nodes]), weights)

    def _draw(self, graph: Graph, address: HopAddress, attempt: int, workspace: Workspace) -> Array:
        drawn, words, lanes = _scratch(graph, self.budget, 0, workspace)
        kernels.draw_weighted(self.budget, address, attempt, *self.tables, words, lanes, drawn)
        return drawn

    def _rates(self, graph: Graph, pairs: Array) -> Rates:
        """Compute the probabilities from the integer masses of the alias table; a draw hits one node."""
        masses, is_seed = np.empty(graph.num_nodes, np.int64), self.split.is_seed
        inclusion.table_masses(*self.tables, masses)
        whole = graph.num_nodes << 32
        hits = masses / whole
        return Rates(self.budget, hits, np.where(is_seed, 0.0, hits), int(masses[~is_seed].sum()) / whole)


class SaintEdgeSampler(BudgetSampler):
    """A GraphSAINT edge sampler: a subgraph is induced by both ends of ``budget`` edges that are drawn with replacement.

    A draw takes a uniform node among those with in-edges, and then a uniform in-edge of it: u -> v has probability proportional to
    1 / d(v), with d the in-degree. In a graph that has every edge in both directions u and v are thus drawn together with probability
    proportional to 1 / d(u) + 1 / d(v), the paper's distribution. Epochs, batches and weights are those of ``SaintSampler``.

    Examples:
        >>> from hoptrain import SaintEdgeSampler, SampleLoader, load_dataset
        >>> batch = next(iter(SampleLoader(load_dataset("digits-knn"), SaintEdgeSampler(100), batch_size=1)))
        >>> len(batch.node_ids), batch.num_seeds, batch.num_edges  # distinct nodes, seeds among them, edges between the nodes
        (187, 97, 406)
    """

    ends: Array = np.zeros(0, np.int32)

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        self.ends = np.flatnonzero(graph.in_degrees()).astype(graph.indices.dtype)

    def _draw(self, graph: Graph, address: HopAddress, attempt: int, workspace: Workspace) -> Array:
        return _draw_walks(graph, self.budget, 1, self.ends, address, attempt, workspace)

    def _rates(self, graph: Graph, pairs: Array) -> Rates:
        """Compute the probabilities from the degrees; a draw hits both ends of an edge."""
        hits, outside = np.empty((2, graph.num_nodes))
        missed = inclusion.edge_rates(graph.indptr, graph.indices, len(self.ends), self.split.is_seed, hits, outside)
        if len(pairs):
            turned = np.empty(graph.num_nodes + 1, np.int64), np.empty_like(graph.indices)
            inclusion.turn_round(graph.indptr, graph.indices, *turned)
            inclusion.edge_pair_rates(graph.indptr, graph.indices, len(self.ends), *turned, np.empty(graph.num_nodes), pairs)
        return Rates(self.budget, hits, outside, missed)


class SaintWalkSampler(SaintSampler):
    """A GraphSAINT walk sampler: a subgraph is induced by the nodes of ``num_roots`` random walks of ``walk_length`` steps.

    Roots are drawn uniformly, with replacement, from the split. A step follows a uniform in-edge to its source, so a walk goes where messages come
    from; at a node without in-edges it stays. (The paper draws roots from all nodes of its training graph, all of which have a loss.) Epochs,
    batches and weights are those of ``SaintSampler``.

    The probabilities that a walk hits nodes and edges are counted over k walks from each of the N nodes of the split. k is doubled until
    the relative standard error is at most ``error``. k N walks are at least as accurate as counts over k N / num_roots subgraphs. Only the visits of
    single walks are random, not the combination of walks in a subgraph.

    * A node of the split is the root of its own k walks: the relative standard error of its probability is at most 1 / (2 sqrt(k)), whatever
      the graph. k is at least 1 / (4 error**2).
    * The probabilities of edges have an estimated relative standard error of at most ``error``: the root mean square over the edges between visited
      nodes, weighted by how often walks visit the destination.

    The inverse of an estimate has a bias of the square of its relative error; a correction of the counts removes most of it
    (``hoptrain.kernels.cpu.subgraphs.visits``). If no single walk visited both ends of an edge, its probability is that of two walks, plus that of
    up to one walk in k N. So the in-edges of nodes that are rarely in a batch get too small a weight, and in-edges from nodes that no walk visits
    are missing. (In batches of 5 % of the nodes of four real graphs, the sum over all nodes was within 0.5 %; from the 60 training nodes of PubMed,
    2 % of the graph, within 2 %, and with ``error`` 0.05 within 0.6 %.) Counting takes about 2 microseconds for each walk on one core.

    Examples:
        >>> from hoptrain import SaintWalkSampler, SampleLoader, load_dataset
        >>> batch = next(iter(SampleLoader(load_dataset("digits-knn"), SaintWalkSampler(50, walk_length=3), batch_size=1)))
        >>> len(batch.node_ids), batch.num_seeds, batch.num_edges  # distinct nodes, seeds among them, edges between the nodes
        (177, 127, 514)
    """

    def __init__(
        self,
        num_roots: int,
        walk_length: int = 2,
        num_layers: int = 2,
        normalise: bool = True,
        num_subgraphs: int | None = None,
        error: float | None = None,
    ) -> None:
        """Check and keep the options.

        Args:
            num_roots: number of walks for a subgraph.
            walk_length: steps of a walk; a subgraph has at most ``num_roots * (walk_length + 1)`` nodes.
            num_layers: number of layers of the model, and of blocks of a batch.
            normalise: weight edges and seeds so that estimates are unbiased.
            num_subgraphs: subgraphs of an epoch; by default so many that an epoch has, on average, as many seeds as the split.
            error: relative standard error of the counted probabilities, between 0 and 1; by default 0.1. Half the error takes about four times the walks.

        Raises:
            InputError: a number is out of range, or ``error`` is given without ``normalise``.
        """
        super().__init__(num_layers, normalise, num_subgraphs)
        if walk_length < 1:
            raise InputError(f"walk_length is {walk_length}: a walk has at least one step; give 1 or more")
        check_draws(num_roots * (walk_length + 1), "num_roots * (walk_length + 1)")
        if error is not None and not normalise:
            raise InputError(f"error is {error} with normalise=False: it is the error of the weights, and there are none; leave it out")
        if error is not None and not 0 < error < 1:
            raise InputError(f"error is {error}: it must be a relative standard error between 0 and 1; give for instance {_ERROR}")
        self.num_roots = num_roots
        self.walk_length = walk_length
        self.error: float = _ERROR if error is None else error

    def _draw(self, graph: Graph, address: HopAddress, attempt: int, workspace: Workspace) -> Array:
        return _draw_walks(graph, self.num_roots, self.walk_length, self.split.seeds, address, attempt, workspace)

    def _prepare_draws(self, graph: Graph) -> None:
        return

    def _rates(self, graph: Graph, pairs: Array) -> Rates:
        """Estimate the probabilities by counting visits of walks from the split; see the class."""
        num_seeds, is_seed = len(self.split.seeds), self.split.is_seed
        hits, times = np.empty(graph.num_nodes), np.zeros(graph.num_nodes, np.int64)
        together = np.zeros(len(pairs), np.uint32)
        done, goal = 0, least_walks(self.error)
        while done < goal:
            if goal * num_seeds > _MOST_WALKS:
                raise InputError(
                    f"error is {self.error}: it needs more than {_MOST_WALKS:,} walks from {num_seeds:,} nodes; give a larger error"
                )
            for turn in range(done, goal):
                self._count_walks(graph, turn, times, together)
            done = goal
            visits.walk_rates(done * num_seeds, done, is_seed, times, hits)
            if len(pairs):
                error = visits.walk_pair_rates(graph.indptr, graph.indices, self.num_roots, done * num_seeds, hits, together, pairs)
                goal *= 2 if error > self.error**2 else 1
        return Rates(self.num_roots, hits, np.zeros(graph.num_nodes), 0.0)

    def _count_walks(self, graph: Graph, turn: int, times: Array, together: Array) -> None:
        """Draw one more walk from each node of the split, and add its visits to the counts."""
        workspace, seeds, stride = Workspace(), self.split.seeds, self.walk_length + 1
        bits = bitmap(graph.num_nodes, workspace)
        bits[:] = 0
        address = HopAddress(np.uint64(0), np.uint64(0), np.uint64(turn), HOP_PRESAMPLE)
        for number, first in enumerate(range(0, len(seeds), _SLICE)):
            roots = seeds[first : first + _SLICE]
            walks = _draw_walks(graph, len(roots), self.walk_length, roots, address, number, workspace, in_turn=True)
            visits.count_visits(walks, stride, graph.indptr, graph.indices, graph.is_sorted, bits, times, together)


def least_walks(error: float) -> int:
    """Return the least number of walks per root, a power of two, for which a root's probability has a relative standard error of at most ``error``."""
    least = 1
    while 4 * least * error**2 < 1:
        least *= 2
    return least


def check_draws(number: int, name: str) -> int:
    """Return a number of draws, the option ``name``, checked to be in [1, 2**31)."""
    if not 0 < number < _MOST_DRAWS:
        raise InputError(f"{name} is {number}: a subgraph takes 1 to {_MOST_DRAWS - 1} draws; give a number in this range")
    return number


def check_edges(graph: Graph) -> None:
    """Raise ``InputError`` if a graph has no edges to draw by, or too many nodes for an alias table."""
    if graph.num_edges == 0:
        raise InputError(
            "the graph has no edges: this sampler draws edges, or nodes by their edges; use SaintWalkSampler or another sampler"
        )
    if graph.num_nodes >= _MOST_DRAWS:
        raise InputError(f"the graph has {graph.num_nodes:,} nodes: draws by weight need fewer than {_MOST_DRAWS:,}; use SaintWalkSampler")


def _draw_walks(
    graph: Graph, number: int, length: int, roots: Array, address: HopAddress, attempt: int, workspace: Workspace, in_turn: bool = False
) -> Array:
    drawn, words, lanes = _scratch(graph, number, length, workspace)
    kernels.draw_walks(number, length, address, attempt, roots, in_turn, graph.indptr, graph.indices, words, lanes, drawn)
    return drawn


def _scratch(graph: Graph, number: int, length: int, workspace: Workspace) -> tuple[Array, Array, Array]:
    """Return three arrays of the workspace: for the drawn nodes, (number * (length + 1),), for random words, and (CHUNK,) int64 scratch."""
    shape = kernels.words_shape(length)
    words = workspace.array("words", shape[0] * shape[1], np.uint32).reshape(shape)
    return workspace.array("drawn", number * (length + 1), graph.indices.dtype), words, workspace.array("lanes", kernels.CHUNK, np.int64)
