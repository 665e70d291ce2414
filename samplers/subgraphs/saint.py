"""GraphSAINT's samplers of subgraphs (Zeng, Zhou, Srivastava, Kannan, Prasanna 2020, "GraphSAINT: graph sampling based inductive learning method")."""

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
from hoptrain.samplers.subgraphs.induced import MAX_ATTEMPTS, Members, SingleSubgraphSampler, bitmap, members_of

_MOST_DRAWS = 1 << 31
_MOST_WALKS = 1 << 32
"""Walks that are counted at most: a count takes 4 bytes."""
_SLICE = 1 << 16
"""Walks that are made before they are counted."""
_ERROR = 0.1


class SaintWeights(NamedTuple):
    """The weights that normalise any subgraph."""

    of_nodes: Array
    """(V,) float32: of a seed, divided by the seeds of the batch."""
    of_edges: Array
    """(E,) float32."""


class SaintSampler(SingleSubgraphSampler):
    """A batch is the subgraph induced by some random draws of nodes; sums over it are normalised, so that they estimate those over the graph.

    An epoch deals out subgraphs, as ``SingleSubgraphSampler`` says. Where the draws meet no node of the split they are made again, up to
    100 times. All that follows regards the law under this condition.

    Let p(v) and p(u, v) be the probabilities that a subgraph contains a node, and both ends of an edge u -> v. The edge weighs
    p(v) / p(u, v): over the subgraphs that contain v the weighted sum of its edges has the sum over all its in-edges as its mean (the paper's
    aggregator normalisation, for one layer; what a model makes of such sums has another mean). Not in the sum are in-edges from nodes that
    no draw hits. A seed weighs B / (N p(v)), with B seeds in the batch and N in the split: the mean of the weighted losses of a batch has as its
    mean the losses over the split, summed and divided by N (the paper's loss normalisation); a node of the split that no draw hits, an isolated
    one for instance, adds nothing to the sum.

    The paper counts both over subgraphs drawn beforehand. Here the draws of a subgraph are independent and alike, so that what one draw hits
    says all: with a, b and c the probabilities that it hits u, v and both, n draws hit both ends with probability
    1 - (1 - a)**n - (1 - b)**n + (1 - a - b + c)**n. For draws of nodes and edges a, b and c are known, and the weights are those of the
    exact probabilities, up to float32; for walks they are counted, see ``SaintWalkSampler``.

    Weights take 4 bytes a node and an edge, shared by the workers. They are the same for every seed of the user's.
    """

    def __init__(self, num_layers: int, normalise: bool, num_subgraphs: int | None) -> None:
        """As the classes below say."""
        super().__init__(num_layers)
        if num_subgraphs is not None and num_subgraphs < 1:
            raise InputError(f"num_subgraphs is {num_subgraphs}: an epoch has at least one; correct it")
        self.normalise = normalise
        self.num_subgraphs = num_subgraphs
        self._weights: SaintWeights | None = None

    def prepare(self, graph: Graph, seeds: Array) -> SaintSampler:
        """With what the draws need, and the weights; see ``Sampler.prepare``."""
        other = self.prepared_copy(graph, seeds)
        other._prepare_draws(graph)
        other._weigh(graph)
        return other

    def members(self, graph: Graph, items: Array, address: HopAddress, workspace: Workspace) -> Members:
        """The nodes of the subgraph at an address."""
        self.check_item(items)
        is_seed = self.split.is_seed
        for attempt in range(MAX_ATTEMPTS):
            members = members_of(graph, self._draw(graph, address, attempt, workspace), is_seed, workspace)
            if members.num_seeds:
                return members
        raise self.no_seed_met()

    def normalisation(self, members: Members, block: Block, workspace: Workspace) -> tuple[Array | None, Array | None]:
        """The weights of the edges and of the seeds."""
        if self._weights is None:
            return None, None
        weights = workspace.array("weights", block.num_edges, np.float32)
        kernels.edge_weights(block.edge_ids, self._weights.of_edges, weights)
        seed_weights = workspace.array("seed_weights", members.num_seeds, np.float32)
        kernels.loss_weights(members.nodes, self._weights.of_nodes, seed_weights)
        return weights, seed_weights

    def no_seed_met(self) -> InputError:
        """The error for draws that do not meet the split."""
        return InputError(
            f"{MAX_ATTEMPTS} subgraphs in a row met none of the {len(self.split.seeds):,} nodes to train on: let {type(self).__name__} draw more"
        )

    @property
    def weights(self) -> SaintWeights | None:
        """What normalises any subgraph; None before ``prepare``, and without normalisation."""
        return self._weights

    @abstractmethod
    def _prepare_draws(self, graph: Graph) -> None:
        """Compute what the draws need."""

    @abstractmethod
    def _draw(self, graph: Graph, address: HopAddress, attempt: int, workspace: Workspace) -> Array:
        """The drawn nodes (K,), each as often as it was drawn; a view of the workspace."""

    @abstractmethod
    def _rates(self, graph: Graph, pairs: Array) -> Rates:
        """What a draw hits. Fills ``pairs`` (E,) float32, zeros, with the probability that it hits both ends of an edge, unless it is empty."""

    def _weigh(self, graph: Graph) -> None:
        """Compute the weights, and how many subgraphs have as many seeds as the split."""
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
    """``budget`` draws of a node or of an edge, with replacement."""

    def __init__(self, budget: int, num_layers: int = 2, normalise: bool = True, num_subgraphs: int | None = None) -> None:
        """State the budget.

        Args:
            budget: draws of a subgraph; it has at most as many nodes, or twice as many where edges are drawn.
            num_layers: layers of the model: blocks of a batch.
            normalise: whether edges and seeds have weights.
            num_subgraphs: subgraphs of an epoch; by default an epoch has as many seeds as the split, on average.

        Raises:
            InputError: a number out of range.
        """
        super().__init__(num_layers, normalise, num_subgraphs)
        self.budget: int = check_draws(budget, "budget")


