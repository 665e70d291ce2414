"""A placeholder for a graph whose columns are on several machines."""

from __future__ import annotations

from typing import Any, NoReturn

from hoptrain.engine.arrays import Array, read_only
from hoptrain.engine.errors import InputError
from hoptrain.engine.graph import Graph


class PartitionedGraph(Graph):
    """A graph of V nodes and E edges of which this machine knows only the degrees. Access to edges raises InputError.

    Attributes:
        indptr: (V+1,) column offsets of the whole graph.
        path: folder of the partitions.
        has_weight: True if the graph has no weights, or if at least one edge has a weight above 0.
    """

    __slots__ = ("has_weight", "path")

    def __init__(self, indptr: Array, is_sorted: bool, path: str, has_weight: bool = True) -> None:
        """Store the data that every machine has."""
        self.indptr, self.num_src = read_only(indptr), len(indptr) - 1
        self._is_sorted = is_sorted
        self.path = path
        self.has_weight = has_weight

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionedGraph, (self.indptr, self._is_sorted, self.path, self.has_weight)

    @property
    def num_edges(self) -> int:
        """Number of edges of the whole graph, E."""
        return int(self.indptr[-1])

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that are on this machine."""
        return {"indptr": self.indptr}

    edge_ids = None
    times = None

    @property
    def indices(self) -> NoReturn:  # type: ignore[override]
        """Not available: raises InputError."""
        raise self._elsewhere()

    @property
    def weights(self) -> NoReturn:  # type: ignore[override]
        """Not available: raises InputError."""
        raise self._elsewhere()

    def _elsewhere(self) -> InputError:
        return InputError(
            f"{self.path} has a partitioned graph: this needs all edges on one machine; write a whole graph, with 'hoptrain data partition' without "
            "--graph partitioned"
        )
