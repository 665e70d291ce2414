"""CUDA driver of ``LinkSampler``: the host draws the pairs, the device samples the neighbourhoods of their ends and drops the excluded edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.kernels.cuda.seeds import link as kernels
from hoptrain.samplers.batch.minibatch import ONLY, MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_bulk_address
from hoptrain.samplers.cuda.bounded import FixedSizeSampler
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import DeviceSampler, Upload
from hoptrain.samplers.cuda.edges import BulkEdges
from hoptrain.samplers.cuda.nodewise.temporal import CudaTemporal
from hoptrain.samplers.wrappers.link import LinkSampler


class CudaLinks:
    """The driver of ``LinkSampler``, which wraps the driver of the wrapped sampler."""

    def __init__(self, graph: Graph, sampler: LinkSampler, workspace: Workspace, inner: DeviceSampler[MiniBatch]) -> None:
        """Keep the driver ``inner`` of the wrapped sampler.

        Raises:
            InputError: edges are to be excluded, and the wrapped sampler is not node-wise.
        """
        if sampler.exclude != "none" and not isinstance(inner, FixedSizeSampler):
            raise InputError(
                f'exclude={sampler.exclude!r} over {type(sampler.sampler).__name__} with device="cuda": CUDA excludes edges from the blocks of '
                'node-wise samplers only; use exclude="none", or device="cpu"'
            )
        self.graph, self.sampler, self.stream, self.inner = graph, sampler, workspace.stream, inner
        self._on_host = Workspace()

    def double_buffer(self) -> CudaLinks:
        """Return a second driver for double buffering; see ``DeviceSampler.double_buffer``."""
        other = copy(self)
        other.inner, other._on_host = self.inner.double_buffer(), Workspace()
        return other

    def start(self, seeds: Sequence[Array], *, seed: int, epoch: int, first_batch: int) -> Callable[[], Bulk[MiniBatch]]:
        """Draw the pairs, and queue a bulk; see ``Sampler.start_bulk``."""
        check_bulk_address(seed, epoch, first_batch, len(seeds))
        graph, sampler, stream = self.graph, self.sampler, self.stream
        parts = [self._on_host.part(i) for i in range(len(seeds))]
        asked = [sampler.asked(graph, own, Address(seed, epoch, first_batch + i), parts[i]) for i, own in enumerate(seeds)]
        further: dict[str, Upload] = {}
        options: dict[str, Any] = {"seed": seed, "epoch": epoch, "first_batch": first_batch, "further": further}
        if isinstance(self.inner, CudaTemporal):
            options["times"] = [own.times for own in asked]
        elif sampler.exclude != "none":
            dropped = [sampler.dropped(graph, own.positives, {"": len(own.seeds)})[ONLY] for own in asked]
            options["edit"] = drop_edges
            further["dropped"] = Upload(dropped, np.int64)
            further["num_dropped"] = Upload([np.array([len(own)]) for own in dropped], np.int64)
        extras = [own.extra for own in asked]
        further |= {name: Upload([extra[name].reshape(-1) for extra in extras], rows.dtype) for name, rows in extras[0].items()}
        shapes = [{name: rows.shape for name, rows in extra.items()} for extra in extras]
        finish = self.inner.start([own.seeds for own in asked], **options)

        def finished() -> Bulk[MiniBatch]:
            batches = finish()
            rows = {name: stream.result(self.inner.brought[name]) for name in extras[0]}

            def with_pairs(b: int, batch: MiniBatch) -> MiniBatch:
                own = {name: rows[name][b, : prod(shape)].reshape(shape) for name, shape in shapes[b].items()}
                return replace(batch, extra=batch.extra | own)

            return batches.map(with_pairs)

        return finished


def drop_edges(bulk: FixedSizeSampler) -> None:
    """Queue the removal of the excluded edges of a bulk after its last hop.

    Args:
        bulk: driver whose batches have each node once, so that the ends of excluded edges are seeds. Its uploads have for each batch "dropped" (D,)
            int64, ``source * num_seeds + destination`` in local ids, ascending, and "num_dropped" (1,) int64, D.
    """
    table, counts = bulk.brought["dropped"], bulk.brought["num_dropped"]
    counts = counts.reshape(len(counts))
    shared = len(bulk.edges) < len(bulk.num_edges)  # True if all hops store their edges in the same arrays
    for h, edges in enumerate(bulk.edges):
        hop = len(bulk.num_edges) - 1 if shared else h
        bulk.edges[h] = _keep_others(bulk, edges, h, (bulk.num_nodes[hop], bulk.num_nodes[0], table, counts), bulk.num_edges[hop])
    if shared:
        for num_nodes, num_edges in zip(bulk.num_nodes[:-1], bulk.num_edges, strict=True):
            bulk.launch.one_block_each(kernels.read_ends, bulk.edges[0].indptr, num_nodes, num_edges)


def _keep_others(bulk: FixedSizeSampler, edges: BulkEdges, number: int, rule: tuple[Any, Any, Any, Any], num_edges: Any) -> BulkEdges:
    """Queue the copy of the edges that are not excluded into new arrays, and return these; their number goes to ``num_edges``."""
    array = bulk.buffers.array
    capacity, num_dst = edges.indptr.shape[1] - 1, rule[0]
    left = BulkEdges(
        array(f"left_indptr{number}", edges.indptr.shape, edges.indptr.dtype),
        array(f"left_edge_ids{number}", edges.edge_ids.shape, edges.edge_ids.dtype),
        array(f"left_indices{number}", edges.indices.shape, edges.indices.dtype),
        None if edges.weights is None else array(f"left_weights{number}", edges.weights.shape, np.uint32),
    )
    bulk.launch.rows(kernels.count_left, capacity, edges.indptr, edges.indices, *rule, left.indptr)
    exclusive_scan(bulk.launch, left.indptr, capacity, bulk.zeros, num_dst, bulk.zeros, bulk.sums(capacity), num_edges)
    has_weights, none = int(edges.weights is not None), array("no_weights", (1, 1), np.uint32)
    weights = (edges.weights, left.weights) if has_weights else (none, none)
    bulk.launch.rows(kernels.move_left, capacity, *edges[:3], weights[0], *rule, has_weights, *left[:3], weights[1])
    return left
