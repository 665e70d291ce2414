"""A bulk of mini-batches in the making on a CUDA device: which buffers it works in, and which kernels run.

K batches, batch-major matrices. The host launches for sizes of which it only knows a bound; the true ones stay on the device until the bulk
is done. There is one exception: a hop that takes all neighbours (fanout -1) has no useful bound, so its number of edges is read back before
memory is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cuda.group import group_requests
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.cuda.draws import GraphDraws
from hoptrain.samplers.cuda.frontier import DeviceFrontier

if TYPE_CHECKING:
    from hoptrain.samplers.cuda.nodewise.neighbor import CudaNeighborSampling


class Edges(NamedTuple):
    """The edges of a hop, (K, ...); of all hops where vertices are expanded once."""

    indptr: Any
    edge_ids: Any
    indices: Any
    weights: Any = None
    """uint32, the bits of float32 numbers."""


class Order(NamedTuple):
    """In which order requests are taken, as kernels take it; see ``hoptrain.kernels.cuda.requests``."""

    grouped: int
    members: Any
    counters: Any


class Bulk:
    """One call of ``sample_bulk``. How edges are chosen is in ``_count`` and ``_draw``, which a subclass may replace.

    Attributes:
        has_trees: whether a node is a vertex in the tree of a seed, so that a vertex may be as many nodes as there are seeds.
        edges: of each hop, or of all.
        schedule: of each hop so far.
    """

    has_trees = False

    def __init__(self, sampling: CudaNeighborSampling, seeds: list[Array], address: tuple[int, int, int]) -> None:
        """Enter the seeds as the first nodes; ``address`` is seed, epoch and number of the first batch."""
        self.sampling = sampling
        self.buffers = sampling.buffers
        self.stream = sampling.stream.numba
        self.num_batches = len(seeds)
        self.launch = Launch(stream=self.stream, thresholds=sampling.thresholds, num_batches=self.num_batches)
        self.draws = GraphDraws(sampling.graph, self.launch, self.buffers, sampling.kernel)
        self.num_graph_edges = self.draws.num_edges
        self.id_dtype = np.dtype(np.int64) if self.has_trees else sampling.graph.indices.dtype
        trees = max(len(some) for some in seeds) if self.has_trees else 1
        self.most_nodes, self.most_edges = trees * self.draws.num_vertices, trees * self.num_graph_edges
        self.schedule: list[str] = []
        self.edges: list[Edges] = []
        # Bounds for a batch: the nodes that the last hop found, and its edges in the arrays that hops share.
        self.fresh, self.num_shared_edges = max(len(some) for some in seeds), 0
        self.dtype = sampling.offset_dtype = np.promote_types(sampling.offset_dtype, self._offset_dtype())
        self._upload(seeds, address)
        self.frontier = DeviceFrontier(self.launch, self.buffers, self.most_nodes, self.id_dtype, self.dtype)
        self.frontier.enter_seeds(seeds, self.num_nodes[0], self.repeated)
        self.matrix, self.sums = self.frontier.matrix, self.frontier.sums

    @property
    def nodes(self) -> Any:
        """(K, N) vertices by local id."""
        return self.frontier.nodes

    @property
    def known(self) -> int:
        """The most nodes that a batch has so far."""
        return self.frontier.known

    def _offset_dtype(self) -> np.dtype[Any]:
        """A type for offsets, local ids and places in the table: it holds four times the nodes there can be, and all edges."""
        known, most = self.fresh, 0
        for fanout in self.sampling.fanouts:
            edges = self.most_edges if fanout < 0 else known * fanout
            known, most = min(self.most_nodes, known + edges), most + edges
        return id_dtype(4 * known + most + 2)

    def _upload(self, seeds: list[Array], address: tuple[int, int, int]) -> None:
        """Sizes as they are before the first hop, and the random numbers' addresses.

        Rows of ``sizes``: zeros; the nodes of each batch before the first hop and after each; the edges of each hop; the place of the first
        seed that is there twice.
        """
        num_hops = len(self.sampling.fanouts)
        self.sizes = self.buffers.array("sizes", (2 * num_hops + 3, self.num_batches), np.int64)
        sizes = self.buffers.pinned("sizes", self.sizes)
        sizes[:] = 0
        sizes[1, : self.num_batches] = [len(some) for some in seeds]
        sizes[-1] = np.iinfo(np.int64).max
        self.sizes.copy_to_device(sizes, stream=self.stream)
        zeros, *rows, self.repeated = (self.sizes[row] for row in range(len(sizes)))
        self.zeros, self.num_nodes, self.num_edges = zeros, rows[: num_hops + 1], rows[num_hops + 1 :]
        addresses = self.buffers.array("addresses", (num_hops, 4), np.uint64)
        host = self.buffers.pinned("addresses", addresses)
        host[:, :3] = address
        host[:, 3] = np.arange(num_hops)
        addresses.copy_to_device(host, stream=self.stream)
        self.addresses = [addresses[hop] for hop in range(num_hops)]

    def sample_hop(self, hop: int) -> None:
        """Expand all nodes, or those that the hop before found."""
        fanout, mode = self.sampling.fanouts[hop], self.sampling.mode
        shares = self.sampling.expand == "new"
        name, requests = ("", self.fresh) if shares else (f"{hop}", self.known)
        low = self.num_nodes[hop - 1] if shares and hop else self.zeros
        base = self.num_edges[hop - 1] if shares and hop else self.zeros
        high, end = self.num_nodes[hop], self.num_edges[hop]
        draw = fanout, mode, self.addresses[hop]

        indptr = self.matrix(f"indptr{name}", self.known + 1, self.dtype, keep=shares and hop > 0)
        self._count((self.nodes, low, high), requests, draw, indptr)
        exclusive_scan(self.launch, indptr, requests, low, high, base, self.sums(requests), end)
        most = self._read_most_edges(hop) if fanout < 0 else requests * fanout
        before = self.num_shared_edges if shares else 0
        edge_ids = self.matrix(f"edge_ids{name}", before + most, id_dtype(self.num_graph_edges), keep=shares and hop > 0)
        indices = self.matrix(f"indices{name}", before + most, self.id_dtype, keep=shares and hop > 0)
        weights = self._draw((self.nodes, low, high), requests, draw, (indptr, edge_ids, indices))

        self.frontier.relabel(indices, most, (base, end), *self.num_nodes[hop : hop + 2])
        self.fresh, self.num_shared_edges = min(self.most_nodes, most), before + most
        edges = Edges(indptr, edge_ids, indices, weights)
        self.edges = [edges] if shares else [*self.edges, edges]

    def end(self) -> None:
        """Queue what comes after the last hop."""

    def complete(self, batches: list[MiniBatch]) -> list[MiniBatch]:
        """The batches with what a subclass has to add; all kernels are done."""
        return batches

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        """Write how many edges each request gives; see ``GraphDraws.count``."""
        self.draws.count(requests, capacity, draw, counts)

    def _read_most_edges(self, hop: int) -> int:
        """Wait for the sizes; the most edges of a batch in this hop, rounded up."""
        self.queue_sizes()
        self.sampling.stream.synchronize()
        num_edges = self._host_num_edges()
        before = num_edges[hop - 1] if self.sampling.expand == "new" and hop else 0
        return rounded_up(int((num_edges[hop] - before).max()))

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        """Write the edges of each request, and note the schedule; returns the edges' weights, or None. See ``GraphDraws.draw``."""
        self.schedule.append(self.draws.draw(requests, capacity, self.known, draw, output))

    def _order(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any]) -> Order:
        """The order of a hop's requests by its schedule, which is noted; where they are grouped, without those on vertices without edges."""
        self.schedule.append(self.draws.schedule_for(capacity, draw[0]))
        if self.schedule[-1] == "sample":
            return Order(0, self.zeros, self.zeros)
        vertices = self._vertices(requests)
        groups = self.draws.groups_for(capacity, self.known, vertices.dtype)
        group_requests(self.launch, self.sampling.graph.arrays(), (vertices, *requests[1:]), capacity, draw, groups)
        return Order(1, groups.members, groups.counters)

    def _vertices(self, requests: tuple[Any, Any, Any]) -> Any:
        """The vertices that the requests' nodes are."""
        return requests[0]

    def _launch_ordered(self, order: Order, kernel: Any, capacity: int, *args: Any) -> None:
        """Launch a kernel over a batch's up to ``capacity`` units in an order."""
        if order.grouped:
            self.launch.flat(kernel, capacity * self.num_batches, *args)
        else:
            self.launch.rows(kernel, capacity, *args)

    def read(self, name: str, sizes: Any) -> Array:
        """Wait for ``sizes`` (K,), which the device has written; the name is that of a buffer."""
        host = self.buffers.pinned(name, sizes)
        sizes.copy_to_host(host, stream=self.stream)
        self.sampling.stream.synchronize()
        return host[: self.num_batches].copy()

    def queue_sizes(self) -> None:
        """Have the sizes copied to the host; they are there once the stream is done."""
        self.sizes.copy_to_host(self.buffers.pinned("sizes", self.sizes), stream=self.stream)

    def _host_num_edges(self) -> Array:
        num_hops = len(self.sampling.fanouts)
        return self.buffers.pinned("sizes", self.sizes)[num_hops + 2 : -1, : self.num_batches]

    def read_sizes(self) -> tuple[Array, Array, Array]:
        """Wait for the queued sizes; nodes (H+1, K), edges (H, K), and the place of the first seed that is there twice (K,), beyond all if none."""
        self.sampling.stream.synchronize()
        sizes = self.buffers.pinned("sizes", self.sizes)
        num_hops = len(self.sampling.fanouts)
        return sizes[1 : num_hops + 2, : self.num_batches].copy(), self._host_num_edges().copy(), sizes[-1, : self.num_batches].copy()


def rounded_up(number: int) -> int:
    """A size of which four binary digits count, lest every bulk need new buffers."""
    step = 1 << max(0, number.bit_length() - 4)
    return -(-number // step) * step
