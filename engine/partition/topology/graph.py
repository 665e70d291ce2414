"""A graph whose columns lie on several machines, in the place of one that is here."""

from __future__ import annotations

from typing import Any, NoReturn

from hoptrain.engine.arrays import Array, read_only
from hoptrain.engine.errors import InputError
from hoptrain.engine.graph import Graph


class PartitionedGraph(Graph):
    """Of V nodes and E edges this machine knows the degrees; whoever asks for more is refused in a line.

    Attributes:
        indptr: (V+1,) where each column begins in the whole graph.
        path: the folder of the parts.
        has_weight: whether an edge has a weight above 0, or edges have none.
    """

    __slots__ = ("has_weight", "path")

    def __init__(self, indptr: Array, is_sorted: bool, path: str, has_weight: bool = True) -> None:
        """Take what every machine knows."""
        self.indptr, self.num_src = read_only(indptr), len(indptr) - 1
        self._is_sorted = is_sorted
        self.path = path
        self.has_weight = has_weight

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionedGraph, (self.indptr, self._is_sorted, self.path, self.has_weight)

    @property
    def num_edges(self) -> int:
        """E."""
        return int(self.indptr[-1])

    def arrays(self) -> dict[str, Array]:
        """What is here."""
        return {"indptr": self.indptr}

    edge_ids = None
    times = None

    @property
    def indices(self) -> NoReturn:  # type: ignore[override]
        """Of no machine."""
        raise self._elsewhere()

    @property
    def weights(self) -> NoReturn:  # type: ignore[override]
        """Of no machine."""
        raise self._elsewhere()

    def _elsewhere(self) -> InputError:
        return InputError(
            f"{self.path} has the graph in parts, each on its machine: this needs all edges at once; write parts that have the graph whole, "
            "by 'hoptrain data partition' without --graph partitioned"
        )
