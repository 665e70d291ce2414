"""What a sampler makes once for a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from hoptrain.engine import Graph, HeteroGraph

Made = TypeVar("Made")
SomeGraph = TypeVar("SomeGraph", bound=Graph | HeteroGraph)


class OncePerGraph(Generic[Made]):
    """A function of the graph whose last value is kept; it travels to the workers with its sampler.

    Graph and value are one tuple, so that a thread sees both or neither.
    """

    def __init__(self) -> None:
        """Nothing is made yet."""
        self._made: tuple[Graph | HeteroGraph, Made] | None = None

    def get(self, graph: SomeGraph, make: Callable[[SomeGraph], Made]) -> Made:
        """``make(graph)``, or what it gave for this same graph the last time."""
        if self._made is None or self._made[0] is not graph:
            self._made = graph, make(graph)
        return self._made[1]
