"""LABOR, layer-neighbour sampling (Balin & Çatalyürek, "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs", NeurIPS 2023)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.columns import copy_columns, total_degree
from hoptrain.kernels.cpu.nodewise import importance, labor_weighted
from hoptrain.kernels.cpu.nodewise import labor as kernels
from hoptrain.kernels.shared.draws import ALL, wanted
from hoptrain.samplers.base import FanoutSampler
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, batch_of_hops
from hoptrain.samplers.checks import check_fanouts
from hoptrain.samplers.scratch.alias import weights_of
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.workspace import Workspace

_MOST_ROUNDS = 100
LEAST_ROOM = 1024
"""Edges beyond the expected number for which a hop reserves memory at first."""
EDGES_PER_WORD = 2
"""In-edges for each vertex of the graph from which the random words of all vertices are computed before, and then looked up."""


class LaborSampler(FanoutSampler):
    """For every hop, in-edges of all vertices reached so far: about ``fanout`` each, with as few different sources as possible.

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
        >>> len(batch.node_ids), len(NeighborSampler([5, 5]).sample(graph, range(64), seed=1).node_ids)  # fewer vertices
        (636, 802)
        >>> batch.blocks[-1].weights[:3]
        array([3., 3., 3.], dtype=float32)
    """

    def __init__(self, fanouts: Sequence[int | float], importance_rounds: int = 0, weighted: bool = False) -> None:
        """State the hops.

        Args:
            fanouts: edges per vertex, one number a hop, from the seeds outward; -1 takes all neighbours, a float above 0 and at most
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

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        weights = weights_of(graph) if self.weighted else None
        frontier = Frontier.of_seeds(graph, seeds, workspace)
        num_seeds = frontier.num_nodes
        blocks: list[Block] = []
        for hop, fanout in enumerate(self.fanout_codes):
            rounds = self.importance_rounds if fanout != ALL else 0
            number = fanout if fanout != ALL else graph.num_edges
            blocks.append(
                LaborHop(graph, frontier, frontier, frontier.num_nodes, address.at_hop(hop), number, rounds, weights).sample(f"{hop}")
            )
        return batch_of_hops(frontier.nodes(), blocks, num_seeds)


def checked_rounds(number: int) -> int:
    """The number of rounds.

    Raises:
        InputError: it is out of range.
    """
    if not 0 <= number <= _MOST_ROUNDS:
        raise InputError(f"importance_rounds is {number}: it lies in [0, {_MOST_ROUNDS}], mostly 0 or 1; correct it")
    return number


def check_shares(fanouts: Iterable[int | float], importance_rounds: int, weighted: bool) -> None:
    """Refuse shares of the degree where importances or weights are to set the probabilities: their rounds are made for one number of all vertices.

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

    graph: Graph | RelationColumns
    frontier: Frontier
    sources: Frontier
    num_dst: int
    address: HopAddress
    fanout: int
    rounds: int = 0
    weights: Array | None = None

    def sample(self, name: str) -> Block:
        """Keep edges into all nodes so far; the block's arrays are called by ``name`` in the workspace."""
        kept, num_edges = self.keep(name)
        sources = kept.sources[:num_edges]
        self.sources.relabel(sources)
        return Block(
            indptr=kept.indptr,
            indices=sources,
            edge_ids=kept.edge_ids[:num_edges],
            num_src=self.sources.num_nodes,
            weights=kept.weights[:num_edges],
        )

    def keep(self, name: str) -> tuple[kernels.Kept, int]:
        """The edges that are kept, with global ids, and how many they are."""
        return (self._by_importance if self.rounds or self.weights is not None else self._evenly)(name)

    def _evenly(self, name: str) -> tuple[kernels.Kept, int]:
        frontier, graph, last, number = self.frontier, self.graph, self.num_dst, self.sources.num_vertices
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
        """Whether so many edges are to be looked at that what concerns each vertex of the graph is rather computed before."""
        return num_edges >= EDGES_PER_WORD * self.sources.num_vertices

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
        """Memory for what is known of the ``sources`` (N,), global ids, or of all vertices; with their words."""
        array = self.frontier.workspace.array
        number = self.sources.num_vertices if sources is None else len(sources)
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
