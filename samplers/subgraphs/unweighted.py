"""GraphSAINT samplers with the distributions of DGL and PyG, some of which are not the paper's: any node may be a root, and nothing has weights."""

from __future__ import annotations

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.samplers.buffers.alias import tables_of
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.subgraphs.saint import SaintNodeSampler, SaintSampler, SaintWalkSampler, check_edges

MOST_EDGES = 1 << 31
"""Exclusive upper bound of a graph's number of edges for weighted draws of edges."""


class Unweighted(SaintSampler):
    """A GraphSAINT sampler without weights, all of whose nodes are seeds."""

    def prepare(self, graph: Graph, seeds: Array) -> SaintSampler:
        """Return a copy with the tables that the draws need. ``seeds`` is ignored: all nodes are seeds."""
        return super().prepare(graph, np.arange(graph.num_nodes))

    def _weigh(self, graph: Graph) -> None:
        """Compute no weights."""


class ByOutDegree(Unweighted, SaintNodeSampler):
    """A sampler of ``budget`` nodes, drawn with replacement in proportion to max(1, out-degree)."""

    least = 1

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        degrees = np.bincount(graph.indices, minlength=graph.num_nodes)
        self.tables = tables_of(np.array([0, graph.num_nodes]), np.maximum(degrees, self.least).astype(np.float64))


class BySources(ByOutDegree):
    """A sampler that takes the sources of ``budget`` edges, which are drawn uniformly with replacement."""

    least = 0


class ByDegrees(Unweighted, SaintNodeSampler):
    """A sampler that takes both ends of ``budget`` edges, drawn with replacement in proportion to 1 / in-degree(v) + 1 / out-degree(u) for u -> v.

    It takes 8 bytes of memory for each edge of the graph.
    """

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        if graph.num_edges >= MOST_EDGES:
            raise InputError(
                f"the graph has {graph.num_edges:,} edges: weighted draws of edges need fewer than {MOST_EDGES:,}; use random walks"
            )
        out_degrees = np.bincount(graph.indices, minlength=graph.num_nodes)
        masses = self._masses(graph.in_degrees(), out_degrees, graph.indices, graph.destinations())
        self.tables = tables_of(np.array([0, graph.num_edges]), masses)

    def _masses(self, into: Array, out_of: Array, sources: Array, destinations: Array) -> Array:
        """Return the weight (E,) by which each edge is drawn, from the in-degrees and out-degrees (V,)."""
        masses: Array = 1 / into[destinations] + 1 / out_of[sources]
        return masses

    def _draw(self, graph: Graph, address: HopAddress, attempt: int, workspace: Workspace) -> Array:
        places = super()._draw(graph, address, attempt, workspace)
        drawn = workspace.array("ends_drawn", 2 * len(places), graph.indices.dtype)
        drawn[::2] = graph.indices[places]
        drawn[1::2] = np.searchsorted(graph.indptr, places, side="right") - 1
        return drawn


class BySumOfDegrees(ByDegrees):
    """A sampler that takes both ends of ``budget`` edges, drawn with replacement in proportion to in-degree(u) + out-degree(v) for u -> v."""

    def _masses(self, into: Array, out_of: Array, sources: Array, destinations: Array) -> Array:
        masses: Array = (into[sources] + out_of[destinations]).astype(np.float64)
        return masses


class Walks(Unweighted, SaintWalkSampler):
    """A walk sampler with roots drawn uniformly from all nodes. Walks go against the edges; reverse the graph for walks along them."""
