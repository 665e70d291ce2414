"""A rank's partition of the graph for full-batch training, and a model's layers over it.

Each rank owns a contiguous range of nodes, and computes their vectors in every layer. In-neighbours that other ranks own form its boundary. Between two
layers, the rank receives the boundary's vectors from their owners, in a differentiable exchange. A layer processes the owned nodes in chunks of
bounded numbers of edges. With several chunks, activations within a layer are recomputed in the backward pass, so memory is bounded by the vectors
between layers and the messages of one chunk. NeuGraph and ROC use the same scheme (Ma et al. 2019, Jia et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.utils.checkpoint import checkpoint

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers import Block, NeighborSampler
from hoptrain.trainers.models.batches import ForwardInputs, side_inputs
from hoptrain.trainers.models.features import model_input, with_edge_features
from hoptrain.trainers.models.inference import chunks, degrees_of
from hoptrain.trainers.models.layered import LayerwiseModule, address_seed, seed_generators


@dataclass(frozen=True, eq=False, slots=True)
class NodeChunk:
    """A chunk of a rank's nodes with all their in-edges, and the inputs that a layer needs for them.

    Attributes:
        rows: row numbers (num_src,) int64 of the chunk's sources in the layer's input; None if the sources are all rows, in order.
        block: block of the chunk's edges.
        degrees: in-degrees (num_src,) of the sources.
    """

    rows: Tensor | None
    block: Block
    degrees: Tensor


@dataclass(frozen=True, eq=False, slots=True)
class Boundary:
    """The rows that a rank sends and receives between two layers.

    Attributes:
        ids: own rows (M,) int64 to send, grouped by receiving rank.
        sent: number of rows to send to each rank.
        received: number of rows to receive from each rank.
        group: process group of the exchange. It is not DDP's, since DDP's collectives run concurrently and in another order.
    """

    ids: Tensor
    sent: tuple[int, ...]
    received: tuple[int, ...]
    group: Any


@dataclass(frozen=True, eq=False, slots=True)
class WholePart:
    """A rank's partition of the graph.

    Attributes:
        first: its first node.
        last: its last node plus one.
        x: input rows (N + H, F) of the model: the rank's N nodes, then the H nodes of its boundary.
        pieces: chunks of its nodes, in order.
        boundary: rows to exchange with other ranks; None with one rank.
    """

    first: int
    last: int
    x: Tensor
    pieces: Sequence[NodeChunk]
    boundary: Boundary | None

    @classmethod
    def of(cls, data: Dataset, chunk_edges: int, *, normalize: bool, device: torch.device, rank: int = 0, world_size: int = 1) -> WholePart:
        """Build a rank's partition. With several ranks, every rank must call this.

        Args:
            data: the data set.
            chunk_edges: approximate number of edges in a chunk; the edges of one node are never divided.
            normalize: divide each node's features by their sum.
            device: the rank's device.
            rank: number of the rank, in [0, ``world_size``).
            world_size: number of ranks.
        """
        bounds = partition_bounds(data.graph, world_size)
        beyond = [find_boundary(data.graph, bounds, other) for other in range(world_size)]
        first, last = int(bounds[rank]), int(bounds[rank + 1])
        own = np.concatenate([np.arange(first, last), beyond[rank]])
        row_of = np.full(data.graph.num_nodes, -1, np.int64)
        row_of[own] = np.arange(len(own))
        pieces = [_piece(data, some, row_of, device) for some in chunks(data.graph.indptr, np.arange(first, last), chunk_edges)]
        boundary = None
        if world_size > 1:
            asked = [theirs[(first <= theirs) & (theirs < last)] - first for theirs in beyond]
            boundary = Boundary(
                torch.from_numpy(np.concatenate(asked)).to(device),
                tuple(map(len, asked)),
                tuple(np.diff(np.searchsorted(beyond[rank], bounds)).tolist()),
                distributed.new_group(),
            )
        return cls(first, last, model_input(data, own, normalize, device), pieces, boundary)

    def apply(self, model: LayerwiseModule, forward_inputs: ForwardInputs, seed: Sequence[int]) -> Tensor:
        """Compute the model's outputs (N, C) for the rank's nodes from all their neighbours; ``seed`` addresses the random numbers of dropout."""
        x = self.x
        for i in range(model.num_layers):
            if i and self.boundary is not None:
                x = torch.cat([x, Exchange.apply(x, self.boundary)])  # type: ignore[no-untyped-call]
            x = torch.cat([self._layer(model, forward_inputs, i, x, number, (*seed, i, number)) for number in range(len(self.pieces))])
        return x

    def _layer(
        self, model: LayerwiseModule, forward_inputs: ForwardInputs, i: int, x: Tensor, number: int, seed: tuple[int, ...]
    ) -> Tensor:
        piece = self.pieces[number]

        def run(x: Tensor) -> Tensor:
            seed_generators(address_seed(*seed), x.device)
            rows = x if piece.rows is None else x[piece.rows]
            return model.layer(i, rows, *side_inputs(forward_inputs, piece.block, piece.degrees))

        if len(self.pieces) == 1:
            return run(x)
        out: Tensor = checkpoint(run, x, use_reentrant=False, preserve_rng_state=False)  # ``run`` seeds the generators itself
        return out


def _piece(data: Dataset, nodes: Array, row_of: Array, device: torch.device) -> NodeChunk:
    batch = with_edge_features(NeighborSampler([-1]).sample(data.graph, nodes), data)
    rows = row_of[batch.node_ids]
    in_order = len(rows) == int((row_of >= 0).sum()) and (rows == np.arange(len(rows))).all()
    return NodeChunk(
        None if in_order else torch.from_numpy(rows).to(device),
        batch.to(device).blocks[0],
        torch.from_numpy(degrees_of(data, batch.node_ids)).to(device),
    )


def partition_bounds(graph: Graph, world_size: int) -> Array:
    """Return the bounds (W + 1,) of the ranks' node ranges, chosen to balance the number of nodes plus in-edges."""
    work = graph.indptr.astype(np.int64) + np.arange(graph.num_nodes + 1)
    goals = work[-1] * np.arange(1, world_size) // world_size
    bounds: Array = np.concatenate([[0], np.searchsorted(work, goals), [graph.num_nodes]])
    return bounds