class SaintNodeSampler(BudgetSampler):
    """``budget`` draws of a node with replacement, v with probability proportional to the sum of 1 / d(w)**2 over its edges v -> w.

    d(w) is the in-degree of w: with A the matrix that takes means over in-edges, the law is ||A(:, v)||**2 (each copy of a multi-edge
    counting by itself). A node without out-edges is never drawn. Units, batches and weights as in ``SaintSampler``.

    Examples:
        >>> from hoptrain import SaintNodeSampler, SampleLoader, load_dataset
        >>> batch = next(iter(SampleLoader(load_dataset("digits-knn"), SaintNodeSampler(200), batch_size=1)))
        >>> len(batch.node_ids), batch.num_seeds, batch.num_edges  # distinct nodes, those of the split among them, edges between them
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
        """By the masses of the alias table, whole numbers; a draw hits one node."""
        masses, is_seed = np.empty(graph.num_nodes, np.int64), self.split.is_seed
        inclusion.table_masses(*self.tables, masses)
        whole = graph.num_nodes << 32
        hits = masses / whole
        return Rates(self.budget, hits, np.where(is_seed, 0.0, hits), int(masses[~is_seed].sum()) / whole)


class SaintEdgeSampler(BudgetSampler):
    """``budget`` draws of an edge with replacement; the subgraph has the ends of all of them, and every edge between them.

    An edge is drawn as an in-edge, uniform, of a node that is uniform among those that have any: u -> v with probability proportional to
    1 / d(v), d being the in-degree. In a graph that has every edge in both directions u and v are thus drawn together with probability
    proportional to 1 / d(u) + 1 / d(v), the paper's law for such graphs. Units, batches and weights as in ``SaintSampler``.

    Examples:
        >>> from hoptrain import SaintEdgeSampler, SampleLoader, load_dataset
        >>> batch = next(iter(SampleLoader(load_dataset("digits-knn"), SaintEdgeSampler(100), batch_size=1)))
        >>> len(batch.node_ids), batch.num_seeds, batch.num_edges  # distinct nodes, those of the split among them, edges between them
        (187, 97, 406)
    """

    ends: Array = np.zeros(0, np.int32)

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        self.ends = np.flatnonzero(graph.in_degrees()).astype(graph.indices.dtype)

    def _draw(self, graph: Graph, address: HopAddress, attempt: int, workspace: Workspace) -> Array:
        return _draw_walks(graph, self.budget, 1, self.ends, address, attempt, workspace)

    def _rates(self, graph: Graph, pairs: Array) -> Rates:
        """By the degrees; a draw hits both ends of an edge."""
        hits, outside = np.empty((2, graph.num_nodes))
        missed = inclusion.edge_rates(graph.indptr, graph.indices, len(self.ends), self.split.is_seed, hits, outside)
        if len(pairs):
            turned = np.empty(graph.num_nodes + 1, np.int64), np.empty_like(graph.indices)
            inclusion.turn_round(graph.indptr, graph.indices, *turned)
            inclusion.edge_pair_rates(graph.indptr, graph.indices, len(self.ends), *turned, np.empty(graph.num_nodes), pairs)
        return Rates(self.budget, hits, outside, missed)


class SaintWalkSampler(SaintSampler):
    """The nodes of ``num_roots`` random walks of ``walk_length`` steps, from roots drawn with replacement, uniformly from the split.

    A step takes a uniform in-edge to its source, so that a walk goes where messages come from; a node without in-edges is stayed at. (The
    paper draws roots from all nodes of its training graph, of which all carry loss.) Units, batches and weights as in ``SaintSampler``.

    What a walk hits is counted over k walks from each node of the split, k being doubled until the stated ``error`` is reached: k N walks
    say as much as k N / num_roots subgraphs, and more, since only what one walk visits is left to chance, not which walks meet in a subgraph.

    * A node of the split is the root of its own k walks: the standard error of its probability is at most 1 / (2 sqrt(k)) of it, whatever
      the graph. k is at least 1 / (4 error**2).
    * The probabilities of edges have an estimated relative standard error of at most ``error``: root mean square over the edges between visited
      nodes, each as often as walks visit the node that it enters.

    An inverse has a bias of the square of such an error; counts are rounded up by what removes most of it (``hoptrain.kernels.cpu.subgraphs.visits``). An
    edge of which no walk visited both ends has the probability that two walks do, and that of up to one walk in k N. So the in-edges of
    nodes that a batch hardly ever has weigh less than they should, and those whose sources no walk visits are not in the sum at all. (On
    batches of 5 % of four real graphs' nodes all sums together came within 0.5 %; from the 60 training nodes of PubMed, 2 % of the
    graph, within 2 %, and with an ``error`` of 0.05 within 0.6 %.) Counting takes about 2 microseconds a walk on one core.

    Examples:
        >>> from hoptrain import SaintWalkSampler, SampleLoader, load_dataset
        >>> batch = next(iter(SampleLoader(load_dataset("digits-knn"), SaintWalkSampler(50, walk_length=3), batch_size=1)))
        >>> len(batch.node_ids), batch.num_seeds, batch.num_edges  # distinct nodes, those of the split among them, edges between them
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
        """State the walks.

        Args:
            num_roots: walks of a subgraph.
            walk_length: steps of a walk; a subgraph has at most ``num_roots * (walk_length + 1)`` nodes.
            num_layers: layers of the model: blocks of a batch.
            normalise: whether edges and seeds have weights.
            num_subgraphs: subgraphs of an epoch; by default an epoch has as many seeds as the split, on average.
            error: relative standard error of the probabilities, between 0 and 1; by default 0.1. Half of it takes about four times the walks.

        Raises:
            InputError: a number out of range, or an error of weights that are not wanted.
        """
        super().__init__(num_layers, normalise, num_subgraphs)
        if walk_length < 1:
            raise InputError(f"walk_length is {walk_length}: a walk has at least one step; correct it")
        check_draws(num_roots * (walk_length + 1), "num_roots * (walk_length + 1)")
        if error is not None and not normalise:
            raise InputError(f"error is {error} with normalise=False: there are no weights that could have it; leave it out")
        if error is not None and not 0 < error < 1:
            raise InputError(f"error is {error}: it is a relative standard error, between 0 and 1; correct it")
        self.num_roots = num_roots
        self.walk_length = walk_length
        self.error: float = _ERROR if error is None else error

    def _draw(self, graph: Graph, address: HopAddress, attempt: int, workspace: Workspace) -> Array:
        return _draw_walks(graph, self.num_roots, self.walk_length, self.split.seeds, address, attempt, workspace)

    def _prepare_draws(self, graph: Graph) -> None:
        return

    def _rates(self, graph: Graph, pairs: Array) -> Rates:
        """By counts; see the class. A walk begins in the split."""
        num_seeds, is_seed = len(self.split.seeds), self.split.is_seed
        hits, times = np.empty(graph.num_nodes), np.zeros(graph.num_nodes, np.int64)
        together = np.zeros(len(pairs), np.uint32)
        done, goal = 0, least_walks(self.error)
        while done < goal:
            if goal * num_seeds > _MOST_WALKS:
                raise InputError(f"error is {self.error}: it takes more than {_MOST_WALKS:,} walks from {num_seeds:,} nodes; raise it")
            for turn in range(done, goal):
                self._count_walks(graph, turn, times, together)
            done = goal
            visits.walk_rates(done * num_seeds, done, is_seed, times, hits)
            if len(pairs):
                error = visits.walk_pair_rates(graph.indptr, graph.indices, self.num_roots, done * num_seeds, hits, together, pairs)
                goal *= 2 if error > self.error**2 else 1
        return Rates(self.num_roots, hits, np.zeros(graph.num_nodes), 0.0)

    def _count_walks(self, graph: Graph, turn: int, times: Array, together: Array) -> None:
        """One walk more from each node of the split."""
        workspace, seeds, stride = Workspace(), self.split.seeds, self.walk_length + 1
        bits = bitmap(graph.num_nodes, workspace)
        bits[:] = 0
        address = HopAddress(np.uint64(0), np.uint64(0), np.uint64(turn), HOP_PRESAMPLE)
        for number, first in enumerate(range(0, len(seeds), _SLICE)):
            roots = seeds[first : first + _SLICE]
            walks = _draw_walks(graph, len(roots), self.walk_length, roots, address, number, workspace, in_turn=True)
            visits.count_visits(walks, stride, graph.indptr, graph.indices, graph.is_sorted, bits, times, together)


