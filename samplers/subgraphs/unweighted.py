"""GraphSAINT's subgraphs by the laws that DGL and PyG draw them by, which are not all those of the paper: of all nodes, without weights."""

from __future__ import annotations

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.samplers.buffers.alias import tables_of
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.subgraphs.saint import SaintNodeSampler, SaintSampler, SaintWalkSampler, check_edges

MOST_EDGES = 1 << 31
"""Edges from which on a graph is too large for draws of edges by weight."""


class Unweighted(SaintSampler):
    """It is prepared for all nodes, each of which is a seed, and nothing weighs anything."""

    def prepare(self, graph: Graph, seeds: Array) -> SaintSampler:
        """With what the draws need; the split has no say."""
        return super().prepare(graph, np.arange(graph.num_nodes))

    def _weigh(self, graph: Graph) -> None:
        """Nothing to count."""


class ByOutDegree(Unweighted, SaintNodeSampler):
    """``budget`` draws of a node with replacement, with a probability proportional to its out-degree, or to 1 where it has none."""

    least = 1

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        degrees = np.bincount(graph.indices, minlength=graph.num_nodes)
        self.tables = tables_of(np.array([0, graph.num_nodes]), np.maximum(degrees, self.least).astype(np.float64))


class BySources(ByOutDegree):
    """``budget`` draws of an edge with replacement, each as likely as any other, of which the source is taken."""

    least = 0


class ByDegrees(Unweighted, SaintNodeSampler):
    """``budget`` draws of an edge with replacement, u -> v in proportion to 1 / in-degree(v) + 1 / out-degree(u), of which both ends are taken.

    ForwardInputs 8 bytes an edge.
    """

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        if graph.num_edges >= MOST_EDGES:
            raise InputError(
                f"the graph has {graph.num_edges:,} edges: they are drawn by weight from fewer than {MOST_EDGES:,}; take walks"
            )
        out_degrees = np.bincount(graph.indices, minlength=graph.num_nodes)
        masses = self._masses(graph.in_degrees(), out_degrees, graph.indices, graph.destinations())
        self.tables = tables_of(np.array([0, graph.num_edges]), masses)

    def _masses(self, into: Array, out_of: Array, sources: Array, destinations: Array) -> Array:
        """What each edge (E,) is drawn in proportion to, by the in- and out-degrees (V,)."""
        masses: Array = 1 / into[destinations] + 1 / out_of[sources]
        return masses

    def _draw(self, graph: Graph, address: HopAddress, attempt: int, workspace: Workspace) -> Array:
        places = super()._draw(graph, address, attempt, workspace)
        drawn = workspace.array("ends_drawn", 2 * len(places), graph.indices.dtype)
        drawn[::2] = graph.indices[places]
        drawn[1::2] = np.searchsorted(graph.indptr, places, side="right") - 1
        return drawn


class BySumOfDegrees(ByDegrees):
    """The same, but u -> v in proportion to in-degree(u) + out-degree(v)."""

    def _masses(self, into: Array, out_of: Array, sources: Array, destinations: Array) -> Array:
        masses: Array = (into[sources] + out_of[destinations]).astype(np.float64)
        return masses


class Walks(Unweighted, SaintWalkSampler):
    """Walks from roots drawn uniformly from all nodes, against the edges: along them on a graph that was turned round."""
