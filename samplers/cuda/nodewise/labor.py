"""CUDA driver of ``LaborSampler``."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import id_dtype
from hoptrain.kernels.cuda.draw import DISTINCT
from hoptrain.kernels.cuda.nodewise import importance
from hoptrain.kernels.cuda.nodewise import labor as kernels
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.kernels.cuda.sample_parallel import lane_bits_of
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.kernels.shared.draws import ALL
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.bounded import FixedSizeSampler
from hoptrain.samplers.cuda.device_sampler import FEW_EDGES
from hoptrain.samplers.nodewise.labor import LaborSampler

_ONE = np.float64(1).view(np.uint64)


class _Evenly(FixedSizeSampler):
    """The driver of LABOR-0, which keeps edges by the random words of their sources. The number of edges that a hop keeps has no useful upper bound."""

    rule: tuple[Any, ...]

    def __init__(self, graph: Graph, sampler: LaborSampler, workspace: Workspace) -> None:
        super().__init__(graph, workspace, [-1] * len(sampler.fanouts))
        self.targets = [fanout if fanout != ALL else graph.num_edges for fanout in sampler.fanout_codes]
        self.lane_bits = lane_bits_of(-1, DISTINCT, self.thresholds)

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        hop, bits = len(self.schedule), self.lane_bits
        self._order(requests, capacity, draw)
        self.pieces = self.matrix("pieces", capacity << bits, self.dtype)
        if self.order.grouped:  # groups contain no requests for nodes without edges
            self.launch.rows(fill_rows, self.pieces.shape[1], self.pieces, 0)
        self.rule = *requests, *self.order, self.targets[hop], draw[2], bits, self.pieces
        self._launch_ordered(self.order, kernels.count_kept, capacity << bits, *self.graph.arrays()[:2], *self.rule)
        self.launch.rows(kernels.add_pieces, capacity, *requests[1:], bits, self.pieces, counts)

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        hop = len(self.schedule) - 1
        weights = self.matrix(f"weights{hop}", output[1].shape[1], np.uint32)
        graph = self.graph.arrays()[:2]
        self._launch_ordered(self.order, kernels.write_kept, capacity << self.lane_bits, *graph, *self.rule, *output)
        lanes, rule = capacity << self.lane_bits, (*requests, self.targets[hop], self.lane_bits)
        self.launch.rows(kernels.weigh_kept, lanes, self.graph.indptr, *rule, output[0], weights)
        return weights


class CudaLabor(_Evenly):
    """The driver of ``LaborSampler``. With ``importance_rounds`` it keeps edges by the importances of their sources.

    All candidate sources of a hop become nodes temporarily, so that importances are stored by local id. A hop then has two buffers without a bound.
    """

    own_sizes = ("in_edges", "sources", "kept")
    sizes_of_hop = ("needed_in_edges", "long", "restart")

    def __init__(self, graph: Graph, sampler: LaborSampler, workspace: Workspace) -> None:
        """Copy the graph to the device, or to pinned host memory.

        Raises:
            InputError: the sampler is weighted, CUDA cannot be used, or the kernel or placement is unknown.
        """
        if sampler.weighted:
            raise InputError(
                'LaborSampler(weighted=True) with device="cuda": this option has no kernels for CUDA; use device="cpu", or leave weighted out'
            )
        super().__init__(graph, sampler, workspace)
        self.rounds_of = [sampler.importance_rounds if fanout != ALL else 0 for fanout in sampler.fanout_codes]
        self.restarts = tuple(f"restart{hop}" for hop, rounds in enumerate(self.rounds_of) if rounds)

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        hop = len(self.schedule)
        self.rounds = self.rounds_of[hop]
        if not self.rounds:
            super()._count(requests, capacity, draw, counts)
            return
        high, target, known = requests[2], self.targets[hop], self.known
        columns, edge_ids = self._list_sources(hop, requests, capacity, draw)
        weighed = self._find_importances(high, capacity, columns, target)
        most, num_edges = edge_ids.shape[1], self.sizes["in_edges"]
        kept, rule = self.matrix("kept", most + 1, self.dtype), (high, num_edges, *columns, target)
        self.launch.rows(importance.decide_edges, most, self.nodes, *rule, draw[2], *weighed, kept)
        exclusive_scan(self.launch, kept, most, self.zeros, num_edges, self.zeros, self.sums(most), self.sizes["kept"])
        self.launch.rows(importance.count_important, capacity, high, columns[0], kept, counts)
        self.rule = edge_ids, *rule, *weighed, kept
        self.order = self.order._replace(counters=num_edges)  # the draws write no edge if the kept edges exceed the capacity
        self.frontier.forget(known, high, self.sizes[f"restart{hop}"])

    def _list_sources(
        self, hop: int, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any]
    ) -> tuple[tuple[Any, Any], Any]:
        """Queue the copy of the requests' columns; return their offsets and sources as local ids, and the edge ids.

        The sources become nodes temporarily; ``sizes["sources"]`` has the number of nodes.
        """
        ends = self.matrix("ends", capacity + 1, self.dtype)
        num_edges, self.num_sources = self.sizes["in_edges"], self.sizes["sources"]
        self.draws.count(requests, capacity, draw, ends)
        guess, bounds = min(self.most_edges, FEW_EDGES * capacity), (*requests[1:], self.zeros)
        most = self.scan_into_buffer(f"needed_in_edges{hop}", guess, ends, capacity, bounds, num_edges)
        sources = self.matrix("sources", most, self.id_dtype)
        edge_ids = self.matrix("source_edge_ids", most, id_dtype(self.num_graph_edges))
        self.schedule.append(self.draws.draw(requests, capacity, self.known, draw, (ends, edge_ids, sources)))
        self.frontier.relabel(sources, most, (self.zeros, num_edges), requests[2], self.num_sources)
        return (ends, sources), edge_ids

    def _find_importances(self, high: Any, capacity: int, columns: tuple[Any, Any], target: int) -> tuple[Any, Any]:
        """Queue the rounds, and return the importances by local id and the scales of the destinations, as the bits of float64 numbers."""
        values, inverses, factor, scales = (
            self.matrix(name, self.known, np.uint64) for name in ("importance", "inverse_importance", "factor", "scale")
        )
        for rows in (values, inverses, factor):
            self.launch.rows(importance.fill_first, self.known, self.num_sources, rows, np.uint64(0) if rows is factor else _ONE)
        long = self.sizes[f"long{len(self.schedule) - 1}"], self.matrix("long", capacity, self.dtype)
        self.launch.rows(importance.list_long, capacity, high, columns[0], target, *long)
        for i in range(self.rounds + 1):
            rest = *columns, target, values, inverses, scales, factor
            self.launch.rows(importance.find_scales, capacity, high, *rest)
            self.launch.block_each(importance.find_long_scales, capacity, *long, *rest, shared_bytes=importance.PIECES_BYTES)
            if i < self.rounds:
                self.launch.rows(importance.multiply, self.known, self.num_sources, values, factor, inverses)
        return values, scales

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        if not self.rounds:
            return super()._draw(requests, capacity, draw, output)
        hop = len(self.schedule) - 1
        weights = self.matrix(f"weights{hop}", output[1].shape[1], np.uint32)
        self.launch.rows(importance.write_important, self.rule[0].shape[1], self.graph.indices, *self.rule, *output[1:], weights)
        self.launch.rows(importance.weigh_important, weights.shape[1], self.num_edges[hop], weights)
        return weights
