"""Neighbour sampling under a bound on time on a CUDA device: a bulk of mini-batches at once, to the bit those of ``TemporalSampler``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.engine.device_store import choose_placement, place
from hoptrain.kernels.cpu.nodewise.temporal import TimedColumns
from hoptrain.kernels.cuda.nodewise import temporal as kernels
from hoptrain.kernels.shared.temporal import TREE_SHIFT
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.nodewise.neighbor import CudaNeighborSampling


class CudaTemporalSampling(CudaNeighborSampling):
    """Samples one graph with one setting. A bulk takes ``times`` besides: for each batch those of its seeds (B,) int64."""

    def __init__(
        self, graph: Graph, fanouts: Sequence[int], replace: bool, recent: bool, columns: TimedColumns, placement: str, **options: Any
    ) -> None:
        """Copy the graph and its edges in the order of time, 12 or 16 bytes an edge more, to where the device reads them.

        Args:
            graph: the graph.
            fanouts: as of ``TemporalSampler``.
            replace: likewise.
            recent: whether the latest edges are taken.
            columns: the graph's columns in the order of time.
            placement: as of ``CudaNeighborSampling``, as are the other options.
            options: the others.
        """
        super().__init__(graph, fanouts, replace, "new", placement=placement, bulk_type=TemporalBulk, **options)
        self.rule = int(replace), int(recent)
        self.times, self.by_time = (
            place(array, choose_placement(placement, array.nbytes, "the graph"), self.stream) for array in (columns.times, columns.by_time)
        )


class TemporalBulk(Bulk):
    """Nodes are keys, a vertex in the tree of a seed, until the end."""

    sampling: CudaTemporalSampling
    has_trees = True

    def __init__(self, sampling: CudaTemporalSampling, seeds: list[Array], address: tuple[int, int, int], times: list[Array]) -> None:
        """Enter the seeds, each as the root of a tree; ``times`` are theirs."""
        keys = [(np.arange(len(some)) << TREE_SHIFT) | some.astype(np.int64) for some in seeds]
        super().__init__(sampling, keys, address)
        self.times = times
        self.bounds = self.matrix("bounds", self.known, np.int64)
        host = self.buffers.pinned("bounds", self.bounds)
        for row, some in zip(host, times, strict=False):
            row[: len(some)] = some
        self.bounds.copy_to_device(host, stream=self.stream)

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        sampling = self.sampling
        self.admitted = self.matrix("admitted", self.known, self.dtype)
        graph = sampling.graph.indptr, sampling.times
        self.launch.rows(kernels.count_admitted, capacity, *graph, self.bounds, *requests, draw[0], sampling.rule[0], self.admitted, counts)

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        sampling, (fanout, _, address) = self.sampling, draw
        order = self._order(requests, capacity, draw)
        graph = sampling.graph.indptr, sampling.graph.indices, sampling.by_time
        rest = *requests, *order, fanout, *sampling.rule, address, self.admitted, *output
        self._launch_ordered(order, kernels.draw_admitted, capacity, *graph, *rest)

    def _vertices(self, requests: tuple[Any, Any, Any]) -> Any:
        return self._split(requests[0], requests[2])[0]

    def _split(self, keys: Any, count: Any) -> tuple[Any, Any]:
        """The vertices and the trees of the nodes so far."""
        vertices = self.matrix("vertices", self.known, self.sampling.graph.indices.dtype)
        trees = self.matrix("trees", self.known, np.int32)
        self.launch.rows(kernels.split_keys, self.known, keys, count, vertices, trees)
        return vertices, trees

    def end(self) -> None:
        """Nodes become vertices, and local ids of the graph's type."""
        self.frontier.nodes, self.trees = self._split(self.nodes, self.num_nodes[-1])
        (edges,) = self.edges
        indices = self.matrix("sources", edges.indices.shape[1], self.nodes.dtype)
        self.launch.rows(kernels.copy_first, indices.shape[1], edges.indices, self.num_edges[-1], indices)
        self.edges = [edges._replace(indices=indices)]

    def complete(self, batches: list[MiniBatch]) -> list[MiniBatch]:
        """With the trees of their nodes and the times of their seeds."""
        trees, bounds = self.sampling.stream.result(self.trees), self.sampling.stream.result(self.bounds)

        def extra(b: int) -> dict[str, Any]:
            return {"trees": trees[b, : len(batches[b].node_ids)], "seed_times": bounds[b, : batches[b].num_seeds]}

        return [replace(batch, extra=extra(b)) for b, batch in enumerate(batches)]
