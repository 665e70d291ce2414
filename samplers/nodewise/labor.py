"""LABOR, layer-neighbour sampling (Balin & Çatalyürek, "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs", NeurIPS 2023)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine import Graph, HeteroGraph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
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
LEAST_ROOM = 1024
"""Edges beyond the expected number for which a hop reserves memory at first."""
EDGES_PER_WORD = 2
"""In-edges for each node of the graph from which the random words of all nodes are computed before, and then looked up."""


class LaborDraws(NamedTuple):
    """LABOR's draws along one relation; without importances they are ``hoptrain.samplers.hops.AloneDraws``.

    Attributes:
        fanouts: one a hop.
        importance_rounds: i of LABOR-i.
        weighted: whether edges have weights.
        number: of the sources' type, whose random numbers the relations share.
        num_sources: nodes of that type.
    """

    fanouts: tuple[int | float, ...]
    importance_rounds: int
    weighted: bool
    number: int
    num_sources: int

    @property
    def has_weights(self) -> bool:
        """True: an edge weighs the inverse of its probability."""
        return True

    @property
    def needs_weight(self) -> bool:
        """False: edges of weight 0 are kept or not like others."""
        return False

    def sample(self, batch: GrowingBatch, steps: Sequence[Step[LaborDraws]]) -> list[Drawn]:
        """Keep edges of all steps of a hop, one relation after the other."""
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
        """Return the sources, and the weights of edges that have some.

        Raises:
            InputError: there are no weights.
        """
        weights = {"weights": weights_of(columns)} if self.weighted else {}
        return {"indices": columns.indices, **weights}

    def read(self, files: EdgeReader, hop: int, requests: Sequence[Request]) -> list[Drawn]:
        """Draw from whole columns that are read from files."""
        if not self.fanouts[hop]:
            return files.nothing(requests)
        return files.from_columns(self, hop, requests, ("indices", "weights") if self.weighted else ("indices",))

    def draw(self, columns: RelationColumns, hop: int, request: Request, workspace: Workspace) -> Drawn:
        """Keep edges of a request from columns in memory, with global ids of sources."""
        nodes, dtype = request.nodes, columns.indices.dtype
        destinations = Frontier(workspace, workspace.table, columns.num_nodes, dtype, "drawn.nodes")
        destinations.enter_seeds(nodes)
        sources = Frontier(workspace, workspace.table, self.num_sources, dtype, "drawn.from")  # destinations need the table no more
        sources.enter_seeds(nodes[:0])
        return self._hop(columns, hop, destinations, sources, len(nodes), request.address).keep("drawn")


class LaborSampler(FanoutSampler):
    """For every hop, in-edges of all nodes reached so far: about ``fanout`` each, with as few different sources as possible.

    All destinations of a hop share one random number r_u for each source u, uniform in [0, 1), and the edge u -> v is kept if
    r_u < min(1, c_v pi_u): destinations with common neighbours tend to keep the same ones. For a destination of degree d > fanout c_v solves

        sum over its in-edges of 1 / min(1, c_v pi_u) = d**2 / fanout,

    which gives its estimate the variance of ``fanout`` draws of d; one with d <= fanout keeps all its edges. LABOR-0 has pi = 1 and
    c_v = fanout / d; LABOR-i multiplies i times each pi_u by the largest c of the destinations of u, which lowers the number of sources.

    The number of edges is random: for LABOR-0 ``fanout`` on average. An edge's weight is 1 / min(1, c_v pi_u). Copies of a multi-edge are
    kept together. Each hop has its own r, so that the estimate is unbiased through all of them.

    ``weighted`` is the paper's extension to a matrix A of weights, the graph's: what is estimated is the sum of A_uv x_u. The first pi is A, an
    edge's own; a round makes pi_u the largest c_v pi_uv of the destinations of u. For a destination with d > fanout edges, all of weights above
    0, and S their sum, c_v solves

        sum over its in-edges of A**2 / min(1, c_v pi) = S**2 (1 / fanout - 1 / d) + sum of A**2.

    An edge's weight is A / min(1, c_v pi); one with A = 0 is none, and copies of a multi-edge are edges by themselves.

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
        """State the hops.

        Args:
            fanouts: edges per node, one number a hop, from the seeds outward; -1 takes all neighbours, a float above 0 and at most
                1.0 is a share: ceil(share * degree), for equal importances without weights.
            importance_rounds: i of LABOR-i.
            weighted: whether edges weigh what ``Graph.weights`` says; on the CPU only.

        Raises:
            InputError: no hop, a fanout that is neither positive nor -1 nor a share, a share with importances or weights, a number of rounds that
                is out of range.
        """
        self.fanouts: tuple[int | float, ...] = check_fanouts(fanouts, 1 << 31)
        self.importance_rounds: int = checked_rounds(importance_rounds)
        check_shares(self.fanouts, importance_rounds, weighted)
        self.weighted = weighted

    def along(self, graph: Graph) -> Mapping[Relation, LaborDraws]:
        """Return the draws of the only relation."""
        return {ONLY: LaborDraws(self.fanouts, self.importance_rounds, self.weighted, 0, graph.num_nodes)}

    def draws_alone(self, graph: Graph) -> LaborDraws:
        """Return the draws of the only relation: a node needs its own edges alone.

        Raises:
            InputError: with importances.
        """
        if self.importance_rounds:
            raise InputError(
                f"importance_rounds is {self.importance_rounds} on a graph in parts: importances are found from all edges of a hop; take 0, or part the "
                "features alone"
            )
        return self.along(graph)[ONLY]


