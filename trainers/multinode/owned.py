"""Layer-wise inference over nodes that are sharded across ranks: each rank computes its own nodes, and fetches rows of others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import codes_of
from hoptrain.engine.partition.exchange import Exchange
from hoptrain.engine.partition.folder import open_partition
from hoptrain.engine.partition.rank_rows import RankRows
from hoptrain.engine.partition.rows import PartitionedFeatures
from hoptrain.engine.partition.topology.graph import PartitionedGraph
from hoptrain.engine.schedule import rows_per_rank


def own_vertices(data: Dataset) -> LocalNodes | None:
    """Return the assignment of nodes to ranks; None if features are not on several machines. Every rank must call this.

    If each machine has the whole graph, nodes are assigned to ranks as on one machine, so that sums over a chunk are bit-identical. If a machine has
    only the in-edges of its own nodes, these nodes are sharded across its ranks.

    Raises:
        InputError: the machines have different partitions, or cannot exchange rows.
    """
    rows, graph = codes_of(data.x), data.graph
    taken = rows.rank_rows() if isinstance(rows, PartitionedFeatures) else None
    if taken is None:
        return None
    exchange, every = taken.exchange, np.arange(len(rows))
    if not isinstance(graph, PartitionedGraph):
        return LocalNodes(graph, (every // rows_per_rank(len(rows), exchange.size)).astype(np.int32), exchange)
    owners, rank_of = rows.owner(every), np.empty(len(rows), np.int32)
    for part, ranks in enumerate(rows.ranks):
        own = np.flatnonzero(owners == part)
        rank_of[own] = np.asarray(ranks)[np.arange(len(own)) * len(ranks) // max(1, len(own))]
    return LocalNodes(open_partition(graph.path).columns(rows.machine).graph, rank_of, exchange)


class LocalNodes:
    """The assignment of nodes to ranks, and a method that computes a layer with each node on its rank.

    Attributes:
        graph: graph with all edges into the nodes of this rank.
    """

    def __init__(self, graph: Graph, rank_of: Array, exchange: Exchange) -> None:
        """Store the rank ``rank_of`` (V,) int32 of each node. ``exchange`` connects all ranks."""
        self.graph, self._rank_of, self._exchange = graph, rank_of, exchange

    def compute(self, layer: Callable[[Array], Tensor], wanted: Array) -> Computed:
        """Compute ``layer`` for the nodes ``wanted`` (N,), ascending, each on the rank that owns the node. Every rank must call this with the same nodes."""
        ranks = self._rank_of[wanted]
        number = np.empty(len(self._rank_of), np.int64)
        for rank in range(self._exchange.size):
            own = wanted[ranks == rank]
            number[own] = np.arange(len(own))
        return Computed(layer(wanted[ranks == self._exchange.rank]), self._rank_of, number, self._exchange)

    def asked(self, nodes: Array) -> Array:
        """Return the union, ascending, of the ``nodes`` (N,) of all ranks."""
        mine = np.zeros(len(self._rank_of), np.uint8)
        mine[nodes] = 1
        others = self._exchange.exchange(
            [np.packbits(mine) if rank != self._exchange.rank else mine[:0] for rank in range(self._exchange.size)]
        )
        for each in others:
            mine[: 8 * len(each)] |= np.unpackbits(each)[: len(mine)]
        return np.flatnonzero(mine)


class Computed:
    """Rows (N, C) of nodes, each stored on the rank that computed it. It has the interface of ``RankRows``, with ranks as partitions."""

    def __init__(self, own: Tensor, rank_of: Array, number: Array, exchange: Exchange) -> None:
        """Wrap the rows ``own`` (n, C) of this rank, the rank of each node (V,), and the index of its row on that rank (V,)."""
        self._own = own.detach().cpu().contiguous()
        self._rank_of, self._number = rank_of, number
        self.row_bytes: int = self._own.shape[1] * self._own.element_size()
        self.machine: int = exchange.rank
        self.num_parts: int = exchange.size
        self.ranks: list[list[int]] = [[rank] for rank in range(self.num_parts)]
        self._taken = RankRows(self, exchange)

    def __len__(self) -> int:
        return len(self._rank_of)

    def owner(self, ids: Array) -> Array:
        """Return the rank of each node."""
        return self._rank_of[ids]

    def numbers(self, ids: Array, part: int) -> Array:
        """Return the index that each node's row has on its rank."""
        return self._number[ids]

    def of_own(self, numbers: Array) -> Array:
        """Return the rows of this rank with these indices, (N, row_bytes) uint8."""
        return self._own[torch.from_numpy(numbers.astype(np.int64))].view(torch.uint8).numpy().reshape(len(numbers), self.row_bytes)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Fetch the rows of nodes (N,) from all ranks. This is a collective: each rank calls it any number of times, then ``finish``."""
        taken = torch.from_numpy(self._taken.take(rows.numpy()))
        return taken.view(self._own.dtype) if len(taken) else self._own[:0]  # torch cannot view empty rows as a wider dtype

    def all_at_once(self, nodes: Array) -> Tensor:
        """Fetch the rows of ``nodes`` (N,), and call ``finish``."""
        rows = self[torch.from_numpy(np.asarray(nodes))]
        self.finish()
        return rows

    def finish(self) -> None:
        """Stop fetching, but answer the requests of other ranks until all have finished."""
        self._taken.finish()
