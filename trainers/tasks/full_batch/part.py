"""A rank's part of the whole graph, and a model's layers over it.

Each rank owns a run of nodes, and computes their vectors in every layer. What its columns name beyond them, the boundary, it gets from its
owners between two layers, by an exchange that gradients take backwards. A layer goes over the owned nodes in chunks of bounded numbers of edges;
where there are several, what a chunk computes within a layer is not kept but computed again for its gradient, so that memory is bounded by the
vectors between the layers and one chunk's messages. (As NeuGraph, ROC and other systems of whole-graph training do; Ma et al. 2019, Jia et al. 2020.)
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
class Piece:
    """Some of a rank's nodes, all their in-edges, and what a layer reads for them.

    Attributes:
        rows: (num_src,) int64, which rows of the layer's input its sources are; None where it is all of them in order.
        block: of its edges.
        degrees: (num_src,) in-degrees of its sources.
    """

    rows: Tensor | None
    block: Block
    degrees: Tensor


@dataclass(frozen=True, eq=False, slots=True)
class Boundary:
    """What a rank sends and gets between two layers. ``ids`` (M,) are rows of its own that others need, theirs rank by rank.

    Attributes:
        ids: (M,) int64.
        sent: how many of them each rank gets.
        received: how many rows of each rank come.
        group: of the ranks: another one than DDP's, whose collectives run beside these in an order of their own.
    """

    ids: Tensor
    sent: tuple[int, ...]
    received: tuple[int, ...]
    group: Any


@dataclass(frozen=True, eq=False, slots=True)
class WholePart:
    """What a rank has of the graph.

    Attributes:
        first: its first node.
        last: behind its last one.
        x: (N + H, F) what enters the model for its N nodes and, behind them, the H of its boundary.
        pieces: its nodes in order.
        boundary: None with one rank.
    """

    first: int
    last: int
    x: Tensor
    pieces: Sequence[Piece]
    boundary: Boundary | None

    @classmethod
    def of(cls, data: Dataset, chunk_edges: int, *, normalize: bool, device: torch.device, rank: int = 0, world_size: int = 1) -> WholePart:
        """The part of a rank; with several every rank calls it.

        Args:
            data: the data set.
            chunk_edges: edges of a chunk, about; a node's edges are never divided.
            normalize: divide each node's features by their sum.
            device: the rank's.
            rank: in [0, ``world_size``).
            world_size: number of ranks.
        """
        bounds = shares_of(data.graph, world_size)
        beyond = [boundary_of(data.graph, bounds, other) for other in range(world_size)]
        first, last = int(bounds[rank]), int(bounds[rank + 1])
        own = np.concatenate([np.arange(first, last), beyond[rank]])
        place = np.full(data.graph.num_nodes, -1, np.int64)
        place[own] = np.arange(len(own))
        pieces = [_piece(data, some, place, device) for some in chunks(data.graph.indptr, np.arange(first, last), chunk_edges)]
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
        """What the model gives for the rank's nodes, (N, C), from all their neighbourhoods; ``seed`` addresses what dropout draws."""
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
        out: Tensor = checkpoint(run, x, use_reentrant=False, preserve_rng_state=False)  # what it draws comes from its seed
        return out


def _piece(data: Dataset, vertices: Array, place: Array, device: torch.device) -> Piece:
    batch = with_edge_features(NeighborSampler([-1]).sample(data.graph, vertices), data)
    rows = place[batch.node_ids]
    in_order = len(rows) == int((place >= 0).sum()) and (rows == np.arange(len(rows))).all()
    return Piece(
        None if in_order else torch.from_numpy(rows).to(device),
        batch.to(device).blocks[0],
        torch.from_numpy(degrees_of(data, batch.node_ids)).to(device),
    )


def shares_of(graph: Graph, world_size: int) -> Array:
    """(W + 1,) where the ranks' runs of nodes begin and end: about as many edges and nodes together for each."""
    work = graph.indptr.astype(np.int64) + np.arange(graph.num_nodes + 1)
    goals = work[-1] * np.arange(1, world_size) // world_size
    bounds: Array = np.concatenate([[0], np.searchsorted(work, goals), [graph.num_nodes]])
    return bounds


def boundary_of(graph: Graph, bounds: Array, rank: int) -> Array:
    """The nodes beyond a rank's own that its columns name, ascending, so that those of an owner stand together: (H,) int64."""
    first, last = bounds[rank], bounds[rank + 1]
    named = np.zeros(graph.num_nodes, bool)
    named[graph.indices[graph.indptr[first] : graph.indptr[last]]] = True
    named[first:last] = False
    return np.flatnonzero(named)


class Exchange(torch.autograd.Function):
    """From a rank's own rows (N, C) to those of its boundary (H, C); gradients go back to the owners and add up there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, boundary: Boundary) -> Tensor:
        """Send the rows that others need, and get those of theirs."""
        ctx.boundary, ctx.num_rows = boundary, len(x)
        return _sent(x[boundary.ids], boundary.sent, boundary.received, boundary.group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """The same way back."""
        boundary = ctx.boundary
        back = _sent(grads[0].contiguous(), boundary.received, boundary.sent, boundary.group)
        return back.new_zeros(ctx.num_rows, back.shape[1]).index_add_(0, boundary.ids, back), None


def _sent(rows: Tensor, sizes: tuple[int, ...], expected: tuple[int, ...], group: Any) -> Tensor:
    out = rows.new_empty(sum(expected), rows.shape[1])
    distributed.all_to_all_single(out, rows, list(expected), list(sizes), group=group)
    return out
