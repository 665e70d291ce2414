"""GraphSAINT's samplers of subgraphs (Zeng, Zhou, Srivastava, Kannan, Prasanna 2020, "GraphSAINT: graph sampling based inductive learning method")."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu import alias
from hoptrain.kernels.cpu import saint as kernels
from hoptrain.kernels.cpu.neighbor import Address
from hoptrain.kernels.shared.philox import HOP_PRESAMPLE
from hoptrain.samplers.alias import NO_TABLES, AliasTables
from hoptrain.samplers.minibatch import Block
from hoptrain.samplers.subgraph import MAX_ATTEMPTS, Members, SubgraphSampler, check_one_unit, induced, members_of
from hoptrain.samplers.workspace import Workspace

if TYPE_CHECKING:
    from hoptrain.samplers.cuda.subgraph import CudaSubgraphs, Drawing

_COVERAGE = 20
"""How often presampling meets a vertex of the graph on average, where its number of subgraphs is not given."""
_TRIALS = 20
"""Subgraphs that tell how many seeds one has, where nothing is presampled."""
_MOST_DRAWS = 1 << 31


class Counts(NamedTuple):
    """In how many of ``number`` presampled subgraphs each vertex and each edge was."""

    number: int
    of_nodes: Array
    """(V,) uint32."""
    of_edges: Array
    """(E,) uint32."""


class SaintSampler(SubgraphSampler):
    """A batch is the subgraph induced by some random draws of vertices; sums over it are normalised, so that they estimate those over the graph.

    The units that an epoch deals out are subgraphs, ``num_subgraphs`` of them; a batch is one: the loader's ``batch_size`` is 1. Where the
    draws meet no vertex of the split they are made again, up to 100 times. All that follows regards the law under this condition.

    Let p(v) and p(e) be the probabilities that a subgraph contains a vertex and an edge. They are estimated by P subgraphs that are drawn
    beforehand, of which C(v) and C(e) contain the vertex and the edge. An edge e into v weighs (C(v) + 1) / (C(e) + 1), an estimate of
    p(v) / p(e): over the subgraphs that contain v the weighted sum of its edges estimates the sum over all its in-edges (the paper's
    aggregator normalisation). A seed weighs B / N * (P + 1) / (C(v) + 1), with B seeds in the batch and N in the split: the mean of the
    weighted losses of a batch estimates the mean loss over the split (the paper's loss normalisation). Counting the batch itself as one more
    presampled subgraph keeps all weights finite, and makes the bias small and known: an estimate falls short by the factor
    1 - (1 - p(v))**(P + 1), the aggregator's by 1 - (1 - p(e) / p(v))**(C(v) + 1).

    Presampling costs 4 bytes a vertex and an edge, shared by the workers. It is the same for every seed of the user's.
    """

    one_unit = True

    def __init__(self, num_layers: int, presample: int | None, num_subgraphs: int | None) -> None:
        """As the classes below say."""
        super().__init__(num_layers)
        if presample is not None and presample < 0:
            raise InputError(f"presample is {presample}: it is a number of subgraphs, 0 for no normalisation; correct it or leave it out")
        if num_subgraphs is not None and num_subgraphs < 1:
            raise InputError(f"num_subgraphs is {num_subgraphs}: an epoch has at least one; correct it or leave it out")
        self.presample = presample
        self.num_subgraphs = num_subgraphs
        self._counts: Counts | None = None

    def prepare(self, graph: Graph, seeds: Array) -> SaintSampler:
        """With what the draws need, and presampled; see ``Sampler.prepare``."""
        other = self.prepared_copy(graph, seeds)
        other._prepare_draws(graph)
        other._presample(graph)
        return other

    def units(self, graph: Graph, seeds: Array) -> Array:
        """Numbers of subgraphs: by default so many that an epoch has as many seeds as the split, on average."""
        return np.arange(self.num_units)

    def members(self, graph: Graph, units: Array, address: Address, workspace: Workspace) -> Members:
        """The vertices of the subgraph at an address."""
        check_one_unit(units, self.num_units, self)
        return self._draw_members(graph, address, workspace)

    def normalisation(self, members: Members, block: Block, workspace: Workspace) -> tuple[Array | None, Array | None]:
        """The weights of the edges and of the seeds by the counts."""
        counts = self._counts
        if counts is None:
            return None, None
        weights = workspace.array("weights", block.num_edges, np.float32)
        kernels.edge_weights(members.nodes, block.indptr, block.edge_ids, counts.of_nodes, counts.of_edges, weights)
        seed_weights = workspace.array("seed_weights", members.num_seeds, np.float32)
        scale = members.num_seeds * (counts.number + 1) / len(self.split.seeds)
        kernels.loss_weights(members.nodes, counts.of_nodes, scale, seed_weights)
        return weights, seed_weights

    def _prepare_draws(self, graph: Graph) -> None:
        """Compute what the draws need."""
        return

    @abstractmethod
    def _draw(self, graph: Graph, address: Address, attempt: int, workspace: Workspace) -> Array:
        """The drawn vertices (K,), each as often as it was drawn; a view of the workspace."""

    def _draw_members(self, graph: Graph, address: Address, workspace: Workspace) -> Members:
        is_seed = self.split.is_seed
        for attempt in range(MAX_ATTEMPTS):
            members = members_of(graph, self._draw(graph, address, attempt, workspace), is_seed, workspace)
            if members.num_seeds:
                return members
        raise self.no_seed_met()

    def no_seed_met(self) -> InputError:
        """The error for draws that do not meet the split."""
        return InputError(
            f"{MAX_ATTEMPTS} subgraphs in a row met none of the {len(self.split.seeds):,} vertices to train on: let {type(self).__name__} draw more"
        )

    @property
    def counts(self) -> Counts | None:
        """What was counted for the weights; None without presampling."""
        return self._counts

    def _presample(self, graph: Graph) -> None:
        workspace = Workspace()
        of_nodes, of_edges = np.zeros(graph.num_nodes, np.uint32), np.zeros(graph.num_edges if self.presample != 0 else 0, np.uint32)
        number = num_vertices = num_seeds = 0
        while not self._is_enough(number, num_vertices / graph.num_nodes):
            address = Address(np.uint64(0), np.uint64(0), np.uint64(number), HOP_PRESAMPLE)
            members = self._draw_members(graph, address, workspace)
            if self.presample != 0:
                kernels.count_members(members.nodes, of_nodes)
                kernels.count_members(induced(graph, members, workspace).edge_ids, of_edges)
            number += 1
            num_vertices += len(members.nodes)
            num_seeds += members.num_seeds
        self._counts = Counts(number, of_nodes, of_edges) if self.presample != 0 else None
        if self.num_subgraphs is None:
            self.num_subgraphs = -(-len(self.split.seeds) * number // num_seeds)

    def _is_enough(self, number: int, coverage: float) -> bool:
        if self.presample is None:
            return coverage >= _COVERAGE
        return number >= (self.presample or _TRIALS)

    @property
    def num_units(self) -> int:
        """Subgraphs of an epoch; known once the split is."""
        return (self.num_subgraphs or 0) if self.split else 0


class SaintNodeSampler(SaintSampler):
    """``budget`` draws of a vertex with replacement, v with probability proportional to the sum of 1 / d(w)**2 over its edges v -> w.

    d(w) is the in-degree of w: with A the matrix that takes means over in-edges, the law is ||A(:, v)||**2 (each copy of a multi-edge
    counting by itself). A vertex without out-edges is never drawn. Units, batches and weights as in ``SaintSampler``.
    """

    def __init__(self, budget: int, num_layers: int = 2, presample: int | None = None, num_subgraphs: int | None = None) -> None:
        """State the budget.

        Args:
            budget: draws of a subgraph; it has at most as many vertices.
            num_layers: layers of the model: blocks of a batch.
            presample: subgraphs drawn beforehand for the weights; by default until a vertex has been in 20 of them on average; 0 leaves out
                all weights.
            num_subgraphs: subgraphs of an epoch; by default an epoch has as many seeds as the split, on average.

        Raises:
            InputError: a number out of range.
        """
        super().__init__(num_layers, presample, num_subgraphs)
        self.budget = check_draws(budget, "budget")
        self._tables: AliasTables = NO_TABLES

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        weights = np.empty(graph.num_nodes)
        kernels.squared_columns(graph.indptr, graph.indices, weights)
        self._tables = AliasTables(np.empty(graph.num_nodes, np.uint32), np.empty(graph.num_nodes, np.int32))
        alias.build_alias(np.array([0, graph.num_nodes]), weights, *self._tables)

    def drawing(self, work: CudaSubgraphs) -> Drawing:
        """By the alias table; see ``SubgraphSampler.drawing``."""
        from hoptrain.samplers.cuda.saint import VertexDrawing

        return VertexDrawing(self, work, self.budget, self._tables)

    def _draw(self, graph: Graph, address: Address, attempt: int, workspace: Workspace) -> Array:
        drawn, words, lanes = _scratch(graph, self.budget, 0, workspace)
        kernels.draw_weighted(self.budget, address, attempt, *self._tables, words, lanes, drawn)
        return drawn


class SaintEdgeSampler(SaintSampler):
    """``budget`` draws of an edge with replacement; the subgraph has the ends of all of them, and every edge between them.

    An edge is drawn as an in-edge, uniform, of a vertex that is uniform among those that have any: u -> v with probability proportional to
    1 / d(v), d being the in-degree. In a graph that has every edge in both directions u and v are thus drawn together with probability
    proportional to 1 / d(u) + 1 / d(v), the paper's law for such graphs. Units, batches and weights as in ``SaintSampler``.
    """

    def __init__(self, budget: int, num_layers: int = 2, presample: int | None = None, num_subgraphs: int | None = None) -> None:
        """State the budget.

        Args:
            budget: edges drawn for a subgraph; it has at most twice as many vertices.
            num_layers: layers of the model: blocks of a batch.
            presample: subgraphs drawn beforehand for the weights; by default until a vertex has been in 20 of them on average; 0 leaves out
                all weights.
            num_subgraphs: subgraphs of an epoch; by default an epoch has as many seeds as the split, on average.

        Raises:
            InputError: a number out of range.
        """
        super().__init__(num_layers, presample, num_subgraphs)
        self.budget = check_draws(budget, "budget")
        self._ends: Array = np.zeros(0, np.int32)

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        self._ends = np.flatnonzero(graph.in_degrees()).astype(graph.indices.dtype)

    def drawing(self, work: CudaSubgraphs) -> Drawing:
        """Walks of one step; see ``SubgraphSampler.drawing``."""
        from hoptrain.samplers.cuda.saint import WalkDrawing

        return WalkDrawing(self, work, self.budget, 1, self._ends)

    def _draw(self, graph: Graph, address: Address, attempt: int, workspace: Workspace) -> Array:
        return _draw_walks(graph, self.budget, 1, self._ends, address, attempt, workspace)


class SaintWalkSampler(SaintSampler):
    """The vertices of ``num_roots`` random walks of ``walk_length`` steps, from roots drawn with replacement, uniformly from the split.

    A step takes a uniform in-edge to its source, so that a walk goes where messages come from; a vertex without in-edges is stayed at. (The
    paper draws roots from all vertices of its training graph, of which all carry loss.) Units, batches and weights as in ``SaintSampler``.
    """

    def __init__(
        self, num_roots: int, walk_length: int = 2, num_layers: int = 2, presample: int | None = None, num_subgraphs: int | None = None
    ) -> None:
        """State the walks.

        Args:
            num_roots: walks of a subgraph.
            walk_length: steps of a walk; a subgraph has at most ``num_roots * (walk_length + 1)`` vertices.
            num_layers: layers of the model: blocks of a batch.
            presample: subgraphs drawn beforehand for the weights; by default until a vertex has been in 20 of them on average; 0 leaves out
                all weights.
            num_subgraphs: subgraphs of an epoch; by default an epoch has as many seeds as the split, on average.

        Raises:
            InputError: a number out of range.
        """
        super().__init__(num_layers, presample, num_subgraphs)
        if walk_length < 1:
            raise InputError(f"walk_length is {walk_length}: a walk has at least one step; correct it")
        check_draws(num_roots * (walk_length + 1), "num_roots * (walk_length + 1)")
        self.num_roots = num_roots
        self.walk_length = walk_length

    def drawing(self, work: CudaSubgraphs) -> Drawing:
        """Walks from the split; see ``SubgraphSampler.drawing``."""
        from hoptrain.samplers.cuda.saint import WalkDrawing

        return WalkDrawing(self, work, self.num_roots, self.walk_length, self.split.seeds)

    def _draw(self, graph: Graph, address: Address, attempt: int, workspace: Workspace) -> Array:
        return _draw_walks(graph, self.num_roots, self.walk_length, self.split.seeds, address, attempt, workspace)


def check_draws(number: int, name: str) -> int:
    """A number of draws, in range."""
    if not 0 < number < _MOST_DRAWS:
        raise InputError(f"{name} is {number}: a subgraph takes 1 to {_MOST_DRAWS - 1} draws; correct it")
    return number


def check_edges(graph: Graph) -> None:
    """Refuse a graph that no edge can be drawn from, or whose vertices an alias table cannot number."""
    if graph.num_edges == 0:
        raise InputError("the graph has no edges: there is nothing to draw by; take another sampler")
    if graph.num_nodes >= _MOST_DRAWS:
        raise InputError(
            f"the graph has {graph.num_nodes:,} vertices: draws by weight take fewer than {_MOST_DRAWS:,}; use SaintWalkSampler"
        )


def _draw_walks(graph: Graph, number: int, length: int, roots: Array, address: Address, attempt: int, workspace: Workspace) -> Array:
    drawn, words, lanes = _scratch(graph, number, length, workspace)
    kernels.draw_walks(number, length, address, attempt, roots, graph.indptr, graph.indices, words, lanes, drawn)
    return drawn


def _scratch(graph: Graph, number: int, length: int, workspace: Workspace) -> tuple[Array, Array, Array]:
    """Room for the drawn vertices (number * (length+1),), random words, and (CHUNK,) int64."""
    shape = kernels.words_shape(length)
    words = workspace.array("words", shape[0] * shape[1], np.uint32).reshape(shape)
    return workspace.array("drawn", number * (length + 1), graph.indices.dtype), words, workspace.array("lanes", kernels.CHUNK, np.int64)
