"""The edges of a bulk's hop on a CUDA device, and the blocks that are views of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.samplers.batch.minibatch import Block


class Edges(NamedTuple):
    """The edges of a hop, (K, ...); of all hops where nodes are expanded once."""

    indptr: Any
    edge_ids: Any
    indices: Any
    weights: Any = None
    """Of 4 bytes each, the bits of float32 numbers."""

    def results(self, stream: DeviceStream) -> Edges:
        """The arrays as users get them."""
        indptr, edge_ids, indices = (stream.result(array) for array in self[:3])
        return Edges(indptr, edge_ids, indices, None if self.weights is None else stream.result(self.weights.view(np.float32)))

    def block(self, b: int, num_dst: int, num_edges: int, num_src: int) -> Block:
        """The block of batch ``b``, which has these sizes."""
        return Block(
            indptr=self.indptr[b, : num_dst + 1],
            indices=self.indices[b, :num_edges],
            edge_ids=self.edge_ids[b, :num_edges],
            num_src=int(num_src),
            weights=None if self.weights is None else self.weights[b, :num_edges],
        )


def rounded_up(number: int) -> int:
    """A size of which four binary digits count, lest every bulk need new buffers."""
    step = 1 << max(0, number.bit_length() - 4)
    return -(-number // step) * step
