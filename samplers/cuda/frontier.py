"""The nodes of a bulk in the making on a CUDA device: vertices by local id, and the tables that turn vertices into local ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.device import Buffers
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.relabel import clear_table, enter_nodes, find_repeated, relabel


class DeviceFrontier:
    """K batches, a row of every matrix for each.

    Attributes:
        nodes: (K, N) vertices by local id.
        known: the most nodes that a batch has.
        most: the most that one can have.
    """

    def __init__(self, launch: Launch, buffers: Buffers, most: int, id_dtype: np.dtype[Any], dtype: np.dtype[Any], name: str = "") -> None:
        """Start without nodes.

        Args:
            launch: of the bulk.
            buffers: where the arrays are.
            most: the most nodes that a batch can have.
            id_dtype: of vertices.
            dtype: of local ids; it holds ``most`` and the edges of a hop together.
            name: tells frontiers apart.
        """
        self.launch, self.buffers, self.most, self.id_dtype, self.dtype, self.name = launch, buffers, most, id_dtype, dtype, name
        self.known = 0
        self.nodes: Any = None
        self._table: tuple[Any, Any] | None = None

    def matrix(self, name: str, width: int, dtype: Any, *, keep: bool = False) -> Any:
        """(K, at least ``width``)."""
        rows = self.launch.num_batches
        return self.buffers.array(name, (rows, width), dtype, keep=rows if keep else 0)

    def sums(self, items: int) -> Any:
        """Scratch of a scan."""
        return self.matrix("sums", -(-items // self.launch.thresholds.block), np.int64)

    def enter_seeds(self, seeds: list[Array], num_nodes: Any, repeated: Any) -> None:
        """Begin with these; ``repeated`` (K,) falls to the place of the first one that stands there twice."""
        self.known = max(len(some) for some in seeds)
        given = self.matrix(f"seeds{self.name}", self.known, self.id_dtype)
        host = self.buffers.pinned(f"seeds{self.name}", given)
        for row, some in zip(host, seeds, strict=False):
            row[: len(some)] = some
        given.copy_to_device(host, stream=self.launch.stream)
        self.nodes = self.matrix(f"nodes{self.name}", self.known, self.id_dtype)
        table = self._reserve(self.known, num_nodes)
        self.launch.rows(enter_nodes, self.known, given, num_nodes, *table, self.nodes)
        self.launch.rows(find_repeated, self.known, given, num_nodes, *table, repeated)

    def _reserve(self, room: int, num_nodes: Any) -> tuple[Any, Any]:
        """The table, at most half full with ``room`` nodes; a new one gets the ``num_nodes`` that there are."""
        size = 1 << (2 * max(1, room) - 1).bit_length()
        table = self.matrix(f"keys{self.name}", size, self.id_dtype), self.matrix(f"values{self.name}", size, self.dtype)
        if self._table is None or any(now is not before for now, before in zip(table, self._table, strict=True)):
            clear_table(self.launch, *table)
            if self._table is not None:
                self.launch.rows(enter_nodes, self.known, self.nodes, num_nodes, *table, self.nodes)
        self._table = table
        return table

    def relabel(self, sources: Any, most: int, edges: tuple[Any, Any], num_before: Any, num_after: Any) -> None:
        """Turn ``sources[b, begin[b]:end[b]]`` (``edges``), ``most`` at most, into local ids, in place; new ones become nodes."""
        begin, end = edges
        room = min(self.most, self.known + most)
        self.nodes = self.matrix(f"nodes{self.name}", room, self.id_dtype, keep=True)
        table = self._reserve(room, num_before)
        width = sources.shape[1]
        scratch = self.matrix("slots", width, self.dtype), self.matrix("ranks", width + 1, self.dtype), self.sums(most)
        relabel(self.launch, sources, self.nodes, most, begin, end, room, table, scratch, num_before, num_after)
        self.known = room

    def forget(self, known: int, num_nodes: Any) -> None:
        """Go back to the first ``num_nodes`` nodes, ``known`` at most."""
        table = self._reserve(self.known, num_nodes)
        self.known = known
        clear_table(self.launch, *table)
        self.launch.rows(enter_nodes, known, self.nodes, num_nodes, *table, self.nodes)
