"""Cluster-GCN's sampler on a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.device_sampler import Upload, longest
from hoptrain.samplers.cuda.subgraphs.induced import CudaSubgraphs
from hoptrain.samplers.subgraphs.cluster import ClusterSampler, no_seed_in


class CudaClusters(CudaSubgraphs):
    """Nothing is drawn: the host brings the clusters' nodes."""

    def __init__(self, graph: Graph, sampler: ClusterSampler, workspace: Workspace) -> None:
        """As of ``CudaSubgraphs``."""
        super().__init__(graph, sampler, workspace)
        self.sampler = sampler

    def begin_draws(self, items: list[Array]) -> int:
        """Units are clusters."""
        self.seeds = items
        self._vertices = [np.empty(self.sampler.count_vertices(some), self.id_dtype) for some in items]
        for some, own in zip(items, self._vertices, strict=True):
            self.sampler.list_nodes(some, own)
        self.given["drawn"] = [len(own) for own in self._vertices]
        return longest(self._vertices)

    def uploads(self) -> dict[str, Upload]:
        """The nodes."""
        return {"drawn": Upload(self._vertices, self.id_dtype)}

    def draw(self, drawn: Any) -> None:
        """They are there."""

    def draw_again(self, without: Array) -> None:
        """There is no other draw."""
        raise no_seed_in(self.seeds[int(without.argmax())])
