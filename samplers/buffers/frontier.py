"""The nodes of a mini-batch in the making: global ids in order of first appearance, and the table that turns them into local ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.relabel import relabel
from hoptrain.samplers.buffers.workspace import RelabelTable, Workspace
from hoptrain.samplers.checks import check_seeds, seed_given_twice


@dataclass(eq=False, slots=True)
class Frontier:
    """The nodes so far, in a workspace's memory.

    Attributes:
        workspace: holds the nodes.
        table: of the nodes' local ids.
        num_graph_nodes: global ids are in [0, num_graph_nodes).
        dtype: of the nodes.
        name: of the nodes in the workspace.
        num_nodes: how many there are.
    """

    workspace: Workspace
    table: RelabelTable
    num_graph_nodes: int
    dtype: Any
    name: str = "nodes"
    num_nodes: int = 0

    @classmethod
    def of_seeds(cls, graph: Graph, seeds: Array, workspace: Workspace) -> Frontier:
        """Begin with distinct nodes (B,) of a graph.

        Raises:
            InputError: they are no nodes of it, or one stands there twice.
        """
        frontier = cls(workspace, workspace.table, graph.num_nodes, graph.indices.dtype)
        frontier.enter_seeds(check_seeds(graph, seeds))
        return frontier

    def nodes(self, room: int = 0) -> Array:
        """(num_nodes + room,) the nodes so far, with room for ``room`` more."""
        return self.workspace.array(self.name, self.num_nodes + room, self.dtype, keep=self.num_nodes)

    def enter_seeds(self, seeds: Array) -> None:
        """Begin with the seeds (B,), checked for kind and range; there may be none.

        Raises:
            InputError: one of them stands there twice.
        """
        self.num_nodes = 0
        nodes = self.nodes(len(seeds))
        nodes[:] = seeds
        again = self.forget(len(seeds))
        if again >= 0:
            raise seed_given_twice(nodes[again])

    def relabel(self, sources: Array) -> None:
        """Turn ``sources`` (M,) from global into local ids, in place; new ones become nodes."""
        nodes = self.make_room(len(sources))
        self.num_nodes = relabel(sources, 0, len(sources), self.table.view(), nodes, self.num_nodes)

    def make_room(self, most: int) -> Array:
        """The nodes with room for ``most`` more in array and table, and for the entry that relabelling writes beyond the last new node."""
        last = self.num_nodes
        self.table.reserve(self.nodes(), last, min(last + most, self.num_graph_nodes))
        return self.nodes(min(most, self.num_graph_nodes - last) + 1)

    def forget(self, num_nodes: int) -> int:
        """Go back to the first ``num_nodes`` nodes, with a fresh table; returns the place of one that stands there twice, or -1."""
        self.num_nodes = num_nodes
        self.table.start(self.num_graph_nodes, num_nodes)
        return self.table.enter(self.nodes(), num_nodes)
