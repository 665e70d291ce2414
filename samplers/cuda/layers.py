"""Base class of the drivers of layer-wise samplers on a CUDA device, which choose sources for all destinations of a layer together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cuda.induce import pick_wanted, scan_in_edges
from hoptrain.kernels.cuda.layerwise import layers as kernels
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import FEW_EDGES, Upload, longest
from hoptrain.samplers.cuda.edges import BulkEdges
from hoptrain.samplers.cuda.frontier import DeviceFrontier
from hoptrain.samplers.cuda.unbounded import DynamicSizeSampler


class Layer(NamedTuple):
    """The edges that a hop sampled, and further arrays for its sources."""

    edges: BulkEdges
    extra: dict[str, Any]
    """Further arrays (K, ...) of the K batches, by name, each with one entry for each source of the block."""


class LayerSampler(DynamicSizeSampler):
    """A driver of a layer-wise sampler. The nodes of all hops of a batch are in one table.

    Attributes:
        layer_sizes: most nodes that each hop adds.
        known: bounds of the nodes of a batch before each hop and after the last one.
        frontier: nodes of the bulk.
    """

    kinds: tuple[str, ...] = ("nodes", "parts", "candidates", "in_edges", "listed", "edges", "kept")
    """Prefixes of the keys in ``sizes`` that each hop has; the index of the hop is appended, as in ``edges0``."""

    def __init__(self, graph: Graph, layer_sizes: Sequence[int], workspace: Workspace) -> None:
        """Copy the graph to the device, or to pinned host memory.

        Raises:
            InputError: CUDA cannot be used, or the kernel or placement is unknown.
        """
        super().__init__(graph, workspace)
        self.layer_sizes, self.hops = tuple(layer_sizes), range(len(layer_sizes))
        of_hops = (f"{kind}{hop}" for kind in self.kinds for hop in self.hops)
        self.restarts = tuple(f"restart{hop}" for hop in self.hops[1:])
        self.size_names = "zeros", "start", *self.restarts, "unplaced", "repeated", *of_hops, f"nodes{len(self.hops)}"

    def begin(self, seeds: list[Array]) -> None:
        """Check the seeds, and compute bounds of the sizes of a batch."""
        self.seeds = [check_seeds(self.host_graph, some) for some in seeds]
        self.known = [longest(self.seeds)]
        for size in self.layer_sizes:
            self.known.append(min(self.num_graph_nodes, self.known[-1] + size))
        most = 4 * max(self.known[-1], *self.layer_sizes) + 2 * self.num_graph_edges
        self.dtype = np.promote_types(self.dtype, id_dtype(most + 2))
        self.given["nodes0"] = [len(some) for some in self.seeds]
        self.given |= {f"parts{hop}": self.num_parts(self.known[hop]) for hop in self.hops}
        self.begin_tables(self.span())

    def span(self) -> int:
        """Return an upper bound of the numbers stored in the tables of candidates. They restart in each hop."""
        capacities = (max(self._few_listed(hop), self.capacities.get(f"in_edges{hop}", 0)) for hop in self.hops)
        return max((min(capacity, self.num_graph_nodes) + capacity for capacity in capacities), default=0) + 2

    def uploads(self) -> dict[str, Upload]:
        """Return the seeds of each batch as the upload "seeds"."""
        return {"seeds": Upload(self.seeds, self.id_dtype)}

    def queue(self) -> None:
        """Queue the kernels that enter the seeds, then those of each hop."""
        self.frontier = DeviceFrontier(self, self.num_graph_nodes, self.id_dtype)
        self.frontier.enter_seeds(self.brought["seeds"], self.known[0], self.sizes["nodes0"])
        self.layers = [self.sample_hop(hop) for hop in self.hops]

    @property
    def nodes(self) -> Any:
        """(K, N) global id of each node of the K batches, by local id."""
        return self.frontier.nodes

    @abstractmethod
    def sample_hop(self, hop: int) -> Layer:
        """Queue the kernels of a hop, and return the hop's result."""

    def scan_in_edges(self, hop: int) -> Any:
        """Return the offsets (K, N+1) of each destination's in-edges among those of all destinations."""
        known, sizes = self.known[hop], self.sizes
        offsets = self.matrix("offsets", known + 1, self.dtype)
        rest = offsets, self.sums(known), sizes["zeros"], sizes[f"in_edges{hop}"]
        scan_in_edges(self.launch, self.graph.indptr, self.nodes, known, sizes[f"nodes{hop}"], *rest)
        return offsets

    def list_candidates(self, hop: int, offsets: Any) -> tuple[Any, Any]:
        """Return the distinct in-neighbours of the destinations in order of first appearance, and for each in-edge the index of its source."""
        launch, sizes, zeros = self.launch, self.sizes, self.sizes["zeros"]
        capacity = self.capacity(f"in_edges{hop}", self._few_listed(hop))
        listed, sources = sizes[f"listed{hop}"], self.matrix("sources", capacity, self.id_dtype)
        launch.rows(kernels.limit, 1, sizes[f"in_edges{hop}"], capacity, listed)
        graph = self.graph.indptr, self.graph.indices
        launch.rows(kernels.list_sources, capacity, *graph, self.nodes, sizes[f"nodes{hop}"], offsets, listed, sources)
        most, start = min(capacity, self.num_graph_nodes), ("start", *self.restarts)[hop]
        candidates = DeviceFrontier(self, self.num_graph_nodes, self.id_dtype, ".candidates", capacity=most, start=start)
        candidates.relabel(sources, capacity, (zeros, listed), zeros, sizes[f"candidates{hop}"])
        return candidates.nodes, sources

    def _few_listed(self, hop: int) -> int:
        """Return the initial capacity for the in-edges of a hop's destinations."""
        mean = self.num_graph_edges // max(1, self.num_graph_nodes)
        return min(self.known[hop] * (1 + mean), max(1, self.num_graph_edges))

    def connect(self, hop: int, offsets: Any, table: tuple[Any, Any], vertices: Any, weights: Any | None = None) -> BulkEdges:
        """Queue the search for the edges from the nodes in ``table``, and add their sources to the batch's nodes.

        The values of ``table`` are indices into ``vertices`` (global ids) and ``weights``.
        """
        launch, sizes, zeros, known = self.launch, self.sizes, self.sizes["zeros"], self.known[hop]
        capacity, parts = self.capacity(f"edges{hop}", min(FEW_EDGES * known, max(1, self.num_graph_edges))), self.given[f"parts{hop}"]
        indptr, edge_ids = self.matrix(f"indptr{hop}", known + 1, self.dtype), self.matrix(f"edge_ids{hop}", capacity, self.edge_dtype)
        indices = self.matrix(f"indices{hop}", capacity, self.id_dtype)
        graph, scratch = (self.graph.indptr, self.graph.indices), (self.matrix("hits", parts + 1, self.dtype), self.sums(parts), zeros)
        pick_wanted(
            launch, graph, self.nodes, sizes[f"nodes{hop}"], offsets, table, (parts, sizes[f"parts{hop}"]), scratch,
            (indptr, edge_ids, indices), sizes[f"edges{hop}"],
        )  # fmt: skip
        kept, edge_weights = sizes[f"kept{hop}"], None
        launch.rows(kernels.limit, 1, sizes[f"edges{hop}"], capacity, kept)
        if weights is not None:
            edge_weights = self.matrix(f"weights{hop}", capacity, np.int32)
            launch.rows(kernels.take, capacity, weights, kept, indices, edge_weights)
        launch.rows(kernels.take, capacity, vertices, kept, indices, indices)
        self.frontier.relabel(indices, capacity, (zeros, kept), sizes[f"nodes{hop}"], sizes[f"nodes{hop + 1}"], self.layer_sizes[hop])
        return BulkEdges(indptr, edge_ids, indices, edge_weights)

    def batches(self) -> Bulk[MiniBatch]:
        """Return the mini-batches of the bulk. Names in ``extra`` end in the number of the block."""
        result, last = self.stream.result, len(self.hops) - 1
        nodes, hops = result(self.nodes), [layer.edges.results(self.stream) for layer in self.layers]
        extra = [(f"{name}{last - hop}", hop, result(array)) for hop in self.hops for name, array in self.layers[hop].extra.items()]

        def batch(b: int) -> MiniBatch:
            num_nodes = [int(self.host_size(f"nodes{hop}")[b]) for hop in range(last + 2)]
            num_edges = [int(self.host_size(f"edges{hop}")[b]) for hop in self.hops]
            return MiniBatch(
                node_ids=nodes[b, : num_nodes[-1]],
                blocks=tuple(hops[hop].block(b, num_nodes[hop], num_edges[hop], num_nodes[hop + 1]) for hop in reversed(self.hops)),
                num_seeds=num_nodes[0],
                extra={name: array[b, : num_nodes[hop + 1]] for name, hop, array in extra},
            )

        return Bulk(self.num_batches, batch)