def find_boundary(graph: Graph, bounds: Array, rank: int) -> Array:
    """Return the sources (H,) int64 of a rank's in-edges that other ranks own. They are ascending, and thus grouped by the rank that owns them."""
    first, last = bounds[rank], bounds[rank + 1]
    named = np.zeros(graph.num_nodes, bool)
    named[graph.indices[graph.indptr[first] : graph.indptr[last]]] = True
    named[first:last] = False
    return np.flatnonzero(named)


class Exchange(torch.autograd.Function):
    """An autograd function that sends a rank's own rows (N, C) and returns the rows (H, C) of its boundary. Gradients are summed at the owners."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, boundary: Boundary) -> Tensor:
        """Send the rows that other ranks need, and receive the boundary's rows."""
        ctx.boundary, ctx.num_rows = boundary, len(x)
        return _sent(x[boundary.ids], boundary.sent, boundary.received, boundary.group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Send the gradients of the boundary's rows to the ranks that own these rows, and sum the gradients of this rank's own rows."""
        boundary = ctx.boundary
        back = _sent(grads[0].contiguous(), boundary.received, boundary.sent, boundary.group)
        return back.new_zeros(ctx.num_rows, back.shape[1]).index_add_(0, boundary.ids, back), None


def _sent(rows: Tensor, sizes: tuple[int, ...], expected: tuple[int, ...], group: Any) -> Tensor:
    out = rows.new_empty(sum(expected), rows.shape[1])
    distributed.all_to_all_single(out, rows, list(expected), list(sizes), group=group)
    return out
