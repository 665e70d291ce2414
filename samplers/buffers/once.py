"""``OncePerGraph``, a cache of a value that a sampler computes once for a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from hoptrain.engine import Graph, HeteroGraph

Value = TypeVar("Value")
SomeGraph = TypeVar("SomeGraph", bound=Graph | HeteroGraph)


class OncePerGraph(Generic[Value]):
    """A cache of a value computed from a graph. It keeps the last value, and is pickled with its sampler for the workers.

    Graph and value are stored as one tuple, so that a thread sees both or neither.
    """

    def __init__(self) -> None:
        self._made: tuple[Graph | HeteroGraph, Value] | None = None

    def get(self, graph: SomeGraph, make: Callable[[SomeGraph], Value]) -> Value:
        """Return ``make(graph)``, or its last result if that was for the same graph."""
        if self._made is None or self._made[0] is not graph:
            self._made = graph, make(graph)
        return self._made[1]
