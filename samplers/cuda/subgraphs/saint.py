"""CUDA drivers of the GraphSAINT samplers."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.subgraphs.vertices import draw_vertices, draw_walks, weigh_edges, weigh_seeds
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.subgraphs.induced import CudaSubgraphs
from hoptrain.samplers.subgraphs.induced import MAX_ATTEMPTS
from hoptrain.samplers.subgraphs.saint import SaintEdgeSampler, SaintNodeSampler, SaintSampler, SaintWalkSampler


class _Saint(CudaSubgraphs):
    """The base class of the GraphSAINT drivers. It draws a batch again if it has no seed, and copies the weights to the device."""

    def __init__(self, graph: Graph, sampler: SaintSampler, workspace: Workspace, number: int, length: int) -> None:
        """Copy graph, split and weights to the device, for ``number`` draws of ``length`` + 1 nodes each."""
        super().__init__(graph, sampler, workspace)
        self.sampler, self.number, self.length = sampler, number, length
        self._weights = None if sampler.weights is None else [self.to_device(array, "the weights") for array in sampler.weights]

    def begin_draws(self, items: list[Array]) -> int:
        """Check the items, one for each batch, and return the number of drawn nodes of a subgraph."""
        for some in items:
            self.sampler.check_item(some)
        number = self.number * (self.length + 1)
        self.given |= {"drawn": number, "attempts": np.zeros(len(items), np.int64)}
        return number

    def draw_again(self, without: Array) -> None:
        """Advance the attempt of the batches without a seed; a second draw of the remaining batches gives the same nodes."""
        self.given["attempts"] = self.given["attempts"] + without
        if self.given["attempts"].max() >= MAX_ATTEMPTS:
            raise self.sampler.no_seed_met()

    def weigh(self) -> None:
        """Queue the lookup of the weights of the edges and seeds of each batch."""
        if self._weights is None:
            return
        (of_nodes, of_edges), sizes = self._weights, self.sizes
        capacity, most = self.capacities["edges"], self.nodes.shape[1]
        weights, self.seed_weights = self.matrix("weights", capacity, np.float32), self.matrix("seed_weights", most, np.float32)
        self.launch.rows(weigh_edges, capacity, self.edges.edge_ids, sizes["edges"], of_edges, weights)
        self.launch.rows(weigh_seeds, most, self.nodes, sizes["seeds"], of_nodes, self.seed_weights)
        self.edges = self.edges._replace(weights=weights)


class CudaSaintNodes(_Saint):
    """The driver of ``SaintNodeSampler``, which draws nodes by an alias table."""

    def __init__(self, graph: Graph, sampler: SaintNodeSampler, workspace: Workspace) -> None:
        """Copy the graph, the split and the alias table to the device; see ``CudaSubgraphs``."""
        super().__init__(graph, sampler, workspace, sampler.budget, 0)
        self._tables = [self.to_device(table, "the alias table") for table in sampler.tables]

    def draw(self, drawn: Any) -> None:
        """Queue the draws of the nodes."""
        self.launch.rows(draw_vertices, self.number, *self._tables, self.number, self.sizes["attempts"], self.addresses[0], drawn)


class _Walks(_Saint):
    """The base class of the GraphSAINT drivers that draw random walks."""

    def __init__(self, graph: Graph, sampler: SaintSampler, workspace: Workspace, number: int, length: int, roots: Array) -> None:
        """Copy the graph, the split and the roots to the device; see ``CudaSubgraphs``."""
        super().__init__(graph, sampler, workspace, number, length)
        self._roots = self.to_device(roots, "the roots")

    def draw(self, drawn: Any) -> None:
        """Queue the random walks."""
        graph, attempts = (self.graph.indptr, self.graph.indices), self.sizes["attempts"]
        self.launch.rows(draw_walks, self.number, *graph, self._roots, self.number, self.length, attempts, self.addresses[0], drawn)


class CudaSaintEdges(_Walks):
    """The driver of ``SaintEdgeSampler``, which draws edges as walks of one step."""

    def __init__(self, graph: Graph, sampler: SaintEdgeSampler, workspace: Workspace) -> None:
        """Copy the graph and the split to the device; walks start at nodes with in-edges."""
        super().__init__(graph, sampler, workspace, sampler.budget, 1, sampler.ends)


class CudaSaintWalks(_Walks):
    """The driver of ``SaintWalkSampler``."""

    def __init__(self, graph: Graph, sampler: SaintWalkSampler, workspace: Workspace) -> None:
        """Copy the graph and the split to the device; walks start at nodes of the split."""
        super().__init__(graph, sampler, workspace, sampler.num_roots, sampler.walk_length, sampler.split.seeds)
