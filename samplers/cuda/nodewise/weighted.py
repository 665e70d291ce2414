"""CUDA driver of ``NeighborSampler`` with weighted draws of distinct edges in all hops, or in those that take all edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.kernels.cpu.nodewise.weighted import WeightedColumns
from hoptrain.kernels.cuda.nodewise import weighted as kernels
from hoptrain.kernels.shared.draws import ALL
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.nodewise.neighbor import CudaNeighbor
from hoptrain.samplers.nodewise.neighbor import NeighborSampler


class CudaWeighted(CudaNeighbor):
    """The driver of ``NeighborSampler`` with weighted draws of distinct edges.

    It draws with replacement and leaves repeats out; edges that are missing after many draws are drawn from the rest of the column. Hops with a fanout
    of -1 take all edges of positive weight once, also with ``replace``.
    """

    sizes_of_hop = ("waiting",)

    def __init__(self, graph: Graph, sampler: NeighborSampler, columns: WeightedColumns, workspace: Workspace) -> None:
        """Copy the graph and its weights, of 8 bytes an edge, to the device or to pinned host memory.

        Raises:
            InputError: the graph has no weights, CUDA cannot be used, or the kernel or placement is unknown.
        """
        super().__init__(graph, sampler, workspace)
        self.replace = sampler.replace
        bits = np.add(columns.weights, 0.0, dtype=np.float64).view(np.uint64)  # adding 0.0 turns -0.0 into 0.0
        self.positive, self.weights = self.to_device(columns.positive, "the graph"), self.to_device(bits, "the graph")

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        if self._repeats(draw):
            super()._count(requests, capacity, draw, counts)
        else:
            self.launch.rows(kernels.count_weighted, capacity, self.positive, *requests, draw[0], counts)

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        if self._repeats(draw):
            return super()._draw(requests, capacity, draw, output)
        hop, (fanout, _, address) = len(self.schedule), draw
        indptr, indices, threshold, alias = self.graph.arrays()
        order = self._order(requests, capacity, draw)
        found, waiting = self.matrix("found", self.known, np.int32), self.matrix("waiting", self.known, self.dtype)
        columns, rest = (self.weights, self.positive), (fanout, address, *output, found, self.sizes[f"waiting{hop}"], waiting)
        self._launch_ordered(order, kernels.draw_weighted, capacity, indptr, indices, threshold, alias, *columns, *requests, *order, *rest)
        self.launch.block_each(
            kernels.draw_rest, capacity, indptr, indices, *columns, requests[0], *rest, shared_bytes=self.thresholds.scan_bytes
        )
        return None

    def _repeats(self, draw: tuple[int, int, Any]) -> bool:
        """Return whether a hop draws with replacement, as the base class does."""
        return self.replace and draw[0] != ALL
