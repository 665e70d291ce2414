"""CUDA driver of ``VRGCNSampler``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import id_dtype
from hoptrain.kernels.cuda.draw import DISTINCT
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import FEW_EDGES
from hoptrain.samplers.cuda.nodewise.neighbor import CudaNeighbor
from hoptrain.samplers.nodewise.vrgcn import VRGCNSampler


class CudaVRGCN(CudaNeighbor):
    """The driver of ``VRGCNSampler``, which also copies the whole columns of the outermost block's destinations."""

    own_sizes = ("needed_history", "history")

    def __init__(self, graph: Graph, sampler: VRGCNSampler, workspace: Workspace) -> None:
        """Copy the graph to the device, or to pinned host memory.

        Raises:
            InputError: CUDA cannot be used, or the kernel or placement is unknown.
        """
        super().__init__(graph, sampler.neighbors, workspace)

    def sample_hop(self, hop: int) -> None:
        """Queue a hop, and keep the bound of the number of its destinations."""
        self.num_dst = self.known
        super().sample_hop(hop)

    def end(self) -> None:
        """Queue the copy of the destinations' columns."""
        requests = self.nodes, self.zeros, self.num_nodes[-2]
        indptr, draw = self.matrix("history_indptr", self.num_dst + 1, np.int64), (-1, DISTINCT, self.addresses[0])
        self.draws.count(requests, self.num_dst, draw, indptr)
        guess, bounds = min(self.most_edges, FEW_EDGES * self.num_dst), (*requests[1:], self.zeros)
        most = self.scan_into_buffer("needed_history", guess, indptr, self.num_dst, bounds, self.sizes["history"])
        edge_ids = self.matrix("history_edge_ids", most, id_dtype(self.num_graph_edges))
        self.history = indptr, self.matrix("history_indices", most, self.id_dtype)
        self.draws.draw(requests, self.num_dst, self.num_dst, draw, (indptr, edge_ids, self.history[1]))

    def batches(self) -> Bulk[MiniBatch]:
        """Return the mini-batches of the bulk, with the columns for the history."""
        indptr, indices = (self.stream.result(array) for array in self.history)

        def with_history(b: int, batch: MiniBatch) -> MiniBatch:
            columns = indptr[b, : batch.blocks[0].num_dst + 1], indices[b, : int(self.host_size("history")[b])]
            return replace(batch, extra=dict(zip(("history_indptr", "history_indices"), columns, strict=True)))

        return super().batches().map(with_history)
