"""Base class of the drivers of layer-wise and subgraph samplers on a CUDA device, whose buffers have capacities since their sizes have no useful bound."""

from __future__ import annotations

from hoptrain.engine import Graph
from hoptrain.engine.arrays import id_dtype
from hoptrain.kernels.cuda.thresholds import COPY_UNIT
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.device_sampler import DeviceSampler


class DynamicSizeSampler(DeviceSampler[MiniBatch]):
    """A driver whose sizes have no useful bound, so that its buffers have capacities (``DeviceSampler.capacity``).

    Attributes:
        graph: copy of the graph on the device.
    """

    def __init__(self, graph: Graph, workspace: Workspace) -> None:
        """Copy the graph to the device, or to pinned host memory.

        Raises:
            InputError: CUDA cannot be used, or the kernel or placement is unknown.
        """
        super().__init__(workspace)
        self.host_graph, self.graph = graph, self.place_graph(graph)
        self.num_graph_nodes, self.num_graph_edges = graph.num_nodes, graph.num_edges
        self.id_dtype, self.edge_dtype = graph.indices.dtype, id_dtype(graph.num_edges)

    def num_parts(self, nodes: int) -> int:
        """Return the number of threads among which to divide the in-edges of ``nodes`` nodes, at most the number of threads of a grid."""
        in_edges = nodes * max(1, self.num_graph_edges // max(1, self.num_graph_nodes))
        return max(1, min(-(-in_edges // COPY_UNIT), self.thresholds.max_blocks * self.thresholds.block // self.num_batches))
