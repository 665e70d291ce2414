"""LABOR, layer-neighbour sampling (Balin & Çatalyürek, "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs", NeurIPS 2023)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine import Graph, HeteroGraph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.errors import explain_keywords
from hoptrain.engine.hetero_graph import Relation
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.columns import copy_columns, total_degree
from hoptrain.kernels.cpu.nodewise import importance, labor_weighted
from hoptrain.kernels.cpu.nodewise import labor as kernels
from hoptrain.kernels.shared.draws import ALL, fanout_code, wanted
from hoptrain.samplers.base import FanoutSampler
from hoptrain.samplers.batch.minibatch import ONLY
from hoptrain.samplers.buffers.alias import weights_of
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_fanouts
from hoptrain.samplers.hetero import Fanouts, HeteroFanoutSampler, no_relation_has_weights
from hoptrain.samplers.hops import Drawn, EdgeReader, GrowingBatch, Request, Step

_MOST_ROUNDS = 100
MIN_CAPACITY = 1024
"""Number of edges for which a hop allocates memory at first, in addition to the expected number."""
EDGES_PER_WORD = 2
"""Minimum number of edges that a hop reads, per node of the graph, for which the random words of all nodes are computed in advance."""


class LaborDraws(NamedTuple):
    """LABOR's draws along one relation; without importances they implement ``hoptrain.samplers.hops.AloneDraws``.

    Attributes:
        fanouts: number or share of edges for each hop.
        importance_rounds: i of LABOR-i.
        weighted: whether the weights of the relation's edges are used.
        number: number of the source type, whose random numbers all relations share.
        num_sources: number of nodes of the source type.
    """

    fanouts: tuple[int | float, ...]
    importance_rounds: int
    weighted: bool
    number: int
    num_sources: int

    @property
    def has_weights(self) -> bool:
        """True: the weight of an edge is the inverse of its probability."""
        return True

    @property
    def needs_weight(self) -> bool:
        """False: a graph whose weights are all 0 can be sampled."""
        return False

    def sample(self, batch: GrowingBatch, steps: Sequence[Step[LaborDraws]]) -> list[Drawn]:
        """Draw the edges of all steps of a hop, one relation after the other."""
        return [step.draws._sample(batch, step) for step in steps]

    def _sample(self, batch: GrowingBatch, step: Step[LaborDraws]) -> Drawn:
        if not self.fanouts[step.hop]:
            edges = batch.buffers(step, 0)
            return Drawn(edges.indptr, edges.edge_ids, edges.indices, np.zeros(0, np.float32))
        sources, destinations = batch.frontiers[step.relation[0]], batch.frontiers[step.relation[2]]
        found = self._hop(batch.columns[step.relation], step.hop, destinations, sources, step.last, batch.at(step)).keep(step.name)
        sources.relabel(found.sources)
        return found

    def _hop(
        self, columns: RelationColumns, hop: int, destinations: Frontier, sources: Frontier, num_dst: int, address: HopAddress
    ) -> LaborHop:
        fanout, weights = fanout_code(self.fanouts[hop]), weights_of(columns) if self.weighted else None
        number, rounds = (fanout, self.importance_rounds) if fanout != ALL else (columns.num_edges, 0)
        return LaborHop(columns, destinations, sources, num_dst, address, number, rounds, weights)

    def arrays(self, columns: RelationColumns) -> dict[str, Array]:
        """Return the arrays that the draws read: the sources and, with ``weighted``, the weights.

        Raises:
            InputError: ``weighted``, and the relation has no weights.
        """
        weights = {"weights": weights_of(columns)} if self.weighted else {}
        return {"indices": columns.indices, **weights}

    def read(self, files: EdgeReader, hop: int, requests: Sequence[Request]) -> list[Drawn]:
        """Draw the edges of one hop of several batches from files, which reads whole columns."""
        if not self.fanouts[hop]:
            return files.nothing(requests)
        return files.from_columns(self, hop, requests, ("indices", "weights") if self.weighted else ("indices",))

    def draw(self, columns: RelationColumns, hop: int, request: Request, workspace: Workspace) -> Drawn:
        """Draw the edges of a request from columns in memory; sources are global ids."""
        nodes, dtype = request.nodes, columns.indices.dtype
        destinations = Frontier(workspace, workspace.table, columns.num_nodes, dtype, "drawn.nodes")
        destinations.enter_seeds(nodes)
        sources = Frontier(
            workspace, workspace.table, self.num_sources, dtype, "drawn.from"
        )  # reuses the relabelling table, which destinations no longer need
        sources.enter_seeds(nodes[:0])
        return self._hop(columns, hop, destinations, sources, len(nodes), request.address).keep("drawn")


@explain_keywords
class LaborSampler(FanoutSampler):
    """A LABOR sampler that keeps, in every hop, about ``fanout`` in-edges of each node reached so far, from as few different sources as possible.

    All destinations of a hop share one random number r_u for each source u, uniform in [0, 1). The edge u -> v is kept if
    r_u < min(1, c_v pi_u), so destinations with common neighbours tend to keep the same ones. For a destination of degree d > fanout, c_v solves

        sum over its in-edges of 1 / min(1, c_v pi_u) = d**2 / fanout,

    which gives its estimate the variance of ``fanout`` draws of d. A destination with d <= fanout keeps all its edges. LABOR-0 has pi = 1 and
    c_v = fanout / d. LABOR-i multiplies each pi_u i times by the largest c of the destinations of u, which lowers the number of sources.

    The number of edges is random; for LABOR-0 its mean is ``fanout``. The weight of an edge is 1 / min(1, c_v pi_u). Parallel edges are
    kept together. Each hop has its own r, so the estimate over all hops is unbiased.

    ``weighted`` is the paper's extension to a matrix A of weights, those of the graph: the blocks estimate the sum of A_uv x_u. At first pi of
    an edge is its weight A; each round sets pi_u to the largest c_v pi_uv of the destinations of u. For a destination with d > fanout edges of
    positive weight, whose sum is S, c_v solves

        sum over its in-edges of A**2 / min(1, c_v pi) = S**2 (1 / fanout - 1 / d) + sum of A**2.

    The weight of an edge is A / min(1, c_v pi). Edges with A = 0 are ignored, and parallel edges count as separate edges.

    Examples:
        >>> from hoptrain import LaborSampler, NeighborSampler, load_dataset
        >>> graph = load_dataset("digits-knn").graph
        >>> batch = LaborSampler([5, 5]).sample(graph, range(64), seed=1)
        >>> len(batch.node_ids), len(NeighborSampler([5, 5]).sample(graph, range(64), seed=1).node_ids)  # fewer nodes
        (636, 802)
        >>> batch.blocks[-1].weights[:3]
        array([3., 3., 3.], dtype=float32)
    """

    def __init__(self, fanouts: Sequence[int | float], importance_rounds: int = 0, weighted: bool = False) -> None:
        """Check and keep the options.

        Args:
            fanouts: in-edges kept for each node on average, one number for each hop, from the seeds outward. -1 takes all edges; a float above 0
                and at most 1.0 is a share, ceil(share * degree), only with ``importance_rounds`` 0 and without weights.
            importance_rounds: rounds of importance optimisation, i of LABOR-i, in [0, 100]. More rounds give fewer nodes and take longer.
            weighted: estimate sums weighted by the edge weights ``Graph.weights``; on the CPU only.

        Raises:
            InputError: there is no hop, a fanout is neither positive nor -1 nor a share, a share is given with importances or weights, or the
                number of rounds is out of range.
        """
        self.fanouts: tuple[int | float, ...] = check_fanouts(fanouts, 1 << 31)
        self.importance_rounds: int = check_rounds(importance_rounds)
        check_shares(self.fanouts, importance_rounds, weighted)
        self.weighted = weighted

    def along(self, graph: Graph) -> Mapping[Relation, LaborDraws]:
        """Return, for the graph's only relation, the object that draws its edges."""
        return {ONLY: LaborDraws(self.fanouts, self.importance_rounds, self.weighted, 0, graph.num_nodes)}

    def draws_alone(self, graph: Graph) -> LaborDraws:
        """Return the draws of the only relation, which need only the in-edges of the drawing nodes.

        Raises:
            InputError: ``importance_rounds`` is not 0, so the draws need all edges of a hop.
        """
        if self.importance_rounds:
            raise InputError(
                f"importance_rounds is {self.importance_rounds} on a partitioned graph: importances need all edges of a hop on one machine; use 0, "
                "or partition only the features"
            )
        return self.along(graph)[ONLY]


