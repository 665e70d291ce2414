"""CUDA driver of the layer-wise samplers FastGCN, LADIES and AS-GCN."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.layerwise import layers as kernels
from hoptrain.kernels.cuda.relabel import clear_table, relabel
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.kernels.shared.importance import LONG
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.layers import Layer, LayerSampler
from hoptrain.samplers.layerwise.layers import KEY_BITS, SCORE_BITS, LayerWiseSampler

_NO_SCORES = np.zeros(1, np.uint32)


class _Distribution(NamedTuple):
    """A distribution on nodes, stored on the device. The arrays ``sizes`` of the driver have the number of candidates and the sum of their keys."""

    candidates: Any
    """(K, m) global ids of the candidates, or (1, m) if all batches have the same distribution."""
    prefix: Any
    """(K, m) int64 exclusive prefix sums of the candidates' keys, or (1, m) as for ``candidates``."""


class _Drawn(NamedTuple):
    """The distinct nodes that a hop drew, in arrays (K, t)."""

    vertices: Any
    """(K, t) global ids of the drawn nodes."""
    counts: Any
    """(K, t) int32, how often each node was drawn."""
    keys: Any
    """(K, t) int64 key of each node. The probability of a node is proportional to its key."""
    table: tuple[Any, Any]
    """Relabelling table that maps global ids to indices into ``vertices``, ``counts`` and ``keys``."""


class CudaLayers(LayerSampler):
    """The driver of ``LayerWiseSampler``."""

    kinds = (*LayerSampler.kinds, "total", "drawn", "distinct")

    def __init__(self, graph: Graph, sampler: LayerWiseSampler, workspace: Workspace) -> None:
        """Copy the graph, and the distribution if all layers have the same one, to the device or to pinned host memory.

        Raises:
            InputError: CUDA cannot be used, or the kernel or placement is unknown.
        """
        super().__init__(graph, sampler.layer_sizes, workspace)
        self.sampler = sampler
        distribution = sampler.distribution_of_graph(graph)
        self._fixed: _Distribution | None = None
        if distribution is not None:
            candidates, prefix = (array if len(array) else np.zeros(1, array.dtype) for array in distribution)
            before = np.append(np.uint64(0), prefix[:-1]).astype(np.int64)
            self._fixed = _Distribution(
                self.to_device(candidates[None], "the distribution"), self.to_device(before[None], "the distribution")
            )
            self._fixed_sizes = {"candidates": len(distribution.candidates), "total": int(prefix[-1])}
        self._host_scores: Array | None = None
        self._scores = self.to_device(_NO_SCORES, "the scores")

    def begin(self, seeds: list[Array]) -> None:
        """Check the seeds, and copy changed scores to the device."""
        super().begin(seeds)
        scores = self.sampler.checked_scores(self.host_graph)
        if scores is not self._host_scores:
            self._scores = self.to_device(_NO_SCORES if scores is None else scores, "the scores")
            self._host_scores = scores
            self.replays.clear()
        if self._fixed is not None:
            self.given |= {f"{kind}{hop}": size for kind, size in self._fixed_sizes.items() for hop in self.hops}

    def sample_hop(self, hop: int) -> Layer:
        """Queue the draws of a layer, and the search for the edges of the drawn nodes."""
        launch, sizes, size = self.launch, self.sizes, self.layer_sizes[hop]
        offsets = self.scan_in_edges(hop)
        drawn = self._draw(hop, self._fixed or self._distribution_of(hop, offsets))
        weights = self.matrix("draw_weights", size, np.int32)
        totals = sizes[f"distinct{hop}"], sizes[f"drawn{hop}"], sizes[f"total{hop}"]
        launch.rows(kernels.weigh_drawn, size, drawn.counts, drawn.keys, *totals, weights)
        edges = self.connect(hop, offsets, drawn.table, drawn.vertices, weights)
        if self.sampler.normalizes:
            columns = sizes[f"nodes{hop}"], offsets, edges.indptr, sizes[f"kept{hop}"], edges.weights
            launch.rows(kernels.normalize_weights, self.known[hop], *columns)
            if self.capacities[f"edges{hop}"] > LONG:
                launch.block_each(kernels.normalize_long, self.known[hop], *columns, shared_bytes=kernels.PIECES_BYTES)
        return Layer(edges, self._describe(hop, drawn) if self.sampler.describes_draws else {})

    def _distribution_of(self, hop: int, offsets: Any) -> _Distribution:
        """Queue the computation of the distribution on the in-neighbours of the hop's destinations."""
        launch, sizes, zeros = self.launch, self.sizes, self.sizes["zeros"]
        candidates, sources = self.list_candidates(hop, offsets)
        most, found, listed = candidates.shape[1], sizes[f"candidates{hop}"], sizes[f"listed{hop}"]
        sums = self.matrix("candidate_keys", most + 1, np.int64)
        launch.rows(fill_rows, most, sums, 0)
        is_scored = int(self._host_scores is not None)
        kind, bits = self.sampler.key_kind, KEY_BITS - SCORE_BITS * is_scored
        launch.rows(kernels.add_shares, sources.shape[1], sizes[f"nodes{hop}"], offsets, listed, sources, kind, bits, sums)
        launch.rows(kernels.make_keys, most, self.graph.indptr, candidates, found, kind, is_scored, self._scores, sums)
        exclusive_scan(launch, sums, most, zeros, found, zeros, self.sums(most), sizes[f"total{hop}"])
        return _Distribution(candidates, sums)

    def _draw(self, hop: int, distribution: _Distribution) -> _Drawn:
        launch, sizes, size = self.launch, self.sizes, self.layer_sizes[hop]
        zeros, number = sizes["zeros"], sizes[f"drawn{hop}"]
        drawn, keys = self.matrix("drawn", size, self.id_dtype), self.matrix("drawn_keys", size, np.int64)
        found, total = sizes[f"candidates{hop}"], sizes[f"total{hop}"]
        launch.rows(kernels.draw_candidates, size, *distribution, found, total, size, self.addresses[hop], drawn, keys, number)
        distinct, counts = self.matrix("distinct", size, self.id_dtype), self.matrix("draw_counts", size, np.int32)
        table = self.table("draw_table", size, self.id_dtype)
        clear_table(launch, *table)
        relabel(launch, drawn, distinct, size, zeros, number, size, table, self.relabel_scratch(size), zeros, sizes[f"distinct{hop}"])
        launch.rows(fill_rows, size, counts, 0)
        distinct_keys = self.matrix("distinct_keys", size, np.int64)
        launch.rows(kernels.count_draws_of, size, drawn, keys, number, counts, distinct_keys)
        return _Drawn(distinct, counts, distinct_keys, table)

    def _describe(self, hop: int, drawn: _Drawn) -> dict[str, Any]:
        """Queue the arrays ``draws`` and ``probabilities``: how often each source was drawn, and its probability."""
        launch, sizes, after = self.launch, self.sizes, self.known[hop + 1]
        draws, probabilities = (self.matrix(f"{name}{hop}", after, np.int32) for name in ("draws", "probabilities"))
        for array in (draws, probabilities):
            launch.rows(fill_rows, after, array, 0)
        totals, table = (sizes[f"distinct{hop}"], sizes[f"total{hop}"]), self.frontier.table
        launch.rows(kernels.describe_sources, self.layer_sizes[hop], *drawn[:3], *totals, *table, draws, probabilities)
        return {"draws": draws, "probabilities": probabilities.view(np.float32)}
