"""CUDA driver of ``TemporalSampler``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.draw import DISTINCT, REPLACE
from hoptrain.kernels.cuda.nodewise import temporal as kernels
from hoptrain.kernels.shared.temporal import TREE_SHIFT
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.bounded import FixedSizeSampler
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import Upload
from hoptrain.samplers.nodewise.temporal import TemporalSampler


class CudaTemporal(FixedSizeSampler):
    """The driver of ``TemporalSampler``. Until the end of a bulk, a node is a key that combines a node of the graph with the tree of a seed."""

    has_trees = True

    def __init__(self, graph: Graph, sampler: TemporalSampler, workspace: Workspace) -> None:
        """Copy the graph and its edges sorted by time, which take 12 or 16 more bytes an edge, to the device or to pinned host memory.

        Raises:
            InputError: the graph has no times, ``monotone`` is set, CUDA cannot be used, or the kernel or placement is unknown.
        """
        if sampler.monotone:
            raise InputError(
                'TemporalSampler(monotone=True) with device="cuda": this option has no kernels for CUDA; use device="cpu", or leave monotone out'
            )
        columns = sampler.columns(graph)
        super().__init__(graph, workspace, sampler.fanout_codes, REPLACE if sampler.replace else DISTINCT, "new")
        self.sampler = sampler
        self.rule = int(sampler.replace), int(sampler.strategy == "recent")
        self.times, self.by_time = self.to_device(columns.times, "the graph"), self.to_device(columns.by_time, "the graph")

    def start(self, seeds: Sequence[Array], *, times: Sequence[Array] | None = None, **options: Any) -> Callable[[], Bulk[MiniBatch]]:
        """Queue a bulk, with ``times`` (B,) of the seeds of each batch, by default those of the sampler's ``seed_times``."""
        given: Sequence[Array | None] = times or [None] * len(seeds)
        found = [self.sampler.roots(self.host_graph, *own) for own in zip(seeds, given, strict=True)]
        self._bounds_of_seeds = [bounds for _, bounds in found]
        return super().start([own.by_type[""][0] for own, _ in found], **options)

    def first_nodes(self) -> list[Array]:
        """Return the keys of the seeds, each of which is the root of a tree."""
        return [(np.arange(len(some)) << TREE_SHIFT) | some.astype(np.int64) for some in self.seeds]

    def uploads(self) -> dict[str, Upload]:
        """Return the uploads of the first nodes and of the time bounds of the trees."""
        return super().uploads() | {"bounds": Upload(self._bounds_of_seeds, np.int64)}

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        self.admitted = self.matrix("admitted", self.known, self.dtype)
        graph = self.graph.indptr, self.times
        self.launch.rows(
            kernels.count_admitted, capacity, *graph, self.brought["bounds"], *requests, draw[0], self.rule[0], self.admitted, counts
        )

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        fanout, _, address = draw
        order = self._order(requests, capacity, draw)
        graph = self.graph.indptr, self.graph.indices, self.by_time
        rest = *requests, *order, fanout, *self.rule, address, self.admitted, *output
        self._launch_ordered(order, kernels.draw_admitted, capacity, *graph, *rest)

    def _vertices(self, requests: tuple[Any, Any, Any]) -> Any:
        return self._split(requests[0], requests[2])[0]

    def _split(self, keys: Any, count: Any) -> tuple[Any, Any]:
        """Return the global node ids and the trees of the nodes so far."""
        vertices = self.matrix("expanded", self.known, self.graph.indices.dtype)
        trees = self.matrix("trees", self.known, np.int32)
        self.launch.rows(kernels.split_keys, self.known, keys, count, vertices, trees)
        return vertices, trees

    def end(self) -> None:
        """Queue the conversion of keys into global node ids, and of local ids into the dtype of the graph."""
        self.frontier.nodes, self.trees = self._split(self.nodes, self.num_nodes[-1])
        (edges,) = self.edges
        indices = self.matrix("sources", edges.indices.shape[1], self.nodes.dtype)
        self.launch.rows(kernels.copy_first, indices.shape[1], edges.indices, self.num_edges[-1], indices)
        self.edges = [edges._replace(indices=indices)]

    def batches(self) -> Bulk[MiniBatch]:
        """Return the mini-batches of the bulk, with the trees of their nodes and the times of their seeds."""
        trees, bounds = self.stream.result(self.trees), self.stream.result(self.brought["bounds"])

        def with_trees(b: int, batch: MiniBatch) -> MiniBatch:
            return replace(batch, extra={"trees": trees[b, : len(batch.node_ids)], "seed_times": bounds[b, : batch.num_seeds]})

        return super().batches().map(with_trees)
