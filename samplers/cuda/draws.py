"""``GraphDraws``, which draws edges of one graph on a CUDA device, by a given schedule or by the cheaper of two. One of them groups requests by node."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine.gpu_memory.device_store import DeviceGraph
from hoptrain.engine.gpu_memory.device_stream import Buffers
from hoptrain.kernels.cuda.draw import count_draws
from hoptrain.kernels.cuda.group import NUM_CLASSES, NUM_COUNTERS, Groups, clear
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.sample_parallel import draw_by_sample
from hoptrain.kernels.cuda.transit_parallel import draw_by_transit
from hoptrain.samplers.cuda.cost_model import choose_schedule


class GraphDraws:
    """The draws for the requests of one bulk of K batches. A request is a node of a batch that draws edges.

    The argument ``draw`` of its methods is a tuple of the fanout, the mode and the hop's address.

    Attributes:
        expected: expected number of requests of the next hop, of all batches together, as learned from earlier bulks; None to assume the capacity.
    """

    expected: float | None = None

    def __init__(self, graph: DeviceGraph, launch: Launch, buffers: Buffers, kernel: str, name: str = "") -> None:
        """Keep the graph and the launch parameters.

        Args:
            graph: graph on the device whose columns are drawn from.
            launch: launch parameters of the bulk.
            buffers: scratch buffers.
            kernel: schedule, "sample", "transit" or "auto".
            name: suffix of the names of buffers, different for graphs with different numbers of nodes.
        """
        self.graph, self.launch, self._buffers, self._kernel, self._name = graph, launch, buffers, kernel, name
        self.num_graph_nodes, self.num_edges = len(graph.indptr) - 1, len(graph.indices)

    def count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        """Queue the count of the edges of each request.

        Args:
            requests: nodes (K, N), and (K,) the first and (K,) the end of the requests among them.
            capacity: most requests of a batch.
            draw: fanout, mode and address.
            counts: (K, N + 1) receives the numbers, at the positions of the nodes.
        """
        self.launch.rows(count_draws, capacity, self.graph.indptr, self.graph.alias, *requests, *draw[:2], counts)

    def draw(
        self, requests: tuple[Any, Any, Any], capacity: int, known: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]
    ) -> str:
        """Queue the draws of the edges of each request, and return the schedule.

        Args:
            requests: nodes (K, N), and (K,) the first and (K,) the end of the requests among them.
            capacity: most requests of a batch.
            known: most nodes of a batch, whether they are requests or not.
            draw: fanout, mode and address.
            output: indptr, edge ids and global ids of sources (K, ...), which are written.
        """
        schedule = self.schedule_for(capacity, draw[0])
        if schedule == "sample":
            draw_by_sample(self.launch, self.graph.arrays(), requests, capacity, draw, output)
        else:
            groups = self.groups_for(capacity, known, requests[0].dtype)
            draw_by_transit(self.launch, self.graph.arrays(), requests, capacity, draw, output, groups)
        return schedule

    def schedule_for(self, capacity: int, fanout: int) -> str:
        """Return the schedule of a hop with ``expected`` requests or, if that is None, ``capacity`` requests for each batch."""
        if self._kernel != "auto":
            return self._kernel
        table = self.launch.thresholds
        number = capacity * self.launch.num_batches if self.expected is None else self.expected
        cost = table.pinned_cost if self.graph.placement["indices"] == "pinned" else 1
        return choose_schedule(number, fanout, self.num_graph_nodes, self.num_edges, self.graph.indices.dtype.itemsize, cost, table)

    def groups_for(self, capacity: int, known: int, id_dtype: Any) -> Groups:
        """Return the buffers for grouping up to ``capacity`` requests of each batch, which has up to ``known`` nodes."""
        vertices, num_requests = self.num_graph_nodes, capacity * self.launch.num_batches
        transits = min(vertices, num_requests)

        def array(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
            return self._buffers.array(f"{name}{self._name}", shape, dtype)

        is_new = f"group_size{self._name}" not in self._buffers
        group_size = array("group_size", (vertices,), np.int32)
        if is_new:
            self.launch.flat(clear, vertices, group_size)
        return Groups(
            counters=array("counters", (NUM_COUNTERS,), np.int64),
            group_size=group_size,
            transit_of=array("transit_of", (vertices,), np.int32),
            transits=array("transits", (transits,), id_dtype),
            sizes=array("sizes_of_groups", (transits,), np.int32),
            starts=array("starts", (transits,), np.int64),
            classes=array("classes", (NUM_CLASSES, transits), np.int32),
            ranks=array("ranks_in_groups", (self.launch.num_batches, known), np.int32),
            members=array("members", (num_requests,), np.int64),
        )
