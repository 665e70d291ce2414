"""GraphSAINT's subgraphs by the laws that DGL draws them by, which are not all those of the paper: of all vertices, without weights."""

from __future__ import annotations

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.samplers.scratch.alias import tables_of
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.subgraphs.saint import SaintNodeSampler, SaintSampler, SaintWalkSampler, check_edges

_MOST_EDGES = 1 << 31


class Unweighted(SaintSampler):
    """It is prepared for all vertices, each of which is a seed, and nothing weighs anything."""

    def _weigh(self, graph: Graph) -> None:
        """Nothing to count."""


class ByOutDegree(Unweighted, SaintNodeSampler):
    """``budget`` draws of a vertex with replacement, with a probability proportional to its out-degree, or to 1 where it has none."""

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        degrees = np.bincount(graph.indices, minlength=graph.num_nodes)
        self.tables = tables_of(np.array([0, graph.num_nodes]), np.maximum(degrees, 1).astype(np.float64))


class ByDegrees(Unweighted, SaintNodeSampler):
    """``budget`` draws of an edge with replacement, u -> v in proportion to 1 / in-degree(v) + 1 / out-degree(u), of which both ends are taken.

    Takes 8 bytes an edge.
    """

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        if graph.num_edges >= _MOST_EDGES:
            raise InputError(
                f"the graph has {graph.num_edges:,} edges: they are drawn by weight from fewer than {_MOST_EDGES:,}; take walks"
            )
        into = 1 / graph.in_degrees()[graph.destinations()]
        out_of = 1 / np.bincount(graph.indices, minlength=graph.num_nodes)[graph.indices]
        self.tables = tables_of(np.array([0, graph.num_edges]), into + out_of)

    def _draw(self, graph: Graph, address: HopAddress, attempt: int, workspace: Workspace) -> Array:
        places = super()._draw(graph, address, attempt, workspace)
        drawn = workspace.array("ends_drawn", 2 * len(places), graph.indices.dtype)
        drawn[::2] = graph.indices[places]
        drawn[1::2] = np.searchsorted(graph.indptr, places, side="right") - 1
        return drawn


class Walks(Unweighted, SaintWalkSampler):
    """Walks from roots drawn uniformly from all vertices, against the edges: along them on a graph that was turned round."""
