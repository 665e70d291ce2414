"""Cluster-GCN's sampler on a CUDA device."""

from __future__ import annotations

from typing import Any

from hoptrain.engine.arrays import Array
from hoptrain.samplers.cuda.subgraphs.induced import CudaSubgraphs, Drawing
from hoptrain.samplers.subgraphs.cluster import ClusterSampler, no_seed_in


class ClusterDrawing(Drawing):
    """Nothing is drawn: the host copies the clusters' vertices."""

    def __init__(self, sampler: ClusterSampler) -> None:
        self._sampler = sampler
        self._units: list[Array] = []

    def begin(self, work: CudaSubgraphs, units: list[Array]) -> int:
        """Units are clusters."""
        self._units = units
        work.given["drawn"] = counts = [self._sampler.count_vertices(some) for some in units]
        return max(counts)

    def draw(self, work: CudaSubgraphs, drawn: Any) -> None:
        """Queue the copy."""
        host = work.buffers.pinned("drawn", drawn)
        for row, some, count in zip(host, self._units, work.given["drawn"], strict=False):
            self._sampler.list_vertices(some, row[:count])
        drawn.copy_to_device(host, stream=work.stream.numba)

    def again(self, work: CudaSubgraphs, without: Array) -> None:
        """There is no other draw."""
        raise no_seed_in(self._units[int(without.argmax())])
