"""The nodes of a bulk in the making on a CUDA device: nodes by local id, and the tables that turn nodes into local ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.kernels.cuda.relabel import clear_table, enter_nodes, find_repeated, relabel
from hoptrain.kernels.cuda.stamped import enter, find_repeated_stamped, relabel_stamped
from hoptrain.samplers.cuda.device_sampler import DeviceSampler


class DeviceFrontier:
    """K batches, a row of every matrix for each.

    Attributes:
        nodes: (K, N) nodes by local id.
        known: the most nodes that a batch has.
        stamped: turns nodes into local ids, if it is one that is not cleared.
        table: does so otherwise.
    """

    nodes: Any
    table: Any = None

    def __init__(
        self,
        work: DeviceSampler[Any],
        most: int,
        id_dtype: np.dtype[Any],
        name: str = "",
        *,
        room: int | None = None,
        trees: int | None = None,
        start: str = "start",
    ) -> None:
        """Start without nodes.

        Args:
            work: whose buffers and launches are used.
            most: the most nodes that a batch can have.
            id_dtype: of nodes.
            name: tells frontiers apart.
            room: the most nodes that a batch of this bulk can have, if the table may be one that is never cleared; else None.
            trees: if nodes are keys, nodes of int32 in so many trees. Else they are nodes below ``most``.
            start: the size that numbers in a table that is not cleared begin with.
        """
        self.known = 0
        self._work, self._most, self._id_dtype, self._name = work, most, id_dtype, name
        self.stamped = None if room is None else work.stamped_table(f"table{name}", room, most, id_dtype, trees, start)

    def enter_seeds(self, given: Any, known: int, num_nodes: Any) -> None:
        """Begin with these (K, ``known`` or more); the size "repeated" falls to the place of the first one that stands there twice."""
        work = self._work
        self.known = known
        self.nodes = work.matrix(f"nodes{self._name}", self.known, self._id_dtype, keep=True)
        if self.stamped is None:
            table = self._reserve(self.known, num_nodes)
            work.launch.rows(enter_nodes, self.known, given, num_nodes, *table, self.nodes)
            work.launch.rows(find_repeated, self.known, given, num_nodes, *table, work.sizes["repeated"])
        else:
            enter(work.launch, given, num_nodes, self.known, self.stamped, self.nodes)
            find_repeated_stamped(work.launch, self.nodes, num_nodes, self.known, self.stamped, work.sizes["repeated"])

    def _reserve(self, room: int, num_nodes: Any) -> tuple[Any, Any]:
        """The table that is cleared, with room for ``room`` nodes; a new one gets the ``num_nodes`` that there are."""
        launch, table = self._work.launch, self._work.table(f"table{self._name}", room, self._id_dtype)
        if self.table is None or any(now is not before for now, before in zip(table, self.table, strict=True)):
            clear_table(launch, *table)
            if self.table is not None:
                launch.rows(enter_nodes, self.known, self.nodes, num_nodes, *table, self.nodes)
        self.table = table
        return table

    def relabel(self, sources: Any, most: int, edges: tuple[Any, Any], num_before: Any, num_after: Any, fresh: int | None = None) -> None:
        """Turn ``sources[b, begin[b]:end[b]]`` (``edges``), ``most`` at most, into local ids, in place; new ones become nodes.

        There are at most ``fresh`` new ones, by default ``most``.
        """
        work, (begin, end) = self._work, edges
        room = min(self._most, self.known + (most if fresh is None else fresh))
        self.nodes = work.matrix(f"nodes{self._name}", room, self._id_dtype, keep=True)
        if self.stamped is None:
            table, scratch = self._reserve(room, num_before), work.relabel_scratch(sources.shape[1])
            relabel(work.launch, sources, self.nodes, most, begin, end, room, table, scratch, num_before, num_after)
        else:
            sums = work.sums(sources.shape[1])
            relabel_stamped(work.launch, sources, self.nodes, most, begin, end, room, self.stamped, sums, num_before, num_after)
        self.known = room

    def forget(self, known: int, num_nodes: Any, start: Any) -> None:
        """Go back to the first ``num_nodes`` nodes, ``known`` at most; numbers in a table that is not cleared begin with ``start`` from now on."""
        launch, self.known = self._work.launch, known
        if self.stamped is not None:
            self.stamped = self.stamped._replace(start=start)
            enter(launch, self.nodes, num_nodes, known, self.stamped, self.nodes)
            return
        clear_table(launch, *self.table)
        launch.rows(enter_nodes, known, self.nodes, num_nodes, *self.table, self.nodes)
