"""CUDA driver of ``ClusterSampler``."""

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
    """The driver of ``ClusterSampler``, which copies the nodes of the clusters from the host, since nothing is random."""

    def __init__(self, graph: Graph, sampler: ClusterSampler, workspace: Workspace) -> None:
        """Copy the graph and the split to the device; see ``CudaSubgraphs``."""
        super().__init__(graph, sampler, workspace)
        self.sampler = sampler

    def begin_draws(self, items: list[Array]) -> int:
        """List the nodes of the clusters of each batch, and return the largest number of nodes of a batch."""
        self.seeds = items
        self._vertices = [np.empty(self.sampler.count_vertices(some), self.id_dtype) for some in items]
        for some, own in zip(items, self._vertices, strict=True):
            self.sampler.list_nodes(some, own)
        self.given["drawn"] = [len(own) for own in self._vertices]
        return longest(self._vertices)

    def uploads(self) -> dict[str, Upload]:
        """Return the nodes of the clusters as the upload "drawn"."""
        return {"drawn": Upload(self._vertices, self.id_dtype)}

    def draw(self, drawn: Any) -> None:
        """Queue nothing, since the nodes are uploaded."""

    def draw_again(self, without: Array) -> None:
        """Raise ``InputError``, since another draw of the same clusters would have the same nodes."""
        raise no_seed_in(self.seeds[int(without.argmax())])