class HeteroLaborSampler(HeteroFanoutSampler):
    """A LABOR sampler of heterogeneous graphs that keeps, by every relation, about ``fanout`` in-edges of each node reached so far, from few sources.

    Each relation has the distribution of ``LaborSampler``. With LABOR-0 an edge u -> v is kept if r_u < min(1, fanout / d), where d is the in-degree
    of v by the relation, and its weight is the inverse of that probability. Importances are computed from the edges of one relation. All relations
    of a hop share the random number r_u of a node u, as in DGL, so they tend to keep the same sources; the estimate of each relation is unbiased.
    Sources of type number k (in the graph's order) have the random numbers of hop 16 k + h: for a single type and relation the blocks are
    bit-identical to those of ``LaborSampler``.
    """

    def __init__(
        self,
        fanouts: Fanouts,
        seed_type: str | None = None,
        *,
        importance_rounds: int = 0,
        weighted: bool = False,
        default: Sequence[int | float] | None = None,
    ) -> None:
        """Check and keep the options.

        Args:
            fanouts: in-edges kept for each node on average, one number for each hop, from the seeds outward, for all relations; or such a list for each
                relation, by "source:name:destination" or the tuple of the three. -1 takes all edges, 0 leaves the relation out of a hop, and a
                float above 0 and at most 1.0 is a share of the node's edges of the relation, rounded up.
            seed_type: node type of the seeds; None if they may be of several types.
            importance_rounds: rounds of importance optimisation, i of LABOR-i, in [0, 100]. More rounds give fewer nodes and take longer.
            weighted: estimate sums weighted by the edge weights, in the relations that have weights.
            default: fanouts of the relations that ``fanouts`` does not name. Without it ``fanouts`` must name every relation.

        Raises:
            InputError: there is no hop or more than 16, lists differ in length, a fanout or the number of rounds is out of range, or a share is given
                with importances or weights.
        """
        super().__init__(fanouts, seed_type, default, 1 << 31)
        self.importance_rounds: int = check_rounds(importance_rounds)
        self.weighted: bool = weighted
        check_shares((fanout for own in self.fanouts.values() for fanout in own), importance_rounds, weighted)

    def __repr__(self) -> str:
        further = f", importance_rounds={self.importance_rounds}" * bool(self.importance_rounds) + ", weighted=True" * self.weighted
        return f"HeteroLaborSampler(fanouts={self._shown_fanouts()}, seed_type={self.seed_type!r}{further})"

    def along(self, graph: HeteroGraph) -> Mapping[Relation, LaborDraws]:
        """Return the draws along each relation.

        Raises:
            InputError: the fanouts do not fit the graph's relations, or ``weighted`` and no relation has weights.
        """
        if self.weighted and all(columns.weights is None for columns in graph.relations.values()):
            raise no_relation_has_weights()
        rounds, fanouts = self.importance_rounds, self.fanouts_of(graph)
        numbers = {kind: number for number, kind in enumerate(graph.num_nodes)}
        return {
            relation: LaborDraws(own, rounds, self.weighted and columns.weights is not None, numbers[relation[0]], columns.num_src)
            for (relation, own), columns in zip(fanouts.items(), graph.relations.values(), strict=True)
        }


