"""What the samplers of layers and of subgraphs share on a CUDA device: a bulk of mini-batches at once, whose sizes nobody reads back in between.

Where nothing useful bounds a size, work is queued for as much room as was enough so far. Kernels count on beyond the room, and write nothing
there; if a count says at the end that there was too little, the room grows and the bulk is queued again. Rooms only grow, so that happens in
the first bulks, and hardly ever later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.device import Buffers
from hoptrain.engine.device_store import DeviceGraph, choose_placement, place
from hoptrain.kernels.cuda.launch import MAX_BATCHES, Launch
from hoptrain.kernels.cuda.thresholds import COPY_UNIT, THRESHOLDS
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.checks import check_bulk_address
from hoptrain.samplers.scratch.workspace import Workspace

FEW_EDGES = 4
"""Edges of a node to or from chosen vertices for which there is room at first: if they are more, the first bulk tells."""


class DeviceWork(ABC):
    """Samples one graph by one sampler.

    Attributes:
        graph: the device's copy of the graph.
        buffers: device arrays by name.
        launch: of the bulk.
        num_batches: K, of the bulk.
        sizes: rows (K,) int64 on the device, by name: zero, or as ``given``, before the work.
        given: host values of sizes, by name.
        addresses: (4,) uint64 on the device for each hop: seed, epoch, number of the first batch, hop.
    """

    size_names: tuple[str, ...]
    num_hops: int

    def __init__(self, graph: Graph, workspace: Workspace) -> None:
        """Copy the graph to where the device reads it.

        Raises:
            InputError: CUDA cannot be used, or an unknown placement.
        """
        self.stream = workspace.stream
        self.thresholds = workspace.thresholds or THRESHOLDS
        self.placement = workspace.placement
        tables = {"threshold": np.zeros(1, np.uint32), "alias": np.zeros(1, np.int32)}
        self.graph = DeviceGraph({"indptr": graph.indptr, "indices": graph.indices, **tables}, self.placement, self.stream)
        self.buffers = Buffers(self.stream, self.thresholds.block)
        self.host_graph = graph
        self.num_vertices, self.num_graph_edges = graph.num_nodes, graph.num_edges
        self.id_dtype, self.edge_dtype = graph.indices.dtype, id_dtype(graph.num_edges)
        self.dtype: np.dtype[Any] = np.dtype(np.int32)  # of offsets; grows with the bulks and stays, as the buffers do
        self._rooms: dict[str, int] = {}

    @abstractmethod
    def begin(self, units: list[Array]) -> None:
        """Check what the batches are asked for by, and prepare what the host knows."""

    @abstractmethod
    def queue(self) -> None:
        """Queue the work of the bulk."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether the bulk can be handed out; else it is queued again. The sizes are on the host."""

    @abstractmethod
    def batches(self, address: list[dict[str, Any]]) -> list[MiniBatch]:
        """The mini-batches, with these parts of their addresses."""

    def start(self, units: Sequence[Array], *, seed: int, epoch: int, first_batch: int) -> Callable[[], list[MiniBatch]]:
        """Queue a bulk; see ``Sampler.start_bulk``."""
        if len(units) > MAX_BATCHES:
            raise InputError(f"a bulk of {len(units):,} batches: a grid has room for {MAX_BATCHES:,}; sample them in several calls")
        check_bulk_address(seed, epoch, first_batch, len(units))
        self.num_batches = len(units)
        self.launch = Launch(stream=self.stream.numba, thresholds=self.thresholds, num_batches=len(units))
        self.given: dict[str, Any] = {}
        self.begin([np.asarray(some) for some in units])
        addresses = self.buffers.array("addresses", (self.num_hops, 4), np.uint64)
        host = self.buffers.pinned("addresses", addresses)
        host[:, :3] = seed, epoch, first_batch
        host[:, 3] = np.arange(self.num_hops)
        addresses.copy_to_device(host, stream=self.stream.numba)
        self.addresses = [addresses[hop] for hop in range(self.num_hops)]
        self._queue()
        return partial(self._finish, [{"seed": seed, "epoch": epoch, "batch": first_batch + b} for b in range(len(units))])

    def _queue(self) -> None:
        array = self.buffers.array("sizes", (len(self.size_names), self.num_batches), np.int64)
        host = self._host_sizes = self.buffers.pinned("sizes", array)
        host[:] = 0
        for name, values in self.given.items():
            host[self.size_names.index(name), : self.num_batches] = values
        array.copy_to_device(host, stream=self.stream.numba)
        self.sizes = {name: array[row] for row, name in enumerate(self.size_names)}
        self.queue()
        array.copy_to_host(host, stream=self.stream.numba)

    def _finish(self, address: list[dict[str, Any]]) -> list[MiniBatch]:
        self.stream.synchronize()
        while not self.is_done():
            self._queue()
            self.stream.synchronize()
        return self.batches(address)

    def host_size(self, name: str) -> Array:
        """(K,) the size as it was at the end."""
        return self._host_sizes[self.size_names.index(name), : self.num_batches]

    def matrix(self, name: str, width: int, dtype: DTypeLike, *, keep: bool = False) -> Any:
        """A buffer (K, width), or larger."""
        return self.buffers.array(name, (self.num_batches, width), dtype, keep=self.num_batches if keep else 0)

    def sums(self, items: int) -> Any:
        """Scratch of a scan."""
        return self.matrix("sums", -(-items // self.thresholds.block), np.int64)

    def table(self, name: str, room: int, dtype: DTypeLike | None = None) -> tuple[Any, Any]:
        """A relabelling table for ``room`` nodes of a batch, at most half full."""
        size = 1 << (2 * room - 1).bit_length()
        return self.matrix(f"{name}.keys", size, dtype or self.id_dtype), self.matrix(f"{name}.values", size, self.dtype)

    def room(self, name: str, guess: int) -> int:
        """Room for what nothing bounds: ``guess``, or more if that was too little once."""
        return max(guess, self._rooms.get(name, 0))

    def grow(self, name: str, needed: int, room: int) -> bool:
        """Whether there was too little room; if so there is enough the next time, and some more lest every bulk ask for a little."""
        if needed > room:
            self._rooms[name] = needed + (needed >> 3)
        return needed > room

    def num_parts(self, nodes: int) -> int:
        """Threads among which the in-edges of so many nodes are divided, as many as a grid has at most."""
        in_edges = nodes * max(1, self.num_graph_edges // max(1, self.num_vertices))
        return max(1, min(-(-in_edges // COPY_UNIT), self.thresholds.max_blocks * self.thresholds.block // self.num_batches))

    def place(self, array: Array, what: str) -> Any:
        """A copy of a host array that kernels can read, never empty."""
        array = array if array.size else np.zeros(1, array.dtype)
        return place(array, choose_placement(self.placement, array.nbytes, what), self.stream)


def held_work(workspace: Workspace, key: tuple[Any, ...], make: Callable[[], DeviceWork]) -> DeviceWork:
    """What the workspace keeps on the device for ``key``, made anew where it kept something else."""
    if workspace.device_sampling is None or workspace.device_sampling[0] != key:
        workspace.device_sampling = None  # so that its memory is free before the new one asks for some
        workspace.device_sampling = key, make()
    held: DeviceWork = workspace.device_sampling[1]
    return held
