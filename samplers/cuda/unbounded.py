"""What the samplers of layers and of subgraphs share on a CUDA device: nothing useful bounds their sizes, so that there are rooms for them."""

from __future__ import annotations

from hoptrain.engine import Graph
from hoptrain.engine.arrays import id_dtype
from hoptrain.kernels.cuda.thresholds import COPY_UNIT
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.device_sampler import DeviceSampler


class Unbounded(DeviceSampler[MiniBatch]):
    """Samples one graph by one sampler.

    Attributes:
        graph: the device's copy of the graph.
    """

    def __init__(self, graph: Graph, workspace: Workspace) -> None:
        """Copy the graph to where the device reads it.

        Raises:
            InputError: CUDA cannot be used, or an unknown kernel or placement.
        """
        super().__init__(workspace)
        self.host_graph, self.graph = graph, self.place_graph(graph)
        self.num_graph_nodes, self.num_graph_edges = graph.num_nodes, graph.num_edges
        self.id_dtype, self.edge_dtype = graph.indices.dtype, id_dtype(graph.num_edges)

    def num_parts(self, nodes: int) -> int:
        """Threads among which the in-edges of so many nodes are divided, as many as a grid has at most."""
        in_edges = nodes * max(1, self.num_graph_edges // max(1, self.num_graph_nodes))
        return max(1, min(-(-in_edges // COPY_UNIT), self.thresholds.max_blocks * self.thresholds.block // self.num_batches))