def check_rounds(number: int) -> int:
    """Return ``importance_rounds``, checked to be in range.

    Raises:
        InputError: ``number`` is out of range.
    """
    if not 0 <= number <= _MOST_ROUNDS:
        raise InputError(f"importance_rounds is {number}: it must be in [0, {_MOST_ROUNDS}]; give for instance 0 or 1")
    return number


def check_shares(fanouts: Iterable[int | float], importance_rounds: int, weighted: bool) -> None:
    """Raise ``InputError`` if a fanout is a share of the degree and importances or weights are used, whose rounds assume one fanout for all nodes.

    Raises:
        InputError: a fanout is a share, and ``importance_rounds`` is not 0 or ``weighted`` is true.
    """
    for fanout in fanouts:
        if isinstance(fanout, float) and (importance_rounds or weighted):
            option = "weighted=True" if weighted else f"importance_rounds={importance_rounds}"
            raise InputError(
                f"fanout {fanout} with {option}: only unweighted LABOR-0 takes a share of the degree; give a number of edges, or leave the option out"
            )


@dataclass(frozen=True, eq=False, slots=True)
class LaborHop:
    """The draws of one hop along one relation, whose sources and destinations may be of two types.

    Attributes:
        graph: columns of the relation.
        frontier: nodes of the destination type.
        sources: nodes of the source type; the same object in a homogeneous graph.
        num_dst: number of destinations, which are the first nodes of ``frontier``.
        address: address of the sources' random numbers.
        fanout: number of edges wanted into each destination, or the code of a share; not -1.
        rounds: i of LABOR-i.
        weights: (E,) weights of the edges, or None.
    """

    graph: RelationColumns
    frontier: Frontier
    sources: Frontier
    num_dst: int
    address: HopAddress
    fanout: int
    rounds: int = 0
    weights: Array | None = None

    def keep(self, name: str) -> Drawn:
        """Return the edges that are kept, with global ids of sources, in arrays of the workspace whose names end in ``name``."""
        kept, num_edges = (self._by_importance if self.rounds or self.weights is not None else self._evenly)(name)
        return Drawn(kept.indptr, kept.edge_ids[:num_edges], kept.sources[:num_edges], kept.weights[:num_edges])

    def _evenly(self, name: str) -> tuple[kernels.KeptEdges, int]:
        frontier, graph, last, number = self.frontier, self.graph, self.num_dst, self.sources.num_graph_nodes
        nodes, array = frontier.nodes(), frontier.workspace.array
        if self._pays(total_degree(graph.indptr, nodes, last)):
            word_of, high_of = array("labor.words", number, np.uint32), array("labor.highs", number, np.uint8)
            kernels.all_words(self.address, word_of, high_of)
            chosen = array("labor.chosen", kernels.LANES, np.int32)

            def keep(cursor: kernels.Cursor, kept: kernels.KeptEdges) -> Any:
                return kernels.keep_evenly_known(
                    graph.indptr, graph.indices, nodes, cursor, last, self.fanout, word_of, high_of, chosen, kept
                )  # fmt: skip
        else:
            sources, words = array("labor.sources", kernels.LANES, graph.indices.dtype), array("labor.lanes", kernels.LANES, np.uint32)

            def keep(cursor: kernels.Cursor, kept: kernels.KeptEdges) -> Any:
                return kernels.keep_evenly(
                    graph.indptr, graph.indices, nodes, cursor, last, self.fanout, self.address, sources, words, kept
                )

        return self._keep_all(name, keep)

    def _pays(self, num_edges: int) -> bool:
        """Return whether a hop with ``num_edges`` candidate edges should first compute the random words of all nodes of the graph."""
        return num_edges >= EDGES_PER_WORD * self.sources.num_graph_nodes

    def _by_importance(self, name: str) -> tuple[kernels.KeptEdges, int]:
        """Keep edges by the importances of their sources.

        If the hop reads few edges, all candidates become nodes temporarily, so that the arrays of importances have only their size.
        """
        frontier, graph, num_dst, before = self.sources, self.graph, self.num_dst, self.sources.num_nodes
        array, nodes = frontier.workspace.array, self.frontier.nodes()[:num_dst]
        begins = graph.indptr[nodes].astype(np.int64)
        degrees = graph.indptr[nodes + 1] - begins
        total = int(degrees.sum())
        sources, candidates = None, graph.indices
        if not self._pays(total):
            ends, candidates = array("ends", num_dst + 1, np.int64), array("candidates", total, graph.indices.dtype)
            copy_columns(graph.indptr, graph.indices, nodes, num_dst, ends, candidates)
            frontier.relabel(candidates)
            sources, begins = frontier.nodes(), ends[:-1]
        known = self._known(sources)
        most = int(degrees.max(initial=0))
        column = importance.ColumnBuffers(
            *(array(f"labor.{what}", most, np.float64) for what in ("importances", "column_words", "inverses"))
        )
        chosen, columns = array("labor.chosen", most, np.int32), importance.LaborColumns(begins, degrees, candidates)
        if self.weights is None:
            importance.find_importances(columns, self.fanout, self.rounds, known, column)
        else:
            firsts = graph.indptr[nodes].astype(np.int64)
            labor_weighted.find_importances(columns, firsts, self.weights, self.fanout, self.rounds, known, column)

        def keep(cursor: kernels.Cursor, kept: kernels.KeptEdges) -> Any:
            among = graph.indptr, graph.indices, nodes, columns, cursor
            if self.weights is None:
                return importance.keep_by_importance(*among, self.fanout, known, column, chosen, kept)
            return labor_weighted.keep_by_weight(*among, self.weights, self.fanout, self.rounds, known, column, kept)

        frontier.num_nodes = before
        found = self._keep_all(name, keep)
        if sources is not None:
            frontier.forget(before)
        return found

    def _known(self, sources: Array | None) -> importance.LaborSources:
        """Return the arrays of words and importances of the ``sources`` (N,), global ids, or of all nodes; the words are filled in."""
        array = self.frontier.workspace.array
        number = self.sources.num_graph_nodes if sources is None else len(sources)
        known = importance.LaborSources(
            least=array("labor.least", number, np.uint32),
            factor=array("labor.factor", number if self.rounds > (self.weights is None) else 0, np.float64),
            values=array("labor.values", 2 * number, np.float64).reshape(number, 2),
        )
        words = array("labor.words", number, np.uint32)
        if sources is None:
            kernels.all_words(self.address, words, array("labor.highs", number, np.uint8))
        else:
            kernels.source_words(sources, number, self.address, words)
        importance.enter_words(words, known)
        return known

    def _keep_all(self, name: str, keep: Callable[[kernels.Cursor, kernels.KeptEdges], Any]) -> tuple[kernels.KeptEdges, int]:
        """Run a kernel until all destinations are done, and double its buffers whenever they are full."""
        graph, workspace, num_dst = self.graph, self.frontier.workspace, self.num_dst
        indptr = workspace.array(f"indptr{name}", num_dst + 1, id_dtype(graph.num_edges + 1))
        indptr[0] = 0
        dtypes = {"edge_ids": id_dtype(graph.num_edges), "indices": graph.indices.dtype, "weights": np.dtype(np.float32)}
        cursor, is_done = kernels.Cursor(0, 0, 0), False
        mean = -(-graph.num_edges // max(1, graph.num_nodes))
        capacity = num_dst * min(wanted(mean, self.fanout), mean) + MIN_CAPACITY
        while not is_done:
            capacity *= 2
            arrays = [workspace.array(f"{what}{name}", capacity, dtype, keep=cursor.num_edges) for what, dtype in dtypes.items()]
            cursor = kernels.Cursor(*keep(cursor, kernels.KeptEdges(indptr, *arrays)))
            is_done = cursor.destination == num_dst
        return kernels.KeptEdges(indptr, *arrays), cursor.num_edges