def least_walks(error: float) -> int:
    """Walks from each root by which the probability of a root has the error, a power of two."""
    least = 1
    while 4 * least * error**2 < 1:
        least *= 2
    return least


def check_draws(number: int, name: str) -> int:
    """A number of draws, in range."""
    if not 0 < number < _MOST_DRAWS:
        raise InputError(f"{name} is {number}: a subgraph takes 1 to {_MOST_DRAWS - 1} draws; correct it")
    return number


def check_edges(graph: Graph) -> None:
    """Refuse a graph that no edge can be drawn from, or whose nodes an alias table cannot number."""
    if graph.num_edges == 0:
        raise InputError("the graph has no edges: there is nothing to draw by; take another sampler")
    if graph.num_nodes >= _MOST_DRAWS:
        raise InputError(f"the graph has {graph.num_nodes:,} nodes: draws by weight take fewer than {_MOST_DRAWS:,}; use SaintWalkSampler")


def _draw_walks(
    graph: Graph, number: int, length: int, roots: Array, address: HopAddress, attempt: int, workspace: Workspace, in_turn: bool = False
) -> Array:
    drawn, words, lanes = _scratch(graph, number, length, workspace)
    kernels.draw_walks(number, length, address, attempt, roots, in_turn, graph.indptr, graph.indices, words, lanes, drawn)
    return drawn


def _scratch(graph: Graph, number: int, length: int, workspace: Workspace) -> tuple[Array, Array, Array]:
    """Room for the drawn nodes (number * (length+1),), random words, and (CHUNK,) int64."""
    shape = kernels.words_shape(length)
    words = workspace.array("words", shape[0] * shape[1], np.uint32).reshape(shape)
    return workspace.array("drawn", number * (length + 1), graph.indices.dtype), words, workspace.array("lanes", kernels.CHUNK, np.int64)
