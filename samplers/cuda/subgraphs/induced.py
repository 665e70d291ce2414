"""Samplers of subgraphs on a CUDA device: a bulk of mini-batches at once, to the bit those of the CPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cuda.induce import pick_wanted, scan_in_edges
from hoptrain.kernels.cuda.subgraphs.vertices import enter_members, note_offset
from hoptrain.samplers.batch.minibatch import Block, MiniBatch
from hoptrain.samplers.cuda.work import FEW_EDGES, DeviceWork
from hoptrain.samplers.scratch.workspace import Workspace

if TYPE_CHECKING:
    from hoptrain.samplers.subgraphs.induced import SubgraphSampler


class Drawing(ABC):
    """How a class of samplers finds the vertices of a bulk's subgraphs on the device."""

    @abstractmethod
    def begin(self, work: CudaSubgraphs, units: list[Array]) -> int:
        """Check the units of the batches, and say how many vertices are drawn for one at most, repeated ones included."""

    @abstractmethod
    def draw(self, work: CudaSubgraphs, drawn: Any) -> None:
        """Queue the draws: vertices ``drawn`` (K, D), and how many in ``work.sizes["drawn"]`` unless they were ``given``."""

    def again(self, work: CudaSubgraphs, without: Array) -> None:
        """Prepare to draw the batches again that are ``without`` (K,) bool a seed.

        Raises:
            InputError: that is in vain.
        """
        raise NotImplementedError

    def weigh(self, work: CudaSubgraphs, edge_room: int) -> tuple[Any | None, Any | None]:
        """Queue the weights of the edges and of the seeds, both (K, ...) float32, if there are any."""
        return None, None


class InducedWork(DeviceWork):
    """From nodes and the table that has them to batches whose blocks are all the edges between them."""

    nodes: Any
    parts: int
    num_layers: int
    weights: Any | None = None
    seed_weights: Any | None = None

    def induce(self, most: int, table: tuple[Any, Any]) -> None:
        """Queue the search for the edges between the nodes of each batch, at most ``most``."""
        sizes, parts = self.sizes, self.parts
        self.edge_room = self.room("edges", FEW_EDGES * most)
        self.indptr = self.matrix("indptr", most + 1, self.dtype)
        self.edge_ids = self.matrix("edge_ids", self.edge_room, self.edge_dtype)
        self.indices = self.matrix("indices", self.edge_room, self.id_dtype)
        self.edge_room = self.edge_ids.shape[1]
        offsets, sums, zeros = self.matrix("offsets", most + 1, self.dtype), self.sums(max(most, parts)), sizes["zeros"]
        scratch = self.matrix("hits", parts + 1, self.dtype), sums, zeros
        output = self.indptr, self.edge_ids, self.indices
        graph = self.graph.indptr, self.graph.indices
        scan_in_edges(self.launch, graph[0], self.nodes, most, sizes["nodes"], offsets, sums, zeros, sizes["in_edges"])
        cut = parts, sizes["parts"]
        pick_wanted(self.launch, graph, self.nodes, sizes["nodes"], offsets, table, cut, scratch, output, sizes["edges"])
        self.launch.rows(note_offset, 1, self.indptr, sizes["seeds"], sizes["seed_edges"])

    def batches(self, address: list[dict[str, Any]]) -> list[MiniBatch]:
        """The mini-batches."""
        result = self.stream.result
        nodes, arrays = result(self.node_ids()), [result(array) for array in (self.indptr, self.indices, self.edge_ids)]
        weights, seed_weights = (None if array is None else result(array) for array in (self.weights, self.seed_weights))
        return [self._batch(b, nodes, arrays, weights, seed_weights, address[b]) for b in range(self.num_batches)]

    def node_ids(self) -> Any:
        """(K, S) global ids."""
        return self.nodes

    def _batch(
        self, b: int, nodes: Any, arrays: list[Any], weights: Any | None, seed_weights: Any | None, address: dict[str, Any]
    ) -> MiniBatch:
        num_nodes, num_seeds, num_edges, seed_edges = (int(self.host_size(name)[b]) for name in ("nodes", "seeds", "edges", "seed_edges"))
        indptr, indices, edge_ids = arrays
        outer = Block(
            indptr=indptr[b, : num_nodes + 1],
            indices=indices[b, :num_edges],
            edge_ids=edge_ids[b, :num_edges],
            num_src=num_nodes,
            weights=None if weights is None else weights[b, :num_edges],
        )
        return MiniBatch(
            node_ids=nodes[b, :num_nodes],
            blocks=(outer,) * (self.num_layers - 1) + (outer.beginning(num_seeds, num_nodes, seed_edges),),
            num_seeds=num_seeds,
            num_step_seeds=num_seeds,
            seed_weights=None if seed_weights is None else seed_weights[b, :num_seeds],
            nested=True,
            **address,
        )


class CudaSubgraphs(InducedWork):
    """Samples one graph by one prepared sampler."""

    size_names = ("zeros", "drawn", "attempts", "parts", "nodes", "seeds", "in_edges", "edges", "seed_edges")
    num_hops = 1

    def __init__(self, graph: Graph, sampler: SubgraphSampler, workspace: Workspace) -> None:
        """Copy the graph, the split and what the draws need to where the device reads them.

        Raises:
            InputError: CUDA cannot be used, no kernels for the sampler, or it was not prepared for this graph.
        """
        sampler.check_graph(graph)
        super().__init__(graph, workspace)
        self.sampler, self.num_layers = sampler, sampler.num_layers
        self.is_seed = self.place(sampler.split.is_seed.view(np.uint8), "the split")
        self.drawing = sampler.drawing(self)

    def begin(self, units: list[Array]) -> None:
        """Check the units."""
        self.most_drawn = self.drawing.begin(self, units)
        self.dtype = np.promote_types(self.dtype, id_dtype(max(self.num_graph_edges, 4 * self.most_drawn) + 2))
        self.parts = self.given["parts"] = self.num_parts(min(self.most_drawn, self.num_vertices))

    def queue(self) -> None:
        """Draw, drop what was drawn twice, and find the edges between the rest."""
        most, sizes = self.most_drawn, self.sizes
        drawn = self.matrix("drawn", most, self.id_dtype)
        self.drawing.draw(self, drawn)
        room = min(most, self.num_vertices)
        self.nodes = self.matrix("nodes", room, self.id_dtype)
        table = self.table("table", room)
        scratch = self.matrix("slots", most, self.dtype), self.matrix("ranks", most + 1, self.dtype), self.sums(most), sizes["zeros"]
        enter_members(
            self.launch, drawn, most, self.is_seed, self.matrix("found", room, self.id_dtype), self.nodes, table, scratch,
            sizes["drawn"], sizes["nodes"], sizes["seeds"],
        )  # fmt: skip
        self.induce(room, table)
        self.weights, self.seed_weights = self.drawing.weigh(self, self.edge_room)

    def is_done(self) -> bool:
        """Whether every batch has a seed, and its edges had room."""
        without = self.host_size("seeds") == 0
        if without.any():
            self.drawing.again(self, without)
            return False
        return not self.grow("edges", int(self.host_size("edges").max()), self.edge_room)
