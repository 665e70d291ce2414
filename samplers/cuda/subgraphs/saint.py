"""GraphSAINT's samplers on a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.subgraphs.vertices import draw_vertices, draw_walks, weigh_edges, weigh_seeds
from hoptrain.samplers.cuda.subgraphs.induced import CudaSubgraphs, Drawing
from hoptrain.samplers.scratch.alias import AliasTables
from hoptrain.samplers.subgraphs.induced import MAX_ATTEMPTS, check_one_unit
from hoptrain.samplers.subgraphs.saint import SaintSampler


class SaintDrawing(Drawing):
    """The common part: draws that are made again where a batch has no seed, and the weights."""

    def __init__(self, sampler: SaintSampler, work: CudaSubgraphs, number: int, length: int) -> None:
        """``number`` draws of ``length`` + 1 vertices each."""
        self.sampler, self.number, self.length = sampler, number, length
        self._weights = None if sampler.weights is None else [work.place(array, "the weights") for array in sampler.weights]

    def begin(self, work: CudaSubgraphs, units: list[Array]) -> int:
        """A unit is a subgraph, and a batch is one."""
        for some in units:
            check_one_unit(some, self.sampler.num_units, self.sampler)
        number = self.number * (self.length + 1)
        work.given |= {"drawn": number, "attempts": np.zeros(len(units), np.int64)}
        return number

    def again(self, work: CudaSubgraphs, without: Array) -> None:
        """The next attempt of those without a seed; the others are drawn as before."""
        work.given["attempts"] = work.given["attempts"] + without
        if work.given["attempts"].max() >= MAX_ATTEMPTS:
            raise self.sampler.no_seed_met()

    def weigh(self, work: CudaSubgraphs, edge_room: int) -> tuple[Any | None, Any | None]:
        """Those of the sampler, for the edges and seeds of each batch."""
        if self._weights is None:
            return None, None
        of_nodes, of_edges = self._weights
        sizes, most = work.sizes, work.nodes.shape[1]
        weights, seed_weights = work.matrix("weights", edge_room, np.float32), work.matrix("seed_weights", most, np.float32)
        work.launch.rows(weigh_edges, edge_room, work.edge_ids, sizes["edges"], of_edges, weights)
        work.launch.rows(weigh_seeds, most, work.nodes, sizes["seeds"], of_nodes, seed_weights)
        return weights, seed_weights


class VertexDrawing(SaintDrawing):
    """Vertices by an alias table over all of them."""

    def __init__(self, sampler: SaintSampler, work: CudaSubgraphs, number: int, tables: AliasTables) -> None:
        """Copy the table to where the device reads it."""
        super().__init__(sampler, work, number, 0)
        self._tables = [work.place(table, "the alias table") for table in tables]

    def draw(self, work: CudaSubgraphs, drawn: Any) -> None:
        """Queue the draws."""
        work.launch.rows(draw_vertices, self.number, *self._tables, self.number, work.sizes["attempts"], work.addresses[0], drawn)


class WalkDrawing(SaintDrawing):
    """Walks from some vertices."""

    def __init__(self, sampler: SaintSampler, work: CudaSubgraphs, number: int, length: int, roots: Array) -> None:
        """Copy the roots to where the device reads them."""
        super().__init__(sampler, work, number, length)
        self._roots = work.place(roots, "the roots")

    def draw(self, work: CudaSubgraphs, drawn: Any) -> None:
        """Queue the draws."""
        graph = work.graph.indptr, work.graph.indices
        attempts, address = work.sizes["attempts"], work.addresses[0]
        work.launch.rows(draw_walks, self.number, *graph, self._roots, self.number, self.length, attempts, address, drawn)
