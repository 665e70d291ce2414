"""DGL's ``SAINTSampler`` over hoptrain's samplers. It draws by the distributions of DGL, some of which differ from the paper's."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from hoptrain.dgl.graphs import ConvertedGraph, convert
from hoptrain.dgl.outputs import dgl
from hoptrain.dgl.sampler import Sampled
from hoptrain.dgl.subgraphs import ALL_EDGES, sample_subgraph
from hoptrain.engine import InputError
from hoptrain.samplers import Sampler
from hoptrain.samplers.subgraphs.unweighted import ByDegrees, ByOutDegree, Unweighted, Walks

_ITEM = np.zeros(1, np.int64)
"""Dummy seed of a batch: the subgraph depends only on the batch's random seed."""


class SAINTSampler(Sampled, dgl.dataloading.Sampler):
    """A drop-in replacement for ``dgl.dataloading.SAINTSampler`` with the same arguments and results.

    Nodes are in the order in which they were first drawn; in DGL they are sorted by id. ``cache`` has no effect: sampling tables are cached as
    long as the graph exists.
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
        """Set the arguments of the sampler, which are the same as in DGL's class.

        Raises:
            InputError: ``mode`` is unknown, or ``budget`` is out of range.
        """
        if mode not in ("node", "edge", "walk"):
            raise InputError(f"mode is {mode!r}: must be 'node', 'edge' or 'walk'; choose one")
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
        """Return the names of the node features to gather."""
        return list(self.prefetch_ndata)

    def of(self, g: Any) -> tuple[Sampler, ConvertedGraph]:
        """Return hoptrain's sampler, prepared for ``g``, and the converted graph."""
        made = convert(g, self._edge_dir)
        all_nodes = np.arange(made.graph.num_nodes)
        return made.get_or_make((SAINTSampler, self.mode, self.budget), lambda: self._make().prepare(made.graph, all_nodes)), made

    def sample(self, g: Any, indices: Tensor | None = None) -> Any:
        """Return a sampled subgraph. ``indices`` have no effect."""
        return sample_subgraph(self, g, _ITEM, self.prefetch_ndata, self.prefetch_edata, self._edge_dir)[1]
