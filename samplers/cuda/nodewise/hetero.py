"""Sampling of typed edges on a CUDA device: a bulk of mini-batches at once, to the bit those of ``HeteroSampler``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.device import Buffers, DeviceStream
from hoptrain.engine.device_store import DeviceGraph
from hoptrain.engine.hetero_graph import HeteroGraph, Relation
from hoptrain.kernels.cuda.draw import DISTINCT, REPLACE
from hoptrain.kernels.cuda.launch import MAX_BATCHES, Launch
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.kernels.cuda.thresholds import THRESHOLDS, Thresholds
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.checks import check_bulk_address, check_vertices, seed_given_twice
from hoptrain.samplers.cuda.bulk import Edges, rounded_up
from hoptrain.samplers.cuda.draws import GraphDraws
from hoptrain.samplers.cuda.frontier import DeviceFrontier
from hoptrain.samplers.cuda.nodewise.neighbor import check_kernel


class CudaHeteroSampling:
    """Samples one graph with one setting.

    Attributes:
        columns: the device's copy of each relation.
        fanouts: of each relation.
    """

    def __init__(
        self,
        graph: HeteroGraph,
        fanouts: Mapping[Relation, tuple[int, ...]],
        seed_type: str,
        replace: bool,
        hop_stride: int,
        kernel: str = "auto",
        placement: str = "auto",
        thresholds: Thresholds | None = None,
        stream: DeviceStream | None = None,
    ) -> None:
        """Copy the graph to where the device reads it.

        Args:
            graph: the graph.
            fanouts: for each relation, one number a hop. A hop with -1 costs a synchronisation for each such relation.
            seed_type: the type of the seeds.
            replace: draw with replacement.
            hop_stride: hop h of relation k has the random words of hop ``hop_stride * k + h``.
            kernel: as of ``CudaNeighborSampling``.
            placement: likewise.
            thresholds: likewise.
            stream: likewise.

        Raises:
            InputError: CUDA cannot be used, or an unknown kernel or placement.
        """
        check_kernel(kernel)
        self.stream = stream or DeviceStream()
        self.graph, self.fanouts, self.seed_type, self.hop_stride, self.kernel = graph, fanouts, seed_type, hop_stride, kernel
        self.mode = REPLACE if replace else DISTINCT
        self.thresholds = thresholds or THRESHOLDS
        tables = {"threshold": np.zeros(1, np.uint32), "alias": np.zeros(1, np.int32)}
        self.columns = {
            relation: DeviceGraph({"indptr": own.indptr, "indices": own.indices, **tables}, placement, self.stream)
            for relation, own in graph.relations.items()
        }
        self.buffers = Buffers(self.stream, self.thresholds.block)
        self.offset_dtype: np.dtype[Any] = np.dtype(np.int32)  # grows with the bulks and stays, as the buffers do

    def start_bulk(self, seeds: Sequence[Array], *, seed: int, epoch: int, first_batch: int) -> Callable[[], list[HeteroMiniBatch]]:
        """Queue a bulk; the function returned waits for it and gives the batches. One bulk is under way at a time."""
        if len(seeds) > MAX_BATCHES:
            raise InputError(f"a bulk of {len(seeds):,} batches: a grid has room for {MAX_BATCHES:,}; sample them in several calls")
        check_bulk_address(seed, epoch, first_batch, len(seeds))
        seeds = [check_vertices(some, self.graph.num_nodes[self.seed_type]) for some in seeds]
        bulk = _Bulk(self, seeds, (seed, epoch, first_batch))
        for hop in range(bulk.num_hops):
            bulk.sample_hop(hop)
        bulk.queue_sizes()
        return partial(self._finish, bulk, seeds, seed, epoch, first_batch)

    def _finish(self, bulk: _Bulk, seeds: list[Array], seed: int, epoch: int, first_batch: int) -> list[HeteroMiniBatch]:
        self.stream.synchronize()
        sizes = bulk.host_sizes()
        for place, some in zip(sizes[-1], seeds, strict=True):
            if place < len(some):
                raise seed_given_twice(some[place])
        result = self.stream.result
        nodes = {name: result(frontier.nodes) for name, frontier in bulk.frontiers.items()}
        hops = [{relation: Edges(*map(result, edges[:3])) for relation, edges in hop.items()} for hop in bulk.edges]
        return [
            HeteroMiniBatch(
                node_ids={name: nodes[name][b, : sizes[bulk.row_of[name], b]] for name in nodes},
                blocks=tuple(reversed([bulk.blocks(hop, hops[hop], sizes[:, b].tolist(), b) for hop in range(bulk.num_hops)])),
                seed_type=self.seed_type,
                num_seeds=len(seeds[b]),
                seed=seed,
                epoch=epoch,
                batch=first_batch + b,
            )
            for b in range(len(seeds))
        ]


class _Bulk:
    """K batches. ``sizes`` has a row for each number of nodes or edges that comes up; ``row_of`` names that of a type's nodes so far."""

    def __init__(self, sampling: CudaHeteroSampling, seeds: list[Array], address: tuple[int, int, int]) -> None:
        self.sampling, self.buffers = sampling, sampling.buffers
        graph, self.relations = sampling.graph, list(sampling.columns)
        self.num_hops = len(next(iter(sampling.fanouts.values())))
        self.launch = Launch(stream=sampling.stream.numba, thresholds=sampling.thresholds, num_batches=len(seeds))
        most = max(len(some) for some in seeds)
        self.dtype = sampling.offset_dtype = np.promote_types(sampling.offset_dtype, self._offset_dtype(most))
        self._upload(seeds, address)
        self.frontiers = {
            name: DeviceFrontier(self.launch, self.buffers, number, id_dtype(number), self.dtype, f".{name}")
            for name, number in graph.num_nodes.items()
        }
        none = [np.zeros(0, np.int64)] * len(seeds)
        for name, frontier in self.frontiers.items():
            frontier.enter_seeds(seeds if name == sampling.seed_type else none, self.rows[self.row_of[name]], self.rows[-1])
        self.edges: list[dict[Relation, Edges]] = []
        self.shapes: list[dict[Relation, tuple[int, int, str]]] = []
        """For each hop and relation the rows of the numbers of destinations and edges, and the type of the sources."""
        self.num_src: list[dict[str, int]] = []
        """For each hop the rows of the numbers of nodes after it, by type."""

    def _offset_dtype(self, most_seeds: int) -> np.dtype[Any]:
        """A type for offsets, local ids and places in tables: it holds four times the nodes of a type that there can be, and all edges."""
        sampling, graph = self.sampling, self.sampling.graph
        known = {name: most_seeds if name == sampling.seed_type else 0 for name in graph.num_nodes}
        most = 0
        for hop in range(self.num_hops):
            before = dict(known)
            for (source, name, destination), fanouts in sampling.fanouts.items():
                num_edges = graph.relations[source, name, destination].num_edges
                edges = num_edges if fanouts[hop] < 0 else before[destination] * fanouts[hop]
                known[source], most = min(graph.num_nodes[source], known[source] + edges), max(most, edges)
        return id_dtype(4 * max(known.values()) + most + 2)

    def _upload(self, seeds: list[Array], address: tuple[int, int, int]) -> None:
        """The sizes, row 0 being zeros and the last one the place of the first seed that is there twice; and the random words' addresses."""
        names, steps = list(self.sampling.graph.num_nodes), self.num_hops * len(self.relations)
        self.sizes = self.buffers.array("sizes", (1 + len(names) + 2 * steps + 1, len(seeds)), np.int64)
        host = self.buffers.pinned("sizes", self.sizes)
        host[:] = 0
        self.row_of = {name: 1 + i for i, name in enumerate(names)}
        host[self.row_of[self.sampling.seed_type], : len(seeds)] = [len(some) for some in seeds]
        host[-1] = np.iinfo(np.int64).max
        self.sizes.copy_to_device(host, stream=self.launch.stream)
        self.rows = [self.sizes[row] for row in range(len(host))]
        self.next_row = 1 + len(names)
        addresses = self.buffers.array("addresses", (steps, 4), np.uint64)
        words = self.buffers.pinned("addresses", addresses)
        words[:, :3] = address
        words[:, 3] = [self.sampling.hop_stride * k + hop for hop in range(self.num_hops) for k in range(len(self.relations))]
        addresses.copy_to_device(words, stream=self.launch.stream)
        self.addresses = [addresses[step] for step in range(steps)]

    def sample_hop(self, hop: int) -> None:
        """Expand the nodes of each relation's destination type that there are now."""
        self.edges.append({})
        self.shapes.append({})
        before = {name: (self.row_of[name], frontier.known) for name, frontier in self.frontiers.items()}
        for number, relation in enumerate(self.relations):
            self._sample(hop, number, relation, *before[relation[2]])
        self.num_src.append(dict(self.row_of))

    def _sample(self, hop: int, number: int, relation: Relation, row: int, capacity: int) -> None:
        """One relation; row ``row`` of the sizes says how many destinations there are, ``capacity`` at most."""
        sampling, (source, _, destination) = self.sampling, relation
        frontier, zeros, end_row = self.frontiers[source], self.rows[0], self._take_row()
        end, fanout = self.rows[end_row], sampling.fanouts[relation][hop]
        draws = GraphDraws(sampling.columns[relation], self.launch, self.buffers, sampling.kernel, f".{destination}")
        requests = self.frontiers[destination].nodes, zeros, self.rows[row]
        draw = fanout, sampling.mode, self.addresses[hop * len(self.relations) + number]
        name = f".{hop}.{number}"
        indptr = frontier.matrix(f"indptr{name}", capacity + 1, self.dtype)
        draws.count(requests, capacity, draw, indptr)
        exclusive_scan(self.launch, indptr, capacity, zeros, self.rows[row], zeros, frontier.sums(capacity), end)
        most = self._read_most(end_row) if fanout < 0 else capacity * fanout
        edges = Edges(
            indptr,
            frontier.matrix(f"edge_ids{name}", most, id_dtype(draws.num_edges)),
            frontier.matrix(f"indices{name}", most, frontier.id_dtype),
        )
        if most:
            draws.draw(requests, capacity, capacity, draw, (edges.indptr, edges.edge_ids, edges.indices))
            before, after = self.row_of[source], self._take_row()
            frontier.relabel(edges.indices, most, (zeros, end), self.rows[before], self.rows[after])
            self.row_of[source] = after
        self.edges[hop][relation], self.shapes[hop][relation] = edges, (row, end_row, source)

    def _take_row(self) -> int:
        self.next_row += 1
        return self.next_row - 1

    def _read_most(self, row: int) -> int:
        """Wait for the sizes; the largest of a row, rounded up."""
        self.queue_sizes()
        self.sampling.stream.synchronize()
        return rounded_up(int(self.host_sizes()[row].max()))

    def queue_sizes(self) -> None:
        """Have the sizes copied to the host; they are there once the stream is done."""
        self.sizes.copy_to_host(self.buffers.pinned("sizes", self.sizes), stream=self.launch.stream)

    def host_sizes(self) -> Array:
        """The sizes that were copied last; of the batches that there are."""
        return self.buffers.pinned("sizes", self.sizes)[:, : self.launch.num_batches].copy()

    def blocks(self, hop: int, edges: dict[Relation, Edges], sizes: list[int], b: int) -> dict[Relation, Block]:
        """The blocks of batch ``b``, whose sizes these are."""

        def block(relation: Relation) -> Block:
            num_dst, num_edges, source = self.shapes[hop][relation]
            own = edges[relation]
            return Block(
                indptr=own.indptr[b, : sizes[num_dst] + 1],
                indices=own.indices[b, : sizes[num_edges]],
                edge_ids=own.edge_ids[b, : sizes[num_edges]],
                num_src=sizes[self.num_src[hop][source]],
            )

        return {relation: block(relation) for relation in self.relations}
