"""CUDA driver of ``RippleWalkSampler``."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.kernels.cuda.subgraphs import ripple as kernels
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.subgraphs.induced import CudaSubgraphs
from hoptrain.samplers.subgraphs.induced import MAX_ATTEMPTS
from hoptrain.samplers.subgraphs.ripple import RippleWalkSampler

_THREADS = 64
"""Number of threads per subgraph. It is small, since the threads synchronise several times for each tile of a column, and most columns are short."""


class CudaRipple(CudaSubgraphs):
    """The driver of ``RippleWalkSampler``. For each node of the graph and each batch, it needs device memory for three node ids."""

    def __init__(self, graph: Graph, sampler: RippleWalkSampler, workspace: Workspace) -> None:
        """Copy the graph, the split and the roots to the device; see ``CudaSubgraphs``."""
        super().__init__(graph, sampler, workspace)
        self.sampler = sampler
        self._roots = self.to_device(sampler.split.seeds, "the roots")

    def begin_draws(self, items: list[Array]) -> int:
        """Check the items, one for each batch, and return the maximum number of nodes of a subgraph."""
        for some in items:
            self.sampler.check_item(some)
        return min(self.sampler.size, self.num_graph_nodes)

    def draw(self, drawn: Any) -> None:
        """Queue the growth of all subgraphs."""
        numbers, seen, waiting = (
            self.matrix(f"ripple.{name}", self.num_graph_nodes, self.id_dtype) for name in ("numbers", "seen", "waiting")
        )
        self.launch.rows(fill_rows, self.num_graph_nodes, numbers, np.iinfo(self.id_dtype).max)
        threads = min(_THREADS, self.thresholds.block)
        size, ratio = min(self.sampler.size, self.num_graph_nodes), self.sampler.ratio_units
        kernels.grow_subgraphs[(1, self.num_batches), threads, self.stream.numba, 8 * threads](
            self.graph.indptr, self.graph.indices, self._roots, size, ratio, MAX_ATTEMPTS, self.addresses[0], self.num_graph_nodes,
            numbers, seen, waiting, drawn, self.sizes["drawn"],
        )  # fmt: skip
