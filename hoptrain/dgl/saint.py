"""DGL's sampler of GraphSAINT's subgraphs, with the laws that DGL draws by, which are not all those of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from hoptrain.dgl.graphs import Converted, converted
from hoptrain.dgl.outputs import dgl
from hoptrain.dgl.sampler import Sampled
from hoptrain.dgl.subgraphs import ALL_EDGES, finished
from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.samplers import SaintNodeSampler, SaintWalkSampler, Sampler, Workspace
from hoptrain.samplers.scratch.alias import tables_of
from hoptrain.samplers.subgraphs.saint import SaintSampler, check_edges

_MOST_EDGES = 1 << 31
_ITEM = np.zeros(1, np.int64)
"""What a batch is asked for: its draws follow from its address alone."""


class _Unweighted(SaintSampler):
    """All vertices are seeds, and nothing weighs anything."""

    def _weigh(self, graph: Graph) -> None:
        """Nothing to count."""


class ByOutDegree(_Unweighted, SaintNodeSampler):
    """``budget`` draws of a vertex with replacement, with a probability proportional to its out-degree, or to 1 where it has none."""

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        degrees = np.bincount(graph.indices, minlength=graph.num_nodes)
        self.tables = tables_of(np.array([0, graph.num_nodes]), np.maximum(degrees, 1).astype(np.float64))


class ByDegrees(_Unweighted, SaintNodeSampler):
    """``budget`` draws of an edge with replacement, u -> v in proportion to 1 / in-degree(v) + 1 / out-degree(u), of which both ends are taken.

    Takes 8 bytes an edge.
    """

    def _prepare_draws(self, graph: Graph) -> None:
        check_edges(graph)
        if graph.num_edges >= _MOST_EDGES:
            raise InputError(f"mode is 'edge' with {graph.num_edges:,} edges: they are drawn from fewer than {_MOST_EDGES:,}; take 'walk'")
        into = 1 / graph.in_degrees()[graph.destinations()]
        out_of = 1 / np.bincount(graph.indices, minlength=graph.num_nodes)[graph.indices]
        self.tables = tables_of(np.array([0, graph.num_edges]), into + out_of)

    def _draw(self, graph: Graph, address: HopAddress, attempt: int, workspace: Workspace) -> Array:
        places = super()._draw(graph, address, attempt, workspace)
        drawn = workspace.array("ends_drawn", 2 * len(places), graph.indices.dtype)
        drawn[::2] = graph.indices[places]
        drawn[1::2] = np.searchsorted(graph.indptr, places, side="right") - 1
        return drawn


class Walks(_Unweighted, SaintWalkSampler):
    """Walks from roots drawn uniformly from all vertices, on a graph whose edges were turned round: along the user's edges."""


class SAINTSampler(Sampled, dgl.dataloading.Sampler):
    """DGL's, by name, arguments and results; see ``dgl.dataloading.SAINTSampler``.

    Vertices stand in the order in which they were drawn first, in DGL in that of their ids. ``cache`` has no meaning: what draws need is kept for
    the graph that was sampled last.
    """

    def __init__(
        self,
        mode: str,
        budget: Any,
        cache: bool = True,
        prefetch_ndata: Any = None,
        prefetch_edata: Any = None,
        output_device: Any = "cpu",
    ) -> None:
        """State the draws.

        Raises:
            InputError: an unknown mode, or a budget out of range.
        """
        if mode not in ("node", "edge", "walk"):
            raise InputError(f"mode is {mode!r}: vertices are drawn by 'node', 'edge' or 'walk'; choose one")
        self.mode, self.budget, self.cache = mode, budget, cache
        self.prefetch_ndata, self.prefetch_edata = prefetch_ndata or [], prefetch_edata or []
        self.output_device = output_device
        self._make()

    def _make(self) -> SaintSampler:
        options: dict[str, Any] = {"num_layers": ALL_EDGES, "normalise": False, "num_subgraphs": 1}
        if self.mode == "walk":
            roots, length = self.budget
            return Walks(roots, length, **options)
        return (ByOutDegree if self.mode == "node" else ByDegrees)(self.budget, **options)

    @property
    def _edge_dir(self) -> str:
        return "out" if self.mode == "walk" else "in"

    def features(self) -> list[str]:
        """Names of the features that are to be fetched."""
        return list(self.prefetch_ndata)

    def of(self, g: Any) -> tuple[Sampler, Converted]:
        """The sampler of hoptrain's, prepared for the graph, and the graph."""
        made = converted(g, self._edge_dir)
        return self.once((made, self.mode, self.budget), lambda: self._make().prepare(made.graph, np.arange(made.graph.num_nodes))), made

    def sample(self, g: Any, indices: Tensor | None = None) -> Any:
        """A subgraph; ``indices`` have no meaning."""
        return finished(self, g, _ITEM, self.prefetch_ndata, self.prefetch_edata, self._edge_dir)[1]
