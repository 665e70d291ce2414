"""The nodes of a mini-batch in the making: global ids in order of first appearance, and the table that turns them into local ids."""

from __future__ import annotations

from dataclasses import dataclass

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.relabel import relabel
from hoptrain.samplers.base import seed_given_twice
from hoptrain.samplers.scratch.workspace import Workspace


@dataclass(eq=False, slots=True)
class Frontier:
    """The nodes so far, in a workspace's memory.

    Attributes:
        graph: the graph.
        workspace: holds the nodes under the name "nodes", and the table.
        num_nodes: how many there are.
    """

    graph: Graph
    workspace: Workspace
    num_nodes: int = 0

    def nodes(self, room: int = 0) -> Array:
        """(num_nodes + room,) the nodes so far, with room for ``room`` more."""
        return self.workspace.array("nodes", self.num_nodes + room, self.graph.indices.dtype, keep=self.num_nodes)

    def enter_seeds(self, seeds: Array) -> None:
        """Begin with the seeds (B,).

        Raises:
            InputError: one of them stands there twice.
        """
        nodes = self.nodes(len(seeds))
        nodes[:] = seeds
        self.num_nodes = len(seeds)
        again = self._enter()
        if again >= 0:
            raise seed_given_twice(nodes[again])

    def relabel(self, sources: Array) -> None:
        """Turn ``sources`` (M,) from global into local ids, in place; new ones become nodes."""
        nodes = self.make_room(len(sources))
        self.num_nodes = relabel(sources, 0, len(sources), self.workspace.table.view(), nodes, self.num_nodes)

    def make_room(self, most: int) -> Array:
        """The nodes with room for ``most`` more in array and table, and for the entry that relabelling writes beyond the last new node."""
        last, num_vertices = self.num_nodes, self.graph.num_nodes
        self.workspace.table.reserve(self.nodes(), last, min(last + most, num_vertices))
        return self.nodes(min(most, num_vertices - last) + 1)

    def forget(self, num_nodes: int) -> None:
        """Go back to the first ``num_nodes`` nodes."""
        self.num_nodes = num_nodes
        self._enter()

    def _enter(self) -> int:
        table = self.workspace.table
        table.start(self.graph.num_nodes, self.num_nodes)
        return table.enter(self.nodes(), self.num_nodes)
