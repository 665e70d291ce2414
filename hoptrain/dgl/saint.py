"""DGL's sampler of GraphSAINT's subgraphs, with the laws that DGL draws by, which are not all those of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from hoptrain.dgl.graphs import Converted, converted
from hoptrain.dgl.outputs import dgl
from hoptrain.dgl.sampler import Sampled
from hoptrain.dgl.subgraphs import ALL_EDGES, finished
from hoptrain.engine import InputError
from hoptrain.samplers import Sampler
from hoptrain.samplers.subgraphs.unweighted import ByDegrees, ByOutDegree, Unweighted, Walks

_ITEM = np.zeros(1, np.int64)
"""What a batch is asked for: its draws follow from its address alone."""


class SAINTSampler(Sampled, dgl.dataloading.Sampler):
    """DGL's, by name, arguments and results; see ``dgl.dataloading.SAINTSampler``.

    Nodes stand in the order in which they were drawn first, in DGL in that of their ids. ``cache`` has no meaning: what draws need is kept as
    long as the graph.
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
            raise InputError(f"mode is {mode!r}: nodes are drawn by 'node', 'edge' or 'walk'; choose one")
        self.mode = mode
        self.budget: Any = budget
        self.cache: bool = cache
        self.prefetch_ndata: Any = prefetch_ndata or []
        self.prefetch_edata: Any = prefetch_edata or []
        self.output_device = output_device
        self._make()

    def _make(self) -> Unweighted:
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
        all_nodes = np.arange(made.graph.num_nodes)
        return made.kept((SAINTSampler, self.mode, self.budget), lambda: self._make().prepare(made.graph, all_nodes)), made

    def sample(self, g: Any, indices: Tensor | None = None) -> Any:
        """A subgraph; ``indices`` have no meaning."""
        return finished(self, g, _ITEM, self.prefetch_ndata, self.prefetch_edata, self._edge_dir)[1]
