"""Cluster-GCN's sampler on a CUDA device."""

from __future__ import annotations

from typing import Any

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers.cuda.subgraphs.induced import CudaSubgraphs
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.subgraphs.cluster import ClusterSampler, no_seed_in


class CudaClusters(CudaSubgraphs):
    """Nothing is drawn: the host copies the clusters' vertices."""

    def __init__(self, graph: Graph, sampler: ClusterSampler, workspace: Workspace) -> None:
        """As of ``CudaSubgraphs``."""
        super().__init__(graph, sampler, workspace)
        self.sampler = sampler

    def begin_draws(self, items: list[Array]) -> int:
        """Units are clusters."""
        self.seeds = items
        self.given["drawn"] = counts = [self.sampler.count_vertices(some) for some in items]
        return max(counts)

    def draw(self, drawn: Any) -> None:
        """Queue the copy."""
        host = self.buffers.pinned("drawn", drawn)
        for row, some, count in zip(host, self.seeds, self.given["drawn"], strict=False):
            self.sampler.list_vertices(some, row[:count])
        drawn.copy_to_device(host, stream=self.stream.numba)

    def draw_again(self, without: Array) -> None:
        """There is no other draw."""
        raise no_seed_in(self.seeds[int(without.argmax())])
