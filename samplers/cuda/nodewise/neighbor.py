"""Neighbour sampling on a CUDA device: a bulk of mini-batches at once, to the bit those of ``NeighborSampler``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.device import Buffers, DeviceStream
from hoptrain.engine.device_store import DeviceGraph, DeviceRows
from hoptrain.kernels.cuda.draw import DISTINCT, REPLACE, WEIGHTED
from hoptrain.kernels.cuda.launch import MAX_BATCHES
from hoptrain.kernels.cuda.thresholds import THRESHOLDS, Thresholds
from hoptrain.samplers.batch.minibatch import Block, MiniBatch
from hoptrain.samplers.checks import check_bulk_address, check_seeds, seed_given_twice
from hoptrain.samplers.cuda.bulk import Bulk, Edges
from hoptrain.samplers.cuda.cost_model import SCHEDULES
from hoptrain.samplers.scratch.workspace import Workspace

KERNELS = ("auto", *SCHEDULES)

Sampling = TypeVar("Sampling")


class CudaNeighborSampling:
    """Samples one graph with one setting.

    Attributes:
        graph: the device's copy of the graph, which says where its arrays are.
        stream: of all kernels.
        schedule: of each hop of the last bulk, "sample" or "transit".
    """

    def __init__(
        self,
        graph: Graph,
        fanouts: Sequence[int],
        replace: bool = False,
        expand: str = "all",
        alias: tuple[Array, Array] | None = None,
        kernel: str = "auto",
        placement: str = "auto",
        thresholds: Thresholds | None = None,
        stream: DeviceStream | None = None,
        bulk_type: type[Bulk] = Bulk,
    ) -> None:
        """Copy the graph to where the device reads it.

        Args:
            graph: the graph.
            fanouts: as of ``NeighborSampler``, which checks them. A hop with -1 costs a synchronisation.
            replace: draw with replacement.
            expand: "all" or "new".
            alias: alias tables, threshold (E,) uint32 and alias (E,) int32: draw by weight, with replacement.
            kernel: the schedule, "sample" or "transit"; "auto" lets the cost model choose for each hop. The results are the same.
            placement: of the graph, "device" memory or "pinned" host memory; "auto" takes device memory while it is free.
            thresholds: what decides about speed.
            stream: of all kernels; by default a new one.
            bulk_type: what does the work of a bulk.

        Raises:
            InputError: CUDA cannot be used, or an unknown kernel or placement.
        """
        check_kernel(kernel)
        self.stream = stream or DeviceStream()
        threshold, table = alias if alias is not None else (np.zeros(1, np.uint32), np.zeros(1, np.int32))
        arrays = {"indptr": graph.indptr, "indices": graph.indices, "threshold": threshold, "alias": table}
        self.graph = DeviceGraph(arrays, placement, self.stream)
        self.fanouts = tuple(fanouts)
        self.mode = WEIGHTED if alias is not None else REPLACE if replace else DISTINCT
        self.expand = expand
        self.bulk_type = bulk_type
        self.kernel = kernel
        self.thresholds = thresholds or THRESHOLDS
        self.buffers = Buffers(self.stream, self.thresholds.block)
        self.schedule: tuple[str, ...] = ()
        self.offset_dtype: np.dtype[Any] = np.dtype(np.int32)  # grows with the bulks and stays, as the buffers do
        self._host_graph = graph

    def __repr__(self) -> str:
        return f"CudaNeighborSampling({self.graph}, fanouts={list(self.fanouts)}, kernel={self.kernel!r}, schedule={list(self.schedule)})"

    def sample_bulk(self, seeds: Sequence[Array], *, seed: int = 0, epoch: int = 0, first_batch: int = 0) -> list[MiniBatch]:
        """Sample several batches, numbered from ``first_batch``, and wait for them.

        Args:
            seeds: for each batch its distinct vertex ids, NumPy arrays.
            seed: the user's seed, in [0, 2**64).
            epoch: in [0, 2**20).
            first_batch: in [0, 2**32).

        Returns:
            Mini-batches of torch tensors on the device; of Numba's device arrays where torch is not imported; of NumPy arrays in the simulator.
            They are views of buffers: good until the next call.

        Raises:
            InputError: a seed outside the graph, or twice in a batch; an address out of range; too many batches.
        """
        if not seeds:
            return []
        self.stream.wait_for_torch()
        return self.start_bulk(seeds, seed=seed, epoch=epoch, first_batch=first_batch)()

    def start_bulk(
        self,
        seeds: Sequence[Array],
        *,
        seed: int = 0,
        epoch: int = 0,
        first_batch: int = 0,
        edit: Callable[[Bulk], None] | None = None,
        **options: Any,
    ) -> Callable[[], list[MiniBatch]]:
        """Queue the work of ``sample_bulk`` without regard for what torch has queued; the function returned waits for it and gives the batches.

        One bulk is under way at a time. ``edit`` may queue changes of the bulk after its last hop; ``options`` are those of ``bulk_type``.
        """
        if len(seeds) > MAX_BATCHES:
            raise InputError(f"a bulk of {len(seeds):,} batches: a grid has room for {MAX_BATCHES:,}; sample them in several calls")
        check_bulk_address(seed, epoch, first_batch, len(seeds))
        seeds = [check_seeds(self._host_graph, some) for some in seeds]
        bulk = self.bulk_type(self, seeds, (seed, epoch, first_batch), **options)
        for hop in range(len(self.fanouts)):
            bulk.sample_hop(hop)
        bulk.end()
        if edit is not None:
            edit(bulk)
        self.schedule = tuple(bulk.schedule)
        bulk.queue_sizes()
        return partial(self._finish, bulk, seeds, seed, epoch, first_batch)

    def _finish(self, bulk: Bulk, seeds: list[Array], seed: int, epoch: int, first_batch: int) -> list[MiniBatch]:
        num_nodes, num_edges, repeated = bulk.read_sizes()
        for place, some in zip(repeated, seeds, strict=True):
            if place < len(some):
                raise seed_given_twice(some[place])
        nodes = self.stream.result(bulk.nodes)
        hops = [_results(self.stream, edges) for edges in bulk.edges]
        batches = [
            MiniBatch(
                node_ids=nodes[b, : num_nodes[-1, b]],
                blocks=tuple(reversed(_blocks(b, hops, num_nodes[:, b].tolist(), num_edges[:, b].tolist()))),
                num_seeds=len(seeds[b]),
                seed=seed,
                epoch=epoch,
                batch=first_batch + b,
                num_step_seeds=len(seeds[b]),
                nested=self.expand == "new",
            )
            for b in range(len(seeds))
        ]
        return bulk.complete(batches)

    def gather(self, store: DeviceRows, batch: MiniBatch) -> Any:
        """The rows of a store for all nodes of a batch, (S, ...); see ``DeviceRows.gather``."""
        return store.gather(batch.node_ids)


def check_kernel(kernel: str) -> None:
    """Refuse a schedule that there is not."""
    if kernel not in KERNELS:
        raise InputError(f"kernel is {kernel!r}: the schedules are {', '.join(KERNELS)}; choose one")


def held_by(workspace: Workspace, key: tuple[Any, ...], make: Callable[..., Sampling]) -> Sampling:
    """``make`` of the workspace's options, which the workspace keeps until it is asked for another ``key``: graph and settings."""
    if workspace.device_sampling is None or workspace.device_sampling[0] != key:
        workspace.device_sampling = None  # so that its memory is free before the new one asks for some
        made = make(kernel=workspace.kernel, placement=workspace.placement, thresholds=workspace.thresholds, stream=workspace.stream)
        workspace.device_sampling = key, made
    held: Sampling = workspace.device_sampling[1]
    return held


def _results(stream: DeviceStream, edges: Edges) -> Edges:
    """The arrays as users get them."""
    weights = None if edges.weights is None else stream.result(edges.weights.view(np.float32))
    indptr, edge_ids, indices = (stream.result(array) for array in edges[:3])
    return Edges(indptr, edge_ids, indices, weights)


def _blocks(b: int, hops: list[Edges], num_nodes: list[int], num_edges: list[int]) -> list[Block]:
    """The blocks of batch ``b`` from the seeds outward; ``hops`` has arrays for each, or for all together where they are nested."""
    arrays = hops if len(hops) == len(num_edges) else hops * len(num_edges)
    return [
        Block(
            indptr=edges.indptr[b, : num_nodes[h] + 1],
            indices=edges.indices[b, : num_edges[h]],
            edge_ids=edges.edge_ids[b, : num_edges[h]],
            num_src=num_nodes[h + 1],
            weights=None if edges.weights is None else edges.weights[b, : num_edges[h]],
        )
        for h, edges in enumerate(arrays)
    ]
