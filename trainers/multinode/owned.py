"""Layers over nodes that ranks share out: each computes its own, and takes rows of others from the ranks that computed them."""

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
    """Which nodes each rank computes; None where features are not on several machines. Every rank calls this.

    Where each machine has the graph, ranks have the nodes that they have on one machine, so that sums over a chunk of them have the same bits. Where it has
    the columns of its own nodes alone, these are shared out among its ranks.

    Raises:
        InputError: as ``PartitionedFeatures.meet``.
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
    """Which nodes each rank computes.

    Attributes:
        graph: has all edges into those of this rank.
    """

    def __init__(self, graph: Graph, rank_of: Array, exchange: Exchange) -> None:
        """Take the rank of every node (V,) int32, and an exchange among all ranks."""
        self.graph, self._rank_of, self._exchange = graph, rank_of, exchange

    def compute(self, layer: Callable[[Array], Tensor], wanted: Array) -> Computed:
        """What ``layer`` gives for the nodes ``wanted`` (N,), ascending, each on its rank; every rank calls this with the same ones."""
        ranks = self._rank_of[wanted]
        number = np.empty(len(self._rank_of), np.int64)
        for rank in range(self._exchange.size):
            own = wanted[ranks == rank]
            number[own] = np.arange(len(own))
        return Computed(layer(wanted[ranks == self._exchange.rank]), self._rank_of, number, self._exchange)

    def asked(self, nodes: Array) -> Array:
        """The nodes that any rank asks for by ``nodes`` (N,), ascending."""
        mine = np.zeros(len(self._rank_of), np.uint8)
        mine[nodes] = 1
        others = self._exchange.exchange(
            [np.packbits(mine) if rank != self._exchange.rank else mine[:0] for rank in range(self._exchange.size)]
        )
        for each in others:
            mine[: 8 * len(each)] |= np.unpackbits(each)[: len(mine)]
        return np.flatnonzero(mine)


class Computed:
    """Rows (N, C) of nodes, each on the rank that computed it, as ``RankRows`` takes them: a part is a rank's."""

    def __init__(self, own: Tensor, rank_of: Array, number: Array, exchange: Exchange) -> None:
        """Take what this rank computed (n, C), the rank of every node (V,), and where its row stands there (V,)."""
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
        """The rank of each node."""
        return self._rank_of[ids]

    def numbers(self, ids: Array, part: int) -> Array:
        """Where they stand there."""
        return self._number[ids]

    def of_own(self, numbers: Array) -> Array:
        """Rows (N, row_bytes) uint8 of this rank."""
        return self._own[torch.from_numpy(numbers.astype(np.int64))].view(torch.uint8).numpy().reshape(len(numbers), self.row_bytes)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Rows of nodes (N,); every rank takes some at a time, until it calls ``finish``."""
        taken = torch.from_numpy(self._taken.take(rows.numpy()))
        return taken.view(self._own.dtype) if len(taken) else self._own[:0]  # torch views no empty rows as wider numbers

    def all_at_once(self, nodes: Array) -> Tensor:
        """The rows of this rank's ``nodes`` (N,)."""
        rows = self[torch.from_numpy(np.asarray(nodes))]
        self.finish()
        return rows

    def finish(self) -> None:
        """This rank takes no more; it answers those that do."""
        self._taken.finish()
