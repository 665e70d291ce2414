"""CUDA driver of ``NeighborSampler``, except for weighted draws of distinct edges."""

from __future__ import annotations

from hoptrain.engine import Graph
from hoptrain.kernels.cuda.draw import DISTINCT, REPLACE, WEIGHTED
from hoptrain.samplers.buffers.alias import AliasTables
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.bounded import FixedSizeSampler
from hoptrain.samplers.nodewise.neighbor import NeighborSampler


class CudaNeighbor(FixedSizeSampler):
    """The driver of ``NeighborSampler``, except for weighted draws of distinct edges."""

    def __init__(self, graph: Graph, sampler: NeighborSampler, workspace: Workspace) -> None:
        """Copy the graph, and its alias tables for weighted draws, to the device or to pinned host memory.

        Raises:
            InputError: the sampler is weighted and the graph has no weights, CUDA cannot be used, or the kernel or placement is unknown.
        """
        columns = sampler.columns(graph)[0]  # the columns of all hops have the same tables
        mode = WEIGHTED if sampler.weighted else REPLACE if sampler.replace else DISTINCT
        super().__init__(graph, workspace, sampler.fanout_codes, mode, sampler.expand, AliasTables(columns.threshold, columns.alias))