class HeteroLaborSampler(HeteroFanoutSampler):
    """For every hop and relation, in-edges of all nodes reached so far: about ``fanout`` each, with as few different sources as possible.

    The law is that of ``LaborSampler``, relation by relation: of LABOR-0 an edge u -> v is kept if r_u < min(1, fanout / d), where d is v's degree by
    the relation, and weighs the inverse of that probability; importances are found among a relation's own edges. All relations of a hop share the
    random number r_u of a node u, as DGL's do, so that they tend to keep the same sources; each relation's estimate is unbiased by itself.
    Sources of type number k (in the graph's order) have the random numbers of hop 16 k + h: for a single type and relation the blocks are those
    of ``LaborSampler`` bit for bit.
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
        """State the hops.

        Args:
            fanouts: as of ``HeteroSampler``; -1 takes all neighbours, 0 leaves the relation out of a hop.
            seed_type: the type of nodes that seeds are of; None for several.
            importance_rounds: i of LABOR-i.
            weighted: whether the edges of the relations that have weights weigh these.
            default: the fanouts of the relations that ``fanouts`` does not name.

        Raises:
            InputError: as ``HeteroSampler``; a number of rounds that is out of range.
        """
        super().__init__(fanouts, seed_type, default, 1 << 31)
        self.importance_rounds: int = checked_rounds(importance_rounds)
        self.weighted: bool = weighted
        check_shares((fanout for own in self.fanouts.values() for fanout in own), importance_rounds, weighted)

    def __repr__(self) -> str:
        further = f", importance_rounds={self.importance_rounds}" * bool(self.importance_rounds) + ", weighted=True" * self.weighted
        return f"HeteroLaborSampler(fanouts={self._shown_fanouts()}, seed_type={self.seed_type!r}{further})"

    def along(self, graph: HeteroGraph) -> Mapping[Relation, LaborDraws]:
        """Return the draws of each relation.

        Raises:
            InputError: fanouts that do not fit the graph's relations, or edges are to have weights and none have.
        """
        if self.weighted and all(columns.weights is None for columns in graph.relations.values()):
            raise no_relation_has_weights()
        rounds, fanouts = self.importance_rounds, self.fanouts_of(graph)
        numbers = {kind: number for number, kind in enumerate(graph.num_nodes)}
        return {
            relation: LaborDraws(own, rounds, self.weighted and columns.weights is not None, numbers[relation[0]], columns.num_src)
            for (relation, own), columns in zip(fanouts.items(), graph.relations.values(), strict=True)
        }


def checked_rounds(number: int) -> int:
    """The number of rounds.

    Raises:
        InputError: it is out of range.
    """
    if not 0 <= number <= _MOST_ROUNDS:
        raise InputError(f"importance_rounds is {number}: it lies in [0, {_MOST_ROUNDS}], mostly 0 or 1; correct it")
    return number


def check_shares(fanouts: Iterable[int | float], importance_rounds: int, weighted: bool) -> None:
    """Refuse shares of the degree where importances or weights are to set the probabilities: their rounds are made for one number of all nodes.

    Raises:
        InputError: there is one.
    """
    for fanout in fanouts:
        if isinstance(fanout, float) and (importance_rounds or weighted):
            option = "weighted=True" if weighted else f"importance_rounds={importance_rounds}"
            raise InputError(
                f"fanout {fanout} with {option}: a share of the degree is LABOR-0's alone; give a number of edges, or leave the option out"
            )


@dataclass(frozen=True, eq=False, slots=True)
class LaborHop:
    """One hop, or one relation of it, whose sources and destinations may be of two types.

    Attributes:
        graph: the columns.
        frontier: the nodes that destinations are among.
        sources: those that sources are among; the same ones in a plain graph.
        num_dst: the first nodes, which are expanded.
        address: of the sources' random numbers.
        fanout: edges wanted into each destination, or the code of a share, but not -1.
        rounds: i of LABOR-i.
        weights: (E,) of the edges, or None.
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
        """Return the edges that are kept, with global ids, in arrays called by ``name`` in the workspace."""
        kept, num_edges = (self._by_importance if self.rounds or self.weights is not None else self._evenly)(name)
        return Drawn(kept.indptr, kept.edge_ids[:num_edges], kept.sources[:num_edges], kept.weights[:num_edges])

    def _evenly(self, name: str) -> tuple[kernels.Kept, int]:
        frontier, graph, last, number = self.frontier, self.graph, self.num_dst, self.sources.num_graph_nodes
        nodes, array = frontier.nodes(), frontier.workspace.array
        if self._pays(total_degree(graph.indptr, nodes, last)):
            word_of, high_of = array("labor.words", number, np.uint32), array("labor.highs", number, np.uint8)
            kernels.all_words(self.address, word_of, high_of)
            chosen = array("labor.chosen", kernels.LANES, np.int32)

            def keep(cursor: kernels.Cursor, kept: kernels.Kept) -> Any:
                return kernels.keep_evenly_known(
                    graph.indptr, graph.indices, nodes, cursor, last, self.fanout, word_of, high_of, chosen, kept
                )  # fmt: skip
        else:
            sources, words = array("labor.sources", kernels.LANES, graph.indices.dtype), array("labor.lanes", kernels.LANES, np.uint32)

            def keep(cursor: kernels.Cursor, kept: kernels.Kept) -> Any:
                return kernels.keep_evenly(
                    graph.indptr, graph.indices, nodes, cursor, last, self.fanout, self.address, sources, words, kept
                )

        return self._keep_all(name, keep)

    def _pays(self, num_edges: int) -> bool:
        """Whether so many edges are to be looked at that what concerns each node of the graph is rather computed before."""
        return num_edges >= EDGES_PER_WORD * self.sources.num_graph_nodes

    def _by_importance(self, name: str) -> tuple[kernels.Kept, int]:
        """By the graph's own ids; where few edges are looked at, all candidates become nodes for a while, so that what is known is small."""
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
        column = importance.Column(*(array(f"labor.{what}", most, np.float64) for what in ("importances", "column_words", "inverses")))
        chosen, columns = array("labor.chosen", most, np.int32), importance.Columns(begins, degrees, candidates)
        if self.weights is None:
            importance.find_importances(columns, self.fanout, self.rounds, known, column)
        else:
            firsts = graph.indptr[nodes].astype(np.int64)
            labor_weighted.find_importances(columns, firsts, self.weights, self.fanout, self.rounds, known, column)

        def keep(cursor: kernels.Cursor, kept: kernels.Kept) -> Any:
            among = graph.indptr, graph.indices, nodes, columns, cursor
            if self.weights is None:
                return importance.keep_by_importance(*among, self.fanout, known, column, chosen, kept)
            return labor_weighted.keep_by_weight(*among, self.weights, self.fanout, self.rounds, known, column, kept)

        frontier.num_nodes = before
        found = self._keep_all(name, keep)
        if sources is not None:
            frontier.forget(before)
        return found

    def _known(self, sources: Array | None) -> importance.Known:
        """Memory for what is known of the ``sources`` (N,), global ids, or of all nodes; with their words."""
        array = self.frontier.workspace.array
        number = self.sources.num_graph_nodes if sources is None else len(sources)
        known = importance.Known(
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

    def _keep_all(self, name: str, keep: Callable[[kernels.Cursor, kernels.Kept], Any]) -> tuple[kernels.Kept, int]:
        """Run a kernel until all destinations are done, with twice the room whenever it ran out of it."""
        graph, workspace, num_dst = self.graph, self.frontier.workspace, self.num_dst
        indptr = workspace.array(f"indptr{name}", num_dst + 1, id_dtype(graph.num_edges + 1))
        indptr[0] = 0
        dtypes = {"edge_ids": id_dtype(graph.num_edges), "indices": graph.indices.dtype, "weights": np.dtype(np.float32)}
        cursor, is_done = kernels.Cursor(0, 0, 0), False
        mean = -(-graph.num_edges // max(1, graph.num_nodes))
        room = num_dst * min(wanted(mean, self.fanout), mean) + LEAST_ROOM
        while not is_done:
            room *= 2
            arrays = [workspace.array(f"{what}{name}", room, dtype, keep=cursor.num_edges) for what, dtype in dtypes.items()]
            cursor = kernels.Cursor(*keep(cursor, kernels.Kept(indptr, *arrays)))
            is_done = cursor.destination == num_dst
        return kernels.Kept(indptr, *arrays), cursor.num_edges
