"""``BulkEdges``, the edges of a hop of a bulk on a CUDA device, whose blocks are views of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.samplers.batch.minibatch import Block


class BulkEdges(NamedTuple):
    """The edges of a hop for K batches, in arrays (K, ...); of all hops if each node is expanded once."""

    indptr: Any
    edge_ids: Any
    indices: Any
    weights: Any = None
    """Weights of the edges as the bit patterns of float32 numbers, or None."""

    def results(self, stream: DeviceStream) -> BulkEdges:
        """Return the edges with arrays for the user, such as torch tensors."""
        indptr, edge_ids, indices = (stream.result(array) for array in self[:3])
        return BulkEdges(indptr, edge_ids, indices, None if self.weights is None else stream.result(self.weights.view(np.float32)))

    def block(self, b: int, num_dst: int, num_edges: int, num_src: int) -> Block:
        """Return the block of batch ``b`` with the given sizes."""
        return Block(
            indptr=self.indptr[b, : num_dst + 1],
            indices=self.indices[b, :num_edges],
            edge_ids=self.edge_ids[b, :num_edges],
            num_src=int(num_src),
            weights=None if self.weights is None else self.weights[b, :num_edges],
        )


def round_up(number: int) -> int:
    """Round a size up to four significant binary digits, so that similar bulks use the same buffers."""
    step = 1 << max(0, number.bit_length() - 4)
    return -(-number // step) * step
