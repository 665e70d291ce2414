"""VR-GCN's sampling on a CUDA device, to the bit that of ``VRGCNSampler``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hoptrain.engine.arrays import id_dtype
from hoptrain.kernels.cuda.draw import DISTINCT
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.cuda.bulk import Bulk, rounded_up


class HistoryBulk(Bulk):
    """Neighbour sampling, and the whole columns of the outermost block's destinations. Their number of edges is read back."""

    def sample_hop(self, hop: int) -> None:
        """A hop, before which ``num_dst`` nodes at most are known."""
        self.num_dst = self.known
        super().sample_hop(hop)

    def end(self) -> None:
        """Copy the columns."""
        requests = self.nodes, self.zeros, self.num_nodes[-2]
        indptr, ends = (
            self.matrix("history_indptr", self.num_dst + 1, np.int64),
            self.buffers.array("history_ends", self.zeros.shape, np.int64),
        )
        draw = -1, DISTINCT, self.addresses[0]
        self.draws.count(requests, self.num_dst, draw, indptr)
        exclusive_scan(self.launch, indptr, self.num_dst, *requests[1:], self.zeros, self.sums(self.num_dst), ends)
        self.num_history = self.read("history_ends", ends)
        most = rounded_up(int(self.num_history.max()))
        edge_ids = self.matrix("history_edge_ids", most, id_dtype(self.num_graph_edges))
        self.history = indptr, self.matrix("history_indices", most, self.id_dtype)
        self.draws.draw(requests, self.num_dst, self.num_dst, draw, (indptr, edge_ids, self.history[1]))

    def complete(self, batches: list[MiniBatch]) -> list[MiniBatch]:
        """With their histories' columns."""
        indptr, indices = (self.sampling.stream.result(array) for array in self.history)

        def columns(b: int) -> dict[str, Any]:
            num_dst, num_edges = batches[b].blocks[0].num_dst, int(self.num_history[b])
            return {"history_indptr": indptr[b, : num_dst + 1], "history_indices": indices[b, :num_edges]}

        return [replace(batch, extra=columns(b)) for b, batch in enumerate(batches)]
