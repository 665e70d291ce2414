"""``Frontier``, the nodes of a mini-batch that is being sampled, and the table that turns their global ids into local ids."""

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
    """The nodes found so far, as global ids in order of first appearance, in an array of a workspace.

    Attributes:
        workspace: owner of the array of nodes.
        table: relabelling table from global to local ids.
        num_graph_nodes: number of nodes of the graph: global ids are in [0, num_graph_nodes).
        dtype: dtype of the global ids.
        name: name of the array of nodes in the workspace.
        num_nodes: number of nodes found so far.
    """

    workspace: Workspace
    table: RelabelTable
    num_graph_nodes: int
    dtype: Any
    name: str = "nodes"
    num_nodes: int = 0

    @classmethod
    def of_seeds(cls, graph: Graph, seeds: Array, workspace: Workspace) -> Frontier:
        """Return a frontier of the seeds (B,), distinct nodes of a graph.

        Raises:
            InputError: a seed is outside the graph, or is given twice.
        """
        frontier = cls(workspace, workspace.table, graph.num_nodes, graph.indices.dtype)
        frontier.enter_seeds(check_seeds(graph, seeds))
        return frontier

    def nodes(self, extra: int = 0) -> Array:
        """Return the array (num_nodes + ``extra``,) of the nodes found so far, with free space for ``extra`` further nodes."""
        return self.workspace.array(self.name, self.num_nodes + extra, self.dtype, keep=self.num_nodes)

    def enter_seeds(self, seeds: Array) -> None:
        """Begin with the seeds (B,), possibly none, whose dtype and range were checked.

        Raises:
            InputError: a seed is given twice.
        """
        self.num_nodes = 0
        nodes = self.nodes(len(seeds))
        nodes[:] = seeds
        again = self.forget(len(seeds))
        if again >= 0:
            raise seed_given_twice(nodes[again])

    def relabel(self, sources: Array) -> None:
        """Turn ``sources`` (M,) from global into local ids, in place, and append new sources to the nodes."""
        nodes = self.reserve(len(sources))
        self.num_nodes = relabel(sources, 0, len(sources), self.table.view(), nodes, self.num_nodes)

    def reserve(self, most: int) -> Array:
        """Return the array of nodes, with space in array and table for ``most`` more nodes, and for the entry that relabelling writes past the last node."""
        last = self.num_nodes
        self.table.reserve(self.nodes(), last, min(last + most, self.num_graph_nodes))
        return self.nodes(min(most, self.num_graph_nodes - last) + 1)

    def forget(self, num_nodes: int) -> int:
        """Keep only the first ``num_nodes`` nodes, also in the table. Return the position of a repeated node, or -1 if all are distinct."""
        self.num_nodes = num_nodes
        self.table.start(self.num_graph_nodes, num_nodes)
        return self.table.enter(self.nodes(), num_nodes)
