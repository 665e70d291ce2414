"""CUDA driver of ``PinSAGESampler``."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.kernels.cuda.nodewise import pinsage as kernels
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.bounded import FixedSizeSampler
from hoptrain.samplers.nodewise.pinsage import PinSAGESampler


class CudaPinSAGE(FixedSizeSampler):
    """The driver of ``PinSAGESampler``. It finds neighbours before it counts them, since the walks from a destination may visit few nodes.

    Walks always have the schedule "sample", since a step reads one edge.
    """

    def __init__(self, graph: Graph, sampler: PinSAGESampler, workspace: Workspace) -> None:
        """Copy the graph to the device, or to pinned host memory.

        Raises:
            InputError: CUDA cannot be used, or the kernel or placement is unknown.
        """
        visits = sampler.num_walks * sampler.walk_length
        super().__init__(graph, workspace, [min(number, visits) for number in sampler.num_neighbors])
        self.walks = sampler.num_walks, sampler.walk_length, np.uint64(sampler.restart * 2**32)

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        most, _, address = draw
        num_walks, length, _ = self.walks
        rows = self.num_batches * self.launch.blocks_for(capacity)
        visits = self.buffers.array("visits", (rows, num_walks * length), self.id_dtype)
        times = self.buffers.array("visit_times", (rows, num_walks * length), np.int32)
        self.found = self.matrix("found", capacity * most, self.id_dtype), self.matrix("found_times", capacity * most, np.int32)
        nodes, _, high = requests
        self.launch.block_each(
            kernels.find_visited, capacity, self.graph.indptr, self.graph.indices, nodes, high, *self.walks, most, address, visits, times,
            *self.found, counts,
        )  # fmt: skip
        self.schedule.append("sample")

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        nodes, _, high = requests
        weights = self.matrix(f"weights{len(self.schedule) - 1}", output[1].shape[1], np.uint32)
        self.launch.rows(kernels.move_visited, capacity, self.graph.indptr, nodes, high, draw[0], *self.found, *output, weights)
        return weights
