"""Samplers whose mini-batch is a subgraph, on a CUDA device: a bulk of mini-batches at once, bit for bit those of the CPU."""

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
from hoptrain.samplers.cuda.edges import Edges
from hoptrain.samplers.cuda.unbounded import Unbounded
from hoptrain.samplers.subgraphs.induced import SubgraphSampler


class Induced(Unbounded):
    """From nodes and the table that has them to batches whose blocks are all the edges between them.

    Attributes:
        nodes: (K, S) of each batch.
        parts: threads that look for the edges of a batch.
        num_layers: blocks of a batch.
        edges: those of the bulk.
        seed_weights: (K, B) float32, or None.
    """

    nodes: Any
    parts: int
    num_layers: int
    edges: Edges
    seed_weights: Any | None = None

    def induce(self, most: int, table: tuple[Any, Any]) -> None:
        """Queue the search for the edges between the nodes of each batch, at most ``most``."""
        sizes, parts = self.sizes, self.parts
        room = self.room("edges", FEW_EDGES * most)
        indptr, edge_ids = self.matrix("indptr", most + 1, self.dtype), self.matrix("edge_ids", room, self.edge_dtype)
        self.edges = Edges(indptr, edge_ids, self.matrix("indices", room, self.id_dtype))
        offsets, sums, zeros = self.matrix("offsets", most + 1, self.dtype), self.sums(max(most, parts)), sizes["zeros"]
        scratch = self.matrix("hits", parts + 1, self.dtype), sums, zeros
        graph = self.graph.indptr, self.graph.indices
        scan_in_edges(self.launch, graph[0], self.nodes, most, sizes["nodes"], offsets, sums, zeros, sizes["in_edges"])
        cut = parts, sizes["parts"]
        pick_wanted(self.launch, graph, self.nodes, sizes["nodes"], offsets, table, cut, scratch, self.edges[:3], sizes["edges"])
        self.launch.rows(note_offset, 1, indptr, sizes["seeds"], sizes["seed_edges"])

    def batches(self) -> Bulk[MiniBatch]:
        """The mini-batches."""
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
        """(K, S) global ids."""
        return self.nodes


class CudaSubgraphs(Induced):
    """Samples one graph by one prepared sampler; a subclass says how the nodes of a bulk's subgraphs are found."""

    size_names = ("zeros", "drawn", "attempts", "parts", "nodes", "seeds", "in_edges", "edges", "seed_edges")
    hops = range(1)

    def __init__(self, graph: Graph, sampler: SubgraphSampler, workspace: Workspace) -> None:
        """Copy the graph and the split to where the device reads them.

        Raises:
            InputError: as of ``Unbounded``; or the sampler was not prepared for this graph.
        """
        sampler.check_graph(graph)
        super().__init__(graph, workspace)
        self.num_layers = sampler.num_layers
        self.is_seed = self.to_device(sampler.split.is_seed.view(np.uint8), "the split")

    @abstractmethod
    def begin_draws(self, items: list[Array]) -> int:
        """Check the items of the batches, and say how many nodes are drawn for one at most, repeated ones included."""

    @abstractmethod
    def draw(self, drawn: Any) -> None:
        """Queue the draws: nodes ``drawn`` (K, D), and how many in ``sizes["drawn"]`` unless they were ``given``."""

    def draw_again(self, without: Array) -> None:
        """Prepare to draw the batches again that are ``without`` (K,) bool a seed.

        Raises:
            InputError: that is in vain.
        """
        raise NotImplementedError

    def uploads(self) -> dict[str, Upload]:
        """Nothing, where the device draws."""
        return {}

    def weigh(self) -> None:
        """Queue the weights of the edges and of the seeds, if there are any."""

    def begin(self, seeds: list[Array]) -> None:
        """Check the items."""
        self.most_drawn = self.begin_draws(seeds)
        self.dtype = np.promote_types(self.dtype, id_dtype(max(self.num_graph_edges, 4 * self.most_drawn) + 2))
        self.parts = self.given["parts"] = self.num_parts(min(self.most_drawn, self.num_graph_nodes))

    def queue(self) -> None:
        """Draw, drop what was drawn twice, and find the edges between the rest."""
        most, sizes = self.most_drawn, self.sizes
        drawn = self.matrix("drawn", most, self.id_dtype)
        self.draw(drawn)
        room = min(most, self.num_graph_nodes)
        self.nodes = self.matrix("nodes", room, self.id_dtype)
        table = self.table("table", room, self.id_dtype)
        enter_members(
            self.launch, drawn, most, self.is_seed, self.matrix("found", room, self.id_dtype), self.nodes, table,
            (*self.relabel_scratch(most), sizes["zeros"]), sizes["drawn"], sizes["nodes"], sizes["seeds"],
        )  # fmt: skip
        self.induce(room, table)
        self.weigh()

    def is_done(self) -> bool:
        """Whether every batch has a seed, and its edges had room."""
        without = self.host_size("seeds") == 0
        if without.any():
            self.draw_again(without)
        return super().is_done() and not without.any()
