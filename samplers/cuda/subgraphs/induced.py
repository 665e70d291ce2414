"""Base classes of the CUDA drivers of subgraph samplers, whose batches are nodes and all edges between them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cuda.induce import pick_wanted, scan_in_edges
from hoptrain.kernels.cuda.subgraphs.vertices import enter_members, note_offset
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import FEW_EDGES, Upload
from hoptrain.samplers.cuda.edges import BulkEdges
from hoptrain.samplers.cuda.unbounded import DynamicSizeSampler
from hoptrain.samplers.subgraphs.induced import SubgraphSampler


class Induced(DynamicSizeSampler):
    """A driver whose blocks are all edges between the nodes of a batch, which a subclass finds and enters in a table.

    Attributes:
        nodes: (K, S) nodes of each batch.
        parts: number of threads that search the edges of a batch.
        num_layers: number of blocks of a batch.
        edges: edges of the bulk.
        seed_weights: (K, B) float32 weights of the seeds, or None.
    """

    nodes: Any
    parts: int
    num_layers: int
    edges: BulkEdges
    seed_weights: Any | None = None

    def induce(self, most: int, table: tuple[Any, Any]) -> None:
        """Queue the search for the edges between the nodes of each batch, which has at most ``most`` nodes, all in ``table``."""
        sizes, parts = self.sizes, self.parts
        capacity = self.capacity("edges", FEW_EDGES * most)
        indptr, edge_ids = self.matrix("indptr", most + 1, self.dtype), self.matrix("edge_ids", capacity, self.edge_dtype)
        self.edges = BulkEdges(indptr, edge_ids, self.matrix("indices", capacity, self.id_dtype))
        offsets, sums, zeros = self.matrix("offsets", most + 1, self.dtype), self.sums(max(most, parts)), sizes["zeros"]
        scratch = self.matrix("hits", parts + 1, self.dtype), sums, zeros
        graph = self.graph.indptr, self.graph.indices
        scan_in_edges(self.launch, graph[0], self.nodes, most, sizes["nodes"], offsets, sums, zeros, sizes["in_edges"])
        cut = parts, sizes["parts"]
        pick_wanted(self.launch, graph, self.nodes, sizes["nodes"], offsets, table, cut, scratch, self.edges[:3], sizes["edges"])
        self.launch.rows(note_offset, 1, indptr, sizes["seeds"], sizes["seed_edges"])

    def batches(self) -> Bulk[MiniBatch]:
        """Return the mini-batches of the bulk."""
        nodes, edges = self.stream.result(self.node_ids()), self.edges.results(self.stream)
        seed_weights = None if self.seed_weights is None else self.stream.result(self.seed_weights)

        def batch(b: int) -> MiniBatch:
            num_nodes, num_seeds, num_edges, seed_edges = (
                int(self.host_size(name)[b]) for name in ("nodes", "seeds", "edges", "seed_edges")
            )
            outer = edges.block(b, num_nodes, num_edges, num_nodes)
            return MiniBatch(
                node_ids=nodes[b, :num_nodes],
                blocks=(outer,) * (self.num_layers - 1) + (outer.beginning(num_seeds, num_nodes, seed_edges),),
                num_seeds=num_seeds,
                seed_weights=None if seed_weights is None else seed_weights[b, :num_seeds],
                nested=True,
            )

        return Bulk(self.num_batches, batch)

    def node_ids(self) -> Any:
        """Return the global ids (K, S) of the nodes."""
        return self.nodes


class CudaSubgraphs(Induced):
    """The driver of a prepared ``SubgraphSampler``. A subclass draws the nodes of the subgraphs."""

    size_names = ("zeros", "drawn", "attempts", "parts", "nodes", "seeds", "in_edges", "edges", "seed_edges")
    hops = range(1)

    def __init__(self, graph: Graph, sampler: SubgraphSampler, workspace: Workspace) -> None:
        """Copy the graph and the split to the device, or to pinned host memory.

        Raises:
            InputError: the sampler was not prepared for this graph, CUDA cannot be used, or the kernel or placement is unknown.
        """
        sampler.check_graph(graph)
        super().__init__(graph, workspace)
        self.num_layers = sampler.num_layers
        self.is_seed = self.to_device(sampler.split.is_seed.view(np.uint8), "the split")

    @abstractmethod
    def begin_draws(self, items: list[Array]) -> int:
        """Check the items of the batches, and return the maximum number of nodes drawn for a batch, including repeated nodes."""

    @abstractmethod
    def draw(self, drawn: Any) -> None:
        """Queue the draws of nodes into ``drawn`` (K, D). The numbers of drawn nodes go to ``sizes["drawn"]``, unless ``given`` has them."""

    def draw_again(self, without: Array) -> None:
        """Prepare another draw for the batches without a seed, which ``without`` (K,) bool marks.

        Raises:
            InputError: there were too many attempts.
        """
        raise NotImplementedError

    def uploads(self) -> dict[str, Upload]:
        """Return no uploads, since the device draws the nodes."""
        return {}

    def weigh(self) -> None:
        """Queue the computation of the weights of edges and seeds, by default none."""

    def begin(self, seeds: list[Array]) -> None:
        """Check the items, and compute bounds of the sizes of a batch."""
        self.most_drawn = self.begin_draws(seeds)
        self.dtype = np.promote_types(self.dtype, id_dtype(max(self.num_graph_edges, 4 * self.most_drawn) + 2))
        self.parts = self.given["parts"] = self.num_parts(min(self.most_drawn, self.num_graph_nodes))

    def queue(self) -> None:
        """Queue the draws, the removal of repeated nodes, and the search for the edges between the nodes."""
        most, sizes = self.most_drawn, self.sizes
        drawn = self.matrix("drawn", most, self.id_dtype)
        self.draw(drawn)
        capacity = min(most, self.num_graph_nodes)
        self.nodes = self.matrix("nodes", capacity, self.id_dtype)
        table = self.table("table", capacity, self.id_dtype)
        enter_members(
            self.launch, drawn, most, self.is_seed, self.matrix("found", capacity, self.id_dtype), self.nodes, table,
            (*self.relabel_scratch(most), sizes["zeros"]), sizes["drawn"], sizes["nodes"], sizes["seeds"],
        )  # fmt: skip
        self.induce(capacity, table)
        self.weigh()

    def is_done(self) -> bool:
        """Return whether every batch has a seed and all capacities were large enough; otherwise prepare another attempt."""
        without = self.host_size("seeds") == 0
        if without.any():
            self.draw_again(without)
        return super().is_done() and not without.any()
