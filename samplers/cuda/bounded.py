"""Base class of node-wise drivers on a CUDA device. They sample hop by hop; fanouts bound the size of every buffer, except for fanout -1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cuda.draw import DISTINCT
from hoptrain.kernels.cuda.group import group_requests
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.alias import NO_TABLES, AliasTables
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import FEW_EDGES, DeviceSampler, Upload, longest
from hoptrain.samplers.cuda.draws import GraphDraws
from hoptrain.samplers.cuda.edges import BulkEdges
from hoptrain.samplers.cuda.frontier import DeviceFrontier


class Order(NamedTuple):
    """The order in which kernels process requests; see ``hoptrain.kernels.cuda.group``."""

    grouped: int
    members: Any
    counters: Any


class FixedSizeSampler(DeviceSampler[MiniBatch]):
    """A driver that samples a graph hop by hop. A subclass may override ``_count`` and ``_draw``, which choose the edges.

    Attributes:
        has_trees: whether each seed has a tree of its own, so that a node of the graph may be as many nodes of a batch as there are seeds.
        num_trees: with ``has_trees`` the most seeds of a batch, else None.
        own_sizes: names of further sizes of a subclass.
        sizes_of_hop: names of further sizes of a subclass that each hop has.
        graph: copy of the graph on the device.
        edges: edges of each hop; if hops share their arrays, a single entry.
        order: order of the requests that ``_order`` chose last.
        schedule: schedule of each hop of the last bulk, "sample" or "transit".
        num_nodes: sizes of the nodes before the first hop and after each.
        num_edges: sizes of the edges of each hop.
    """

    has_trees = False
    own_sizes: tuple[str, ...] = ()
    sizes_of_hop: tuple[str, ...] = ()

    def __init__(
        self,
        graph: Graph,
        workspace: Workspace,
        fanouts: Sequence[int],
        mode: int = DISTINCT,
        expand: str = "all",
        tables: AliasTables = NO_TABLES,
    ) -> None:
        """Copy the graph to the device, or to pinned host memory.

        Args:
            graph: graph to sample.
            workspace: workspace with the schedule and the graph's placement, neither of which changes the results.
            fanouts: most edges of a request in each hop; -1 takes all.
            mode: mode of the draws, see ``hoptrain.kernels.cuda.draw``.
            expand: nodes that a hop expands, "all" or "new".
            tables: alias tables for draws by weight.

        Raises:
            InputError: CUDA cannot be used, or the kernel or placement is unknown.
        """
        super().__init__(workspace)
        self.host_graph, self.graph = graph, self.place_graph(graph, tables)
        self.fanouts, self.mode, self.expand, self.hops = tuple(fanouts), mode, expand, range(len(fanouts))
        self.size_names = (
            "zeros", "start", "unplaced", "repeated", "nodes0",
            *(f"nodes{hop + 1}" for hop in self.hops), *(f"edges{hop}" for hop in self.hops), *self.own_sizes,
            *(f"{name}{hop}" for name in self.sizes_of_hop for hop in self.hops),
            *(f"needed{hop}" for hop in self.hops if fanouts[hop] < 0),
        )  # fmt: skip
        self.num_graph_edges, self.id_dtype = graph.num_edges, np.dtype(np.int64) if self.has_trees else graph.indices.dtype
        self.schedule: list[str] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.graph}, fanouts={list(self.fanouts)}, kernel={self.kernel!r}, schedule={self.schedule})"

    def start(self, seeds: Sequence[Array], *, edit: Callable[[Any], None] | None = None, **address: Any) -> Callable[[], Bulk[MiniBatch]]:
        """Queue a bulk; see ``DeviceSampler.start``. ``edit`` is called after the last hop and may queue changes of the edges."""
        self._edit = edit
        return super().start(seeds, **address)

    def begin(self, seeds: list[Array]) -> None:
        """Check the seeds, and compute bounds of the sizes of a batch."""
        self.seeds = [check_seeds(self.host_graph, some) for some in seeds]
        self.most_seeds = longest(self.seeds)
        self.num_trees = self.most_seeds if self.has_trees else None
        trees = self.num_trees or 1
        self.most_nodes, self.most_edges = trees * self.host_graph.num_nodes, trees * self.num_graph_edges
        self.most_known, most = self._bounds(self.most_seeds)
        self.dtype = np.promote_types(self.dtype, id_dtype(4 * self.most_known + most + 2))
        self.given["nodes0"] = [len(some) for some in self.seeds]
        self.begin_tables(self.most_known + most + 2)

    def _bounds(self, known: int) -> tuple[int, int]:
        """Return the maximum number of nodes of a batch with ``known`` seeds, and the maximum number of edges in an array."""
        most = 0
        for fanout in self.fanouts:
            edges = self.most_edges if fanout < 0 else known * fanout
            known, most = min(self.most_nodes, known + edges), most + edges if self.expand == "new" else max(most, edges)
        return known, most

    def first_nodes(self) -> list[Array]:
        """Return the first nodes of each batch: the seeds."""
        return self.seeds

    def uploads(self) -> dict[str, Upload]:
        """Return the first nodes of each batch as the upload "seeds"."""
        return {"seeds": Upload(self.first_nodes(), self.id_dtype)}

    def queue(self) -> None:
        """Queue the kernels that enter the seeds as the first nodes, and then those of each hop."""
        self.draws = GraphDraws(self.graph, self.launch, self.buffers, self.kernel)
        self.zeros = self.sizes["zeros"]
        self.num_nodes = [self.sizes[f"nodes{hop}"] for hop in range(len(self.hops) + 1)]
        self.num_edges = [self.sizes[f"edges{hop}"] for hop in self.hops]
        self.schedule, self.edges, self.order = [], list[BulkEdges](), Order(0, self.zeros, self.zeros)
        # If hops take all edges, the upper bound of the nodes of trees is too large for a table.
        capacity = None if self.has_trees and (min(self.fanouts) < 0 or self.host_graph.indices.dtype != np.int32) else self.most_known
        self.frontier = DeviceFrontier(self, self.most_nodes, self.id_dtype, capacity=capacity, trees=self.num_trees)
        self.frontier.enter_seeds(self.brought["seeds"], self.most_seeds, self.num_nodes[0])
        # Upper bounds for a batch: nodes that the previous hop found, and edges so far in arrays that hops share.
        self.fresh, self.num_shared_edges = self.known, 0
        for hop in self.hops:
            self.draws.expected = self.expected(hop)
            self.sample_hop(hop)
        self.draws.expected = None
        self.end()
        if self._edit is not None:
            self._edit(self)

    def learn_sizes(self) -> None:
        """Learn from the first bulk the number of requests per seed in each hop."""
        nodes = [int(self.host_size(f"nodes{hop}").sum()) for hop in self.hops]
        before = [0, *nodes] if self.expand == "new" else [0] * len(nodes)
        requests = [number - old for number, old in zip(nodes, before, strict=False)]
        self.learn_requests(requests, ((hop, self.draws, self.fanouts[hop], schedule) for hop, schedule in enumerate(self.schedule)))

    @property
    def nodes(self) -> Any:
        """(K, N) global id of each node of the K batches, by local id."""
        return self.frontier.nodes

    @property
    def known(self) -> int:
        """Upper bound of the number of nodes found so far in a batch."""
        return self.frontier.known

    def sample_hop(self, hop: int) -> None:
        """Queue a hop, which expands all nodes or those that the previous hop found."""
        fanout, shares = self.fanouts[hop], self.expand == "new"
        name, requests = ("", self.fresh) if shares else (f"{hop}", self.known)
        low = self.num_nodes[hop - 1] if shares and hop else self.zeros
        base = self.num_edges[hop - 1] if shares and hop else self.zeros
        high, end = self.num_nodes[hop], self.num_edges[hop]
        draw = fanout, self.mode, self.addresses[hop]

        indptr = self.matrix(f"indptr{name}", self.known + 1, self.dtype, keep=shares)
        self._count((self.nodes, low, high), requests, draw, indptr)
        before = self.num_shared_edges if shares else 0
        if fanout < 0:
            guess = before + min(self.most_edges, FEW_EDGES * requests)
            buffer_size = self.scan_into_buffer(f"needed{hop}", guess, indptr, requests, (low, high, base), end, self.order.counters)
            most = min(buffer_size, self.most_edges)
        else:
            exclusive_scan(self.launch, indptr, requests, low, high, base, self.sums(requests), end)
            most, buffer_size = requests * fanout, before + requests * fanout
        edge_ids = self.matrix(f"edge_ids{name}", buffer_size, id_dtype(self.num_graph_edges), keep=shares)
        indices = self.matrix(f"indices{name}", buffer_size, self.id_dtype, keep=shares)
        weights = self._draw((self.nodes, low, high), requests, draw, (indptr, edge_ids, indices))

        self.frontier.relabel(indices, most, (base, end), *self.num_nodes[hop : hop + 2])
        self.fresh, self.num_shared_edges = min(self.most_nodes, most), buffer_size
        edges = BulkEdges(indptr, edge_ids, indices, weights)
        self.edges = [edges] if shares else [*self.edges, edges]

    def end(self) -> None:
        """Queue the work after the last hop, by default none."""

    def batches(self) -> Bulk[MiniBatch]:
        """Return the mini-batches of the bulk."""
        num_nodes, num_edges = (
            np.stack([self.host_size(f"{kind}{hop}") for hop in range(number)], axis=1).tolist()
            for kind, number in (("nodes", len(self.hops) + 1), ("edges", len(self.hops)))
        )
        nodes, hops = self.stream.result(self.nodes), [edges.results(self.stream) for edges in self.edges]
        hops = hops if len(hops) == len(self.hops) else hops * len(self.hops)

        def batch(b: int) -> MiniBatch:
            own = num_nodes[b]
            return MiniBatch(
                node_ids=nodes[b, : own[-1]],
                blocks=tuple(edges.block(b, own[h], num_edges[b][h], own[h + 1]) for h, edges in enumerate(hops))[::-1],
                num_seeds=own[0],
                nested=self.expand == "new",
            )

        return Bulk(self.num_batches, batch)

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        """Queue the count of the edges of each request; see ``GraphDraws.count``."""
        self.draws.count(requests, capacity, draw, counts)

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        """Queue the draws of the edges of each request, and note the schedule; return their weights or None. See ``GraphDraws.draw``."""
        self.schedule.append(self.draws.draw(requests, capacity, self.known, draw, output))

    def _order(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any]) -> Order:
        """Choose and note the schedule of a hop, and return the order of its requests. Grouped requests exclude nodes without edges."""
        self.schedule.append(self.draws.schedule_for(capacity, draw[0]))
        self.order = Order(0, self.zeros, self.zeros)
        if self.schedule[-1] == "transit":
            vertices = self._vertices(requests)
            groups = self.draws.groups_for(capacity, self.known, vertices.dtype)
            group_requests(self.launch, self.graph.arrays(), (vertices, *requests[1:]), capacity, draw, groups)
            self.order = Order(1, groups.members, groups.counters)
        return self.order

    def _vertices(self, requests: tuple[Any, Any, Any]) -> Any:
        """Return the global node ids of the requests."""
        return requests[0]

    def _launch_ordered(self, order: Order, kernel: Any, capacity: int, *args: Any) -> None:
        """Launch a kernel over up to ``capacity`` units of each batch, in the given order."""
        if order.grouped:
            self.launch.flat(kernel, capacity * self.num_batches, *args)
        else:
            self.launch.rows(kernel, capacity, *args)
