"""Neighbour sampling by weight on a CUDA device where edges are distinct, in all hops or those that take all, to the bit that of ``NeighborSampler``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.device_store import choose_placement, place
from hoptrain.kernels.cpu.nodewise.weighted import WeightedColumns
from hoptrain.kernels.cuda.nodewise import weighted as kernels
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.nodewise.neighbor import CudaNeighborSampling


class CudaWeightedSampling(CudaNeighborSampling):
    """Takes edges by weight from one graph; none of weight 0."""

    def __init__(
        self, graph: Graph, fanouts: Sequence[int], replace: bool, expand: str, columns: WeightedColumns, placement: str, **options: Any
    ) -> None:
        """Copy the graph and its weights, 8 bytes an edge, to where the device reads them.

        Args:
            graph: the graph.
            fanouts: as of ``NeighborSampler``.
            replace: likewise; hops with a fanout of -1 take distinct edges all the same.
            expand: likewise.
            columns: the graph's columns with their alias tables and weights.
            placement: as of ``CudaNeighborSampling``, as are the other options.
            options: the others.
        """
        super().__init__(
            graph,
            fanouts,
            replace,
            expand,
            alias=(columns.threshold, columns.alias),
            placement=placement,
            bulk_type=WeightedBulk,
            **options,
        )
        self.replace = replace
        bits = np.add(columns.weights, 0.0, dtype=np.float64).view(np.uint64)  # -0.0 becomes 0.0
        self.positive, self.weights = (
            place(array, choose_placement(placement, array.nbytes, "the graph"), self.stream) for array in (columns.positive, bits)
        )


class WeightedBulk(Bulk):
    """Draws with replacement of which repeats are left out; what is missing after many of them is drawn from the rest of the column."""

    sampling: CudaWeightedSampling

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        if self._repeats(draw):
            super()._count(requests, capacity, draw, counts)
        else:
            self.launch.rows(kernels.count_weighted, capacity, self.sampling.positive, *requests, draw[0], counts)

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        if self._repeats(draw):
            return super()._draw(requests, capacity, draw, output)
        sampling, (fanout, _, address) = self.sampling, draw
        indptr, indices, threshold, alias = sampling.graph.arrays()
        order = self._order(requests, capacity, draw)
        found = self.matrix("found", self.known, np.int32)
        columns = sampling.weights, sampling.positive
        rest = *requests, *order, fanout, address, *output, found
        self._launch_ordered(order, kernels.draw_weighted, capacity, indptr, indices, threshold, alias, *columns, *rest)
        self._launch_ordered(order, kernels.draw_rest, capacity, indptr, indices, *columns, *rest)
        return None

    def _repeats(self, draw: tuple[int, int, Any]) -> bool:
        """Whether a hop draws with replacement, as ``Bulk`` does."""
        return self.sampling.replace and draw[0] > 0
