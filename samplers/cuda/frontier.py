"""``DeviceFrontier``, the nodes of a growing bulk on a CUDA device, and the tables that map their global to local ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.kernels.cuda.relabel import clear_table, enter_nodes, find_repeated, relabel
from hoptrain.kernels.cuda.stamped import enter, find_repeated_stamped, relabel_stamped
from hoptrain.samplers.cuda.device_sampler import DeviceSampler


class DeviceFrontier:
    """The nodes found so far of the K batches of a bulk, with a row for each batch.

    Attributes:
        nodes: (K, N) global node ids by local id.
        known: bound of the nodes that a batch has so far.
        stamped: relabelling table that is never cleared, or None.
        table: relabelling table that is cleared for each bulk, used if ``stamped`` is None.
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
        capacity: int | None = None,
        trees: int | None = None,
        start: str = "start",
    ) -> None:
        """Create a frontier without nodes.

        Args:
            work: driver whose buffers and launches are used.
            most: most nodes that a batch can have.
            id_dtype: dtype of global node ids.
            name: suffix of the names of its buffers.
            capacity: most nodes of a batch of this bulk, to use a table that is never cleared; None to use one that is cleared.
            trees: number of trees, if nodes are keys (node ids of int32 in trees); None if they are node ids below ``most``.
            start: name of the size with which numbers in a table that is never cleared begin.
        """
        self.known = 0
        self._work, self._most, self._id_dtype, self._name = work, most, id_dtype, name
        self.stamped = None if capacity is None else work.stamped_table(f"table{name}", capacity, most, id_dtype, trees, start)

    def enter_seeds(self, given: Any, known: int, num_nodes: Any) -> None:
        """Queue the entry of the seeds ``given`` (K, ``known`` or more). The size "repeated" becomes the position of the first repeated seed."""
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

    def _reserve(self, capacity: int, num_nodes: Any) -> tuple[Any, Any]:
        """Return the relabelling table, enlarged to ``capacity`` nodes if necessary. A new table gets the first ``num_nodes`` nodes again."""
        launch, table = self._work.launch, self._work.table(f"table{self._name}", capacity, self._id_dtype)
        if self.table is None or any(now is not before for now, before in zip(table, self.table, strict=True)):
            clear_table(launch, *table)
            if self.table is not None:
                launch.rows(enter_nodes, self.known, self.nodes, num_nodes, *table, self.nodes)
        self.table = table
        return table

    def relabel(self, sources: Any, most: int, edges: tuple[Any, Any], num_before: Any, num_after: Any, fresh: int | None = None) -> None:
        """Queue the relabelling of ``sources[b, begin[b]:end[b]]``, with ``edges`` = (begin, end), to local ids in place; append new ones to the nodes.

        There are at most ``most`` sources for each batch, and at most ``fresh`` new ones, by default ``most``.
        """
        work, (begin, end) = self._work, edges
        capacity = min(self._most, self.known + (most if fresh is None else fresh))
        self.nodes = work.matrix(f"nodes{self._name}", capacity, self._id_dtype, keep=True)
        if self.stamped is None:
            table, scratch = self._reserve(capacity, num_before), work.relabel_scratch(sources.shape[1])
            relabel(work.launch, sources, self.nodes, most, begin, end, capacity, table, scratch, num_before, num_after)
        else:
            sums = work.sums(sources.shape[1])
            relabel_stamped(work.launch, sources, self.nodes, most, begin, end, capacity, self.stamped, sums, num_before, num_after)
        self.known = capacity

    def forget(self, known: int, num_nodes: Any, start: Any) -> None:
        """Queue the removal of all but the first ``num_nodes`` nodes, at most ``known``; numbers in ``stamped`` begin with ``start`` from now on."""
        launch, self.known = self._work.launch, known
        if self.stamped is not None:
            self.stamped = self.stamped._replace(start=start)
            enter(launch, self.nodes, num_nodes, known, self.stamped, self.nodes)
            return
        clear_table(launch, *self.table)
        launch.rows(enter_nodes, known, self.nodes, num_nodes, *self.table, self.nodes)
