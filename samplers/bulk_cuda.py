"""A bulk of mini-batches in the making on a CUDA device: which buffers it works in, and which kernels run.

K batches, batch-major matrices. The host launches for sizes of which it only knows a bound; the true ones stay on the device until the bulk
is done. There is one exception: a hop that takes all neighbours (fanout -1) has no useful bound, so its number of edges is read back before
memory is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cuda.draw import count_draws
from hoptrain.kernels.cuda.group import NUM_CLASSES, NUM_COUNTERS, Groups, clear
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.relabel import clear_table, enter_nodes, find_repeated, relabel
from hoptrain.kernels.cuda.sample_parallel import draw_by_sample
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.kernels.cuda.transit_parallel import draw_by_transit
from hoptrain.samplers.cost_model import choose_schedule

if TYPE_CHECKING:
    from hoptrain.samplers.neighbor_cuda import CudaNeighborSampling


class Bulk:
    """One call of ``sample_bulk``.

    Attributes:
        nodes: (K, N) vertices by local id.
        edges: (indptr, edge_ids, indices) of each hop, (K, ...); one triple for all hops where vertices are expanded once.
        schedule: of each hop so far.
    """

    def __init__(self, sampling: CudaNeighborSampling, seeds: list[Array], address: tuple[int, int, int]) -> None:
        """Enter the seeds as the first nodes; ``address`` is seed, epoch and number of the first batch."""
        self.sampling = sampling
        self.buffers = sampling.buffers
        self.stream = sampling.stream.numba
        self.num_batches = len(seeds)
        self.launch = Launch(stream=self.stream, thresholds=sampling.thresholds, num_batches=self.num_batches)
        self.num_vertices, self.num_graph_edges = len(sampling.graph.indptr) - 1, len(sampling.graph.indices)
        self.id_dtype = sampling.graph.indices.dtype
        self.schedule: list[str] = []
        self.edges: list[tuple[Any, Any, Any]] = []
        self.table: tuple[Any, Any] | None = None
        # Bounds for a batch: its nodes, those that the last hop found, and its edges in the arrays that hops share.
        self.known = self.fresh = max(len(some) for some in seeds)
        self.num_shared_edges = 0
        self.dtype = sampling.offset_dtype = np.promote_types(sampling.offset_dtype, self._offset_dtype())
        self._upload(seeds, address)
        self._enter_seeds(seeds)

    def _offset_dtype(self) -> np.dtype[Any]:
        """A type for offsets, local ids and places in the table: it holds four times the nodes there can be, and all edges."""
        known, most = self.known, 0
        for fanout in self.sampling.fanouts:
            edges = self.num_graph_edges if fanout < 0 else known * fanout
            known, most = min(self.num_vertices, known + edges), most + edges
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

    def _enter_seeds(self, seeds: list[Array]) -> None:
        given = self.buffers.array("seeds", (self.num_batches, self.known), self.id_dtype)
        host = self.buffers.pinned("seeds", given)
        for row, some in zip(host, seeds, strict=False):
            row[: len(some)] = some
        given.copy_to_device(host, stream=self.stream)
        self.nodes = self._matrix("nodes", self.known, self.id_dtype)
        keys, values = self._reserve(self.known, hop=0)
        self.launch.rows(enter_nodes, self.known, given, self.num_nodes[0], keys, values, self.nodes)
        self.launch.rows(find_repeated, self.known, given, self.num_nodes[0], keys, values, self.repeated)

    def _matrix(self, name: str, width: int, dtype: Any, *, keep: bool = False) -> Any:
        return self.buffers.array(name, (self.num_batches, width), dtype, keep=self.num_batches if keep else 0)

    def _reserve(self, room: int, hop: int) -> tuple[Any, Any]:
        """The relabelling table, at most half full with ``room`` nodes; a new one gets the nodes that there were before ``hop``."""
        size = 1 << (2 * room - 1).bit_length()
        table = self._matrix("keys", size, self.id_dtype), self._matrix("values", size, self.dtype)
        if self.table is None or any(now is not before for now, before in zip(table, self.table, strict=True)):
            clear_table(self.launch, *table)
            if self.table is not None:
                self.launch.rows(enter_nodes, self.known, self.nodes, self.num_nodes[hop], *table, self.nodes)
        self.table = table
        return table

    def sample_hop(self, hop: int) -> None:
        """Expand all nodes, or those that the hop before found."""
        fanout, mode = self.sampling.fanouts[hop], self.sampling.mode
        shares = self.sampling.expand == "new"
        name, requests = ("", self.fresh) if shares else (f"{hop}", self.known)
        low = self.num_nodes[hop - 1] if shares and hop else self.zeros
        base = self.num_edges[hop - 1] if shares and hop else self.zeros
        high, end = self.num_nodes[hop], self.num_edges[hop]
        draw = fanout, mode, self.addresses[hop]

        indptr = self._matrix(f"indptr{name}", self.known + 1, self.dtype, keep=shares and hop > 0)
        self._count((self.nodes, low, high), requests, draw, indptr)
        exclusive_scan(self.launch, indptr, requests, low, high, base, self._sums(requests), end)
        most = self._read_most_edges(hop) if fanout < 0 else requests * fanout
        before = self.num_shared_edges if shares else 0
        edge_ids = self._matrix(f"edge_ids{name}", before + most, id_dtype(self.num_graph_edges), keep=shares and hop > 0)
        indices = self._matrix(f"indices{name}", before + most, self.id_dtype, keep=shares and hop > 0)
        self._draw((self.nodes, low, high), requests, draw, (indptr, edge_ids, indices))

        room = min(self.num_vertices, self.known + most)
        self.nodes = self._matrix("nodes", room, self.id_dtype, keep=True)
        table = self._reserve(room, hop)
        scratch = self._matrix("slots", before + most, self.dtype), self._matrix("ranks", before + most + 1, self.dtype), self._sums(most)
        relabel(self.launch, indices, self.nodes, most, base, end, room, table, scratch, *self.num_nodes[hop : hop + 2])
        self.fresh, self.known, self.num_shared_edges = min(self.num_vertices, most), room, before + most
        self.edges = [(indptr, edge_ids, indices)] if shares else [*self.edges, (indptr, edge_ids, indices)]

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        """Write how many edges each request gives."""
        graph = self.sampling.graph
        self.launch.rows(count_draws, capacity, graph.indptr, graph.alias, *requests, *draw[:2], counts)

    def _sums(self, items: int) -> Any:
        """Scratch of a scan."""
        return self._matrix("sums", -(-items // self.sampling.thresholds.block), np.int64)

    def _read_most_edges(self, hop: int) -> int:
        """Wait for the sizes; the most edges of a batch in this hop, rounded up to four binary digits lest every bulk need new buffers."""
        self.queue_sizes()
        self.sampling.stream.synchronize()
        num_edges = self._host_num_edges()
        before = num_edges[hop - 1] if self.sampling.expand == "new" and hop else 0
        most = int((num_edges[hop] - before).max())
        step = 1 << max(0, most.bit_length() - 4)
        return -(-most // step) * step

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> None:
        sampling, graph, table = self.sampling, self.sampling.graph, self.sampling.thresholds
        total = capacity * self.num_batches
        schedule = sampling.kernel
        if schedule == "auto":
            cost = table.pinned_cost if graph.placement["indices"] == "pinned" else 1
            schedule = choose_schedule(total, draw[0], self.num_vertices, self.num_graph_edges, self.id_dtype.itemsize, cost, table)
        if schedule == "sample":
            draw_by_sample(self.launch, graph.arrays(), requests, capacity, draw, output)
        else:
            draw_by_transit(self.launch, graph.arrays(), requests, capacity, draw, output, self._groups(total))
        self.schedule.append(schedule)

    def _groups(self, num_requests: int) -> Groups:
        array, vertices = self.buffers.array, self.num_vertices
        transits = min(vertices, num_requests)
        is_new = "group_size" not in self.buffers
        group_size = array("group_size", (vertices,), np.int32)
        if is_new:
            self.launch.flat(clear, vertices, group_size)
        return Groups(
            counters=array("counters", (NUM_COUNTERS,), np.int64),
            group_size=group_size,
            transit_of=array("transit_of", (vertices,), np.int32),
            transits=array("transits", (transits,), self.id_dtype),
            sizes=array("sizes_of_groups", (transits,), np.int32),
            starts=array("starts", (transits,), np.int64),
            classes=array("classes", (NUM_CLASSES, transits), np.int32),
            ranks=self._matrix("ranks_in_groups", self.known, np.int32),
            members=array("members", (num_requests,), np.int64),
        )

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
