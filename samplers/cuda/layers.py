"""What the samplers of layers share on a CUDA device: all nodes so far are destinations of edges from vertices that are chosen for them together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cuda.induce import pick_wanted, scan_in_edges
from hoptrain.kernels.cuda.layerwise import layers as kernels
from hoptrain.kernels.cuda.relabel import clear_table, enter_nodes, relabel
from hoptrain.samplers.batch.minibatch import Block, MiniBatch
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.cuda.work import FEW_EDGES, DeviceWork
from hoptrain.samplers.scratch.workspace import Workspace


class HopEdges(NamedTuple):
    """The edges of a hop, (K, ...)."""

    indptr: Any
    indices: Any
    edge_ids: Any
    weights: Any
    """int32, the bits of float32; or None."""


class LayerWork(DeviceWork):
    """Samples one graph by one sampler of layers. All nodes of a batch stand in one table, whatever the hop.

    Attributes:
        layer_sizes: vertices that a hop adds at most.
        known: nodes of a batch before each hop, and after the last one, at most.
        nodes: (K, N) vertices by local id.
        nodes_table: has them.
    """

    kinds: tuple[str, ...] = ("nodes", "parts", "candidates", "in_edges", "listed", "edges", "kept")
    """Sizes of each hop."""

    def __init__(self, graph: Graph, layer_sizes: Sequence[int], workspace: Workspace) -> None:
        """Copy the graph to where the device reads it.

        Raises:
            InputError: CUDA cannot be used, or an unknown placement.
        """
        super().__init__(graph, workspace)
        self.layer_sizes, self.num_hops = tuple(layer_sizes), len(layer_sizes)
        self.size_names = "zeros", f"nodes{self.num_hops}", *(f"{kind}{hop}" for kind in self.kinds for hop in range(self.num_hops))

    def begin(self, units: list[Array]) -> None:
        """Check the seeds."""
        self.seeds = [check_seeds(self.host_graph, some, distinct=True) for some in units]
        self.known = [max(len(some) for some in self.seeds)]
        for size in self.layer_sizes:
            self.known.append(min(self.num_vertices, self.known[-1] + size))
        most = 4 * max(self.known[-1], *self.layer_sizes) + 2 * self.num_graph_edges
        self.dtype = np.promote_types(self.dtype, id_dtype(most + 2))
        self.given |= {"nodes0": [len(some) for some in self.seeds]}
        self.given |= {f"parts{hop}": self.num_parts(self.known[hop]) for hop in range(self.num_hops)}

    def queue(self) -> None:
        """Hop after hop."""
        seeds = self.matrix("seeds", self.known[0], self.id_dtype)
        host = self.buffers.pinned("seeds", seeds)
        for row, some in zip(host, self.seeds, strict=False):
            row[: len(some)] = some
        seeds.copy_to_device(host, stream=self.stream.numba)
        self.nodes = self.matrix("nodes", self.known[-1], self.id_dtype)
        self.nodes_table = self.table("table", self.known[-1])
        clear_table(self.launch, *self.nodes_table)
        self.launch.rows(enter_nodes, self.known[0], seeds, self.sizes["nodes0"], *self.nodes_table, self.nodes)
        self.rooms: dict[str, int] = {}
        self.hops = [self.sample_hop(hop) for hop in range(self.num_hops)]

    @abstractmethod
    def sample_hop(self, hop: int) -> HopEdges:
        """Queue a hop."""

    def scan_in_edges(self, hop: int) -> Any:
        """Where the in-edges of each destination stand among those of all, (K, N+1)."""
        known, sizes = self.known[hop], self.sizes
        offsets = self.matrix("offsets", known + 1, self.dtype)
        rest = offsets, self.sums(known), sizes["zeros"], sizes[f"in_edges{hop}"]
        scan_in_edges(self.launch, self.graph.indptr, self.nodes, known, sizes[f"nodes{hop}"], *rest)
        return offsets

    def list_candidates(self, hop: int, offsets: Any) -> tuple[Any, Any, tuple[Any, Any]]:
        """The distinct in-neighbours of the destinations in order of first appearance, the one that each in-edge comes from, and their table."""
        launch, sizes, zeros = self.launch, self.sizes, self.sizes["zeros"]
        room = self._room(f"in_edges{hop}", self.known[hop] * (1 + self.num_graph_edges // self.num_vertices))
        listed, most = sizes[f"listed{hop}"], min(room, self.num_vertices)
        sources, candidates = self.matrix("sources", room, self.id_dtype), self.matrix("candidates", most, self.id_dtype)
        launch.rows(kernels.limit, 1, sizes[f"in_edges{hop}"], room, listed)
        graph = self.graph.indptr, self.graph.indices
        launch.rows(kernels.list_sources, room, *graph, self.nodes, sizes[f"nodes{hop}"], offsets, listed, sources)
        table = self.table("candidate_table", most)
        clear_table(launch, *table)
        relabel(launch, sources, candidates, room, zeros, listed, most, table, self.relabel_scratch(room), zeros, sizes[f"candidates{hop}"])
        return candidates, sources, table

    def relabel_scratch(self, room: int) -> tuple[Any, Any, Any]:
        """Scratch for relabelling up to ``room`` edges."""
        return self.matrix("slots", room, self.dtype), self.matrix("ranks", room + 1, self.dtype), self.sums(room)

    def connect(self, hop: int, offsets: Any, table: tuple[Any, Any], vertices: Any, weights: Any | None = None) -> HopEdges:
        """Queue the search for the edges from the vertices in ``table``, whose values are their places in ``vertices`` and ``weights``.

        Their sources become nodes.
        """
        launch, sizes, zeros, known = self.launch, self.sizes, self.sizes["zeros"], self.known[hop]
        room, parts = self._room(f"edges{hop}", FEW_EDGES * known), self.given[f"parts{hop}"]
        indptr, edge_ids = self.matrix(f"indptr{hop}", known + 1, self.dtype), self.matrix(f"edge_ids{hop}", room, self.edge_dtype)
        indices = self.matrix(f"indices{hop}", room, self.id_dtype)
        graph, scratch = (self.graph.indptr, self.graph.indices), (self.matrix("hits", parts + 1, self.dtype), self.sums(parts), zeros)
        pick_wanted(
            launch, graph, self.nodes, sizes[f"nodes{hop}"], offsets, table, (parts, sizes[f"parts{hop}"]), scratch,
            (indptr, edge_ids, indices), sizes[f"edges{hop}"],
        )  # fmt: skip
        kept, edge_weights = sizes[f"kept{hop}"], None
        launch.rows(kernels.limit, 1, sizes[f"edges{hop}"], room, kept)
        if weights is not None:
            edge_weights = self.matrix(f"weights{hop}", room, np.int32)
            launch.rows(kernels.take, room, weights, kept, indices, edge_weights)
        launch.rows(kernels.take, room, vertices, kept, indices, indices)
        rest = self.nodes_table, self.relabel_scratch(room), sizes[f"nodes{hop}"], sizes[f"nodes{hop + 1}"]
        relabel(launch, indices, self.nodes, room, zeros, kept, self.known[hop + 1], *rest)
        return HopEdges(indptr, indices, edge_ids, edge_weights)

    def _room(self, name: str, guess: int) -> int:
        """Room for edges of a hop."""
        self.rooms[name] = self.room(name, min(guess, max(1, self.num_graph_edges)))
        return self.rooms[name]

    def is_done(self) -> bool:
        """Whether all edges had room."""
        grown = [self.grow(name, int(self.host_size(name).max()), room) for name, room in self.rooms.items()]
        return not any(grown)

    def batches(self, address: list[dict[str, Any]]) -> list[MiniBatch]:
        """The mini-batches."""
        result = self.stream.result
        nodes = result(self.nodes)
        hops = [
            HopEdges(
                indptr=result(hop.indptr),
                indices=result(hop.indices),
                edge_ids=result(hop.edge_ids),
                weights=None if hop.weights is None else result(hop.weights.view(np.float32)),
            )
            for hop in self.hops
        ]
        extra = {name: result(array) for name, array in self.extra().items()}
        return [self._batch(b, nodes, hops, extra, address[b]) for b in range(self.num_batches)]

    def extra(self) -> dict[str, Any]:
        """Further arrays by name, (K, ...), of the sources of the block whose number the name ends with."""
        return {}

    def _batch(self, b: int, nodes: Any, hops: list[HopEdges], extra: dict[str, Any], address: dict[str, Any]) -> MiniBatch:
        num_nodes = [int(self.host_size(f"nodes{hop}")[b]) for hop in range(self.num_hops + 1)]
        num_src = num_nodes[:0:-1]
        blocks = []
        for hop, edges in enumerate(hops):
            num_edges = int(self.host_size(f"edges{hop}")[b])
            indices, edge_ids, weights = (None if array is None else array[b, :num_edges] for array in edges[1:])
            indptr = edges.indptr[b, : num_nodes[hop] + 1]
            blocks.append(Block(indptr=indptr, indices=indices, edge_ids=edge_ids, num_src=num_nodes[hop + 1], weights=weights))
        return MiniBatch(
            node_ids=nodes[b, : num_nodes[-1]],
            blocks=tuple(reversed(blocks)),
            num_seeds=num_nodes[0],
            num_step_seeds=num_nodes[0],
            extra={name: array[b, : num_src[int(name.lstrip(_LETTERS))]] for name, array in extra.items()},
            **address,
        )


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
