"""PinSAGE's neighbourhoods on a CUDA device: a bulk of mini-batches at once, to the bit those of ``PinSAGESampler``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.kernels.cuda.nodewise import pinsage as kernels
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.nodewise.neighbor import CudaNeighborSampling

if TYPE_CHECKING:
    from hoptrain.samplers.nodewise.pinsage import PinSAGESampler


class CudaPinSAGESampling(CudaNeighborSampling):
    """Samples one graph with one setting. Walks go by sample, whatever the schedule: a step reads one edge."""

    def __init__(self, graph: Graph, sampler: PinSAGESampler, **options: Any) -> None:
        """Copy the graph; options are those of ``CudaNeighborSampling``."""
        visits = sampler.num_walks * sampler.walk_length
        super().__init__(graph, [min(number, visits) for number in sampler.num_neighbors], bulk_type=PinSAGEBulk, **options)
        self.walks = sampler.num_walks, sampler.walk_length, np.uint64(sampler.restart * 2**32)


class PinSAGEBulk(Bulk):
    """Neighbours are found before they are counted, since a destination's walks may visit few vertices."""

    sampling: CudaPinSAGESampling

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        sampling, (most, _, address) = self.sampling, draw
        num_walks, length, _ = sampling.walks
        rows = self.num_batches * self.launch.blocks_for(capacity)
        visits = self.buffers.array("visits", (rows, num_walks * length), self.id_dtype)
        times = self.buffers.array("visit_times", (rows, num_walks * length), np.int32)
        self.found = self.matrix("found", capacity * most, self.id_dtype), self.matrix("found_times", capacity * most, np.int32)
        graph, (nodes, _, high) = sampling.graph, requests
        self.launch.block_each(
            kernels.find_visited, capacity, graph.indptr, graph.indices, nodes, high, *sampling.walks, most, address, visits, times,
            *self.found, counts,
        )  # fmt: skip
        self.schedule.append("sample")

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        nodes, _, high = requests
        weights = self.matrix(f"weights{len(self.schedule) - 1}", output[1].shape[1], np.uint32)
        self.launch.rows(kernels.move_visited, capacity, self.sampling.graph.indptr, nodes, high, draw[0], *self.found, *output, weights)
        return weights
