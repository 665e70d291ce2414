"""Neighbour sampling on a CUDA device, bit for bit that of ``NeighborSampler``."""

from __future__ import annotations

from hoptrain.engine import Graph
from hoptrain.kernels.cuda.draw import DISTINCT, REPLACE, WEIGHTED
from hoptrain.samplers.buffers.alias import AliasTables
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.bounded import Bounded
from hoptrain.samplers.nodewise.neighbor import NeighborSampler


class CudaNeighbor(Bounded):
    """Samples one graph with one setting."""

    def __init__(self, graph: Graph, sampler: NeighborSampler, workspace: Workspace) -> None:
        """Copy the graph, and its alias tables if it is sampled by weight.

        Raises:
            InputError: as of ``Bounded``; or weights that are wanted and not there.
        """
        columns = sampler.columns(graph)[0]  # those of all hops have the same tables
        mode = WEIGHTED if sampler.weighted else REPLACE if sampler.replace else DISTINCT
        super().__init__(graph, workspace, sampler.fanout_codes, mode, sampler.expand, AliasTables(columns.threshold, columns.alias))
