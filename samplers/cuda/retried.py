"""What the samplers of layers and of subgraphs share on a CUDA device: nothing useful bounds their sizes, and nobody reads them back in between.

Work is queued for as much room as was enough so far. Kernels count on beyond the room, and write nothing there; if a count says at the end that
there was too little, the room grows and the bulk is queued again. Rooms only grow, so that happens in the first bulks, and hardly ever later.
"""

from __future__ import annotations

from typing import Self

from hoptrain.engine import Graph
from hoptrain.engine.arrays import id_dtype
from hoptrain.kernels.cuda.thresholds import COPY_UNIT
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.cuda.device_sampler import DeviceSampler
from hoptrain.samplers.scratch.workspace import Workspace

FEW_EDGES = 4
"""Edges of a node to or from chosen vertices for which there is room at first: if they are more, the first bulk tells."""


class Retried(DeviceSampler[MiniBatch]):
    """Samples one graph by one sampler.

    Attributes:
        graph: the device's copy of the graph.
        rooms: for what there is room in the bulk, by the name of the size that tells what is needed.
    """

    def __init__(self, graph: Graph, workspace: Workspace) -> None:
        """Copy the graph to where the device reads it.

        Raises:
            InputError: CUDA cannot be used, or an unknown kernel or placement.
        """
        super().__init__(workspace)
        self.host_graph, self.graph = graph, self.place_graph(graph)
        self.num_vertices, self.num_graph_edges = graph.num_nodes, graph.num_edges
        self.id_dtype, self.edge_dtype = graph.indices.dtype, id_dtype(graph.num_edges)
        self.rooms: dict[str, int] = {}
        self._enough: dict[str, int] = {}

    def twin(self) -> Self:
        """See ``DeviceSampler.twin``; it knows what was enough so far."""
        other = super().twin()
        other.rooms, other._enough = {}, dict(self._enough)
        return other

    def room(self, size: str, guess: int) -> int:
        """Room for what nothing bounds: ``guess``, or more if that was too little once."""
        self.rooms[size] = max(guess, self._enough.get(size, 0))
        return self.rooms[size]

    def is_done(self) -> bool:
        """Whether there was room for all; if not there is the next time, and for some more lest every bulk ask for a little."""
        needed = {size: int(self.host_size(size).max()) for size in self.rooms}
        grown = {size: number + (number >> 3) for size, number in needed.items() if number > self.rooms[size]}
        self._enough |= grown
        return not grown

    def num_parts(self, nodes: int) -> int:
        """Threads among which the in-edges of so many nodes are divided, as many as a grid has at most."""
        in_edges = nodes * max(1, self.num_graph_edges // max(1, self.num_vertices))
        return max(1, min(-(-in_edges // COPY_UNIT), self.thresholds.max_blocks * self.thresholds.block // self.num_batches))
