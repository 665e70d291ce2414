"""``DeviceSampler``, the base class of the CUDA drivers, which sample a bulk of mini-batches at once, bit-identical to those of the CPU.

A bulk of K batches is kept in batch-major matrices. The host launches kernels without knowing the sizes: a size is either bounded, or its buffer has the
capacity that was enough so far. Kernels continue to count beyond a capacity, but write nothing there. The true sizes stay on the device until
the bulk is done. If a size exceeds its capacity, the capacity grows and the bulk is queued again. Capacities never shrink, so this happens
in the first bulks, and rarely later.

So the host reads nothing back during a bulk, and its work for a bulk depends only on the bulk's shape. The second bulk of a shape is captured in
a CUDA graph, and later ones are a single call each (``replays``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from hoptrain.engine import Address, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.gpu_memory.device_store import DeviceGraph, choose_placement, to_device
from hoptrain.engine.gpu_memory.device_stream import Buffers
from hoptrain.kernels.cuda.launch import MAX_BATCHES, Launch
from hoptrain.kernels.cuda.scan import scan_into_buffer
from hoptrain.kernels.cuda.stamped import EMPTY, FEW_PROBES, PackedFields, StampedTable
from hoptrain.kernels.cuda.thresholds import THRESHOLDS
from hoptrain.samplers.batch.minibatch import HeteroMiniBatch, MiniBatch
from hoptrain.samplers.buffers.alias import NO_TABLES, AliasTables
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_bulk_address, seed_given_twice
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.cost_model import check_kernel
from hoptrain.samplers.cuda.draws import GraphDraws
from hoptrain.samplers.cuda.edges import round_up
from hoptrain.samplers.cuda.replays import Replays
from hoptrain.samplers.cuda.tables import StampedTables

Batch = TypeVar("Batch", MiniBatch, HeteroMiniBatch)

NEVER = np.iinfo(np.int64).max
"""Initial value of an entry of ``sizes`` for the position of the first error. It is above all positions, and kernels replace it by a smaller one."""


FEW_EDGES = 4
"""Initial capacity, in edges per node, of buffers whose size has no bound."""


class Upload(NamedTuple):
    """The host arrays of one name that are copied to the device for a bulk, one row for each batch."""

    rows: Sequence[Array]
    dtype: DTypeLike
    """Dtype of the matrix on the device."""

    @property
    def width(self) -> int:
        """Width of the matrix on the device, which is the length of the longest row, rounded up."""
        return longest(self.rows)


def longest(rows: Sequence[Array]) -> int:
    """Return the length of the longest row, rounded up so that similar bulks have the same shape."""
    return round_up(max(map(len, rows)))


class DeviceSampler(ABC, Generic[Batch]):
    """A driver that samples one graph by one sampler on a CUDA device, one bulk at a time.

    Attributes:
        buffers: device arrays by name.
        tables: relabelling tables that are never cleared.
        dtype: dtype of offsets, local ids and positions in tables; it may widen from bulk to bulk, and never narrows.
        hops: numbers of the hops whose random words are drawn.
        restarts: names of sizes that hold the start of the numbers in ``tables``, one for each restart of the tables within a bulk.
        size_names: names of all sizes of a bulk. If "repeated" is among them, seeds must be distinct, and kernels lower it to the position of the
            first repeated seed. "start" and "unplaced" are used with ``tables``.
        seeds: seeds or items of the batches of the bulk, checked.
        launch: launch parameters of the bulk.
        num_batches: number of batches of the bulk, K.
        sizes: sizes (K,) int64 on the device, by name; before the work they are zero or as ``given``.
        given: initial values of sizes, by name, on the host.
        capacities: capacities of buffers without a bound, by the name of the size that receives the needed capacity.
        replays: captured bulks.
        brought: uploaded matrices on the device, by name, with a row for each batch.
        addresses: (4,) uint64 on the device for each of ``hops``: seed, epoch, number of the first batch, hop.
    """

    hops: Sequence[int]
    size_names: tuple[str, ...]
    restarts: tuple[str, ...] = ()
    seeds: list[Array]
    _requests_of_seed: Sequence[float] | None = None
    _stamps = False

    def __init__(self, workspace: Workspace) -> None:
        """Create empty buffers on the device of a workspace.

        Raises:
            InputError: CUDA cannot be used, or the kernel is unknown.
        """
        check_kernel(workspace.kernel)
        self.stream = workspace.stream
        self.thresholds = workspace.on_device.thresholds or THRESHOLDS
        self.kernel, self.placement, self._meeting = workspace.kernel, workspace.placement, workspace.meeting
        self.buffers = Buffers(self.stream, self.thresholds.block)
        self.dtype: np.dtype[Any] = np.dtype(np.int32)
        self.tables = StampedTables()
        self.capacities: dict[str, int] = {}
        self.replays = Replays(self.stream, workspace.cuda_graphs)

    @abstractmethod
    def begin(self, seeds: list[Array]) -> None:
        """Check and keep the seeds or items of a bulk; set ``given``, and a ``dtype`` that is wide enough."""

    @abstractmethod
    def uploads(self) -> dict[str, Upload]:
        """Return the arrays to copy to the device for the bulk, by their name in ``brought``."""

    @abstractmethod
    def queue(self) -> None:
        """Queue the kernels of the bulk, without uploads or synchronisation.

        The launches, and the attributes that this method sets, must depend only on K, ``dtype`` and the widths of the uploads; if anything else changes them,
        ``replays`` must be cleared.
        """

    def is_done(self) -> bool:
        """Return whether all sizes, now fetched to the host, fitted their buffers. If not, enlarge the buffers; the caller queues the bulk again."""
        needed = {size: int(self.host_size(size).max()) for size in self.capacities}
        grown = {size: number + (number >> 3) for size, number in needed.items() if number > self.capacities[size]}
        self.capacities |= grown
        is_unplaced = "unplaced" in self.size_names and bool(self.host_size("unplaced").any())
        if is_unplaced:
            self.tables.share //= 2
        if grown or is_unplaced:
            self.replays.clear()
        return not grown and not is_unplaced

    def capacity(self, size: str, guess: int) -> int:
        """Return the capacity of a buffer without a bound: ``guess``, or more if an earlier bulk needed more."""
        if self.capacities.get(size, -1) < guess:
            self.capacities[size] = guess
            self.replays.clear()
        return self.capacities[size]

    def learn_sizes(self) -> None:
        """Update the estimates for later bulks from the sizes of a finished bulk."""

    def learn_requests(self, numbers: Sequence[int], drawn: Iterable[tuple[int, GraphDraws, int, str]]) -> None:
        """Learn from the first bulk the number of requests per seed in each step, by which later bulks choose their schedules.

        Later bulks do not change the estimate, since a seed leads to about as many requests in any bulk, and a captured bulk keeps its schedules.

        Args:
            numbers: number of requests of each step.
            drawn: for each draw its step, its ``GraphDraws``, its fanout and its schedule.
        """
        if self._requests_of_seed is not None:
            return
        seeds = max(1, sum(len(some) for some in self.seeds))
        self._requests_of_seed = [number / seeds for number in numbers]
        for step, draws, fanout, schedule in drawn:
            draws.expected = self.expected(step)
            if self.kernel == "auto" and draws.schedule_for(0, fanout) != schedule:
                self.replays.clear()

    def expected(self, step: int) -> float | None:
        """Return the expected number of requests of a step of this bulk; None in the first bulk."""
        rates = self._requests_of_seed
        return None if rates is None else rates[step] * sum(len(some) for some in self.seeds)

    @abstractmethod
    def batches(self) -> Bulk[Batch]:
        """Return the mini-batches of the bulk without their addresses, as views of buffers."""

    def double_buffer(self) -> Self:
        """Return a second driver with the same copy of the graph and its own buffers, for double buffering."""
        other = copy(self)
        other.buffers, other.replays = Buffers(self.stream, self.thresholds.block), self.replays.double_buffer()
        other.tables, other.capacities = StampedTables(self.tables.share), dict(self.capacities)
        return other

    def start(
        self, seeds: Sequence[Array], *, seed: int, epoch: int, first_batch: int, further: Mapping[str, Upload] | None = None
    ) -> Callable[[], Bulk[Batch]]:
        """Queue a bulk without waiting for torch's stream; see ``Sampler.start_bulk``. The arrays ``further`` are uploaded too."""
        if len(seeds) > MAX_BATCHES:
            raise InputError(f"a bulk of {len(seeds):,} batches: a CUDA grid takes at most {MAX_BATCHES:,}; sample them in several calls")
        check_bulk_address(seed, epoch, first_batch, len(seeds))
        self.num_batches = len(seeds)
        self.launch = Launch(stream=self.stream.numba, thresholds=self.thresholds, num_batches=len(seeds))
        self.given: dict[str, Any] = {"repeated": NEVER} if "repeated" in self.size_names else {}
        self.begin([some if isinstance(some, Mapping) else np.asarray(some) for some in seeds])
        addresses = Upload([np.array([seed, epoch, first_batch, hop], np.uint64) for hop in self.hops], np.uint64)
        self._uploads = {"addresses": addresses, **(further or {}), **self.uploads()}
        try:
            self._queue()
        except BaseException:
            self.stream.synchronize()  # queued copies still read pinned memory, which the next bulk overwrites
            raise
        return partial(self._finish, seed, epoch, first_batch)

    def _queue(self) -> None:
        """Queue the bulk: by a single call if a bulk of its shape was captured and no buffer has moved."""
        shape = self.num_batches, self.dtype, *(own.width for own in self._uploads.values())
        replay = self.replays.of(shape, self._work)
        if replay is not None:
            self._fill_sizes()
            for name, own in self._uploads.items():
                self.buffers.fill(name, own.rows)
            replay()
            return
        version = self.buffers.version
        self._work()
        if self.buffers.version != version:
            self.replays.clear()
        self.replays.note(shape)

    def _work(self) -> None:
        """Queue the bulk launch by launch, with its uploads and the download of its sizes."""
        self.brought = {name: self.buffers.uploaded(name, *own, own.width) for name, own in self._uploads.items()}
        self.addresses = [self.brought["addresses"][row] for row in range(len(self.hops))]
        self._device_sizes = self.buffers.array("sizes", (len(self.size_names), self.num_batches), np.int64)
        self._host_sizes = self.buffers.pinned("sizes", self._device_sizes)
        self._fill_sizes()
        self._device_sizes.copy_to_device(self._host_sizes, stream=self.stream.numba)
        self.sizes = {name: self._device_sizes[row] for row, name in enumerate(self.size_names)}
        self.queue()
        self._fetch_sizes()

    def _fill_sizes(self) -> None:
        self._host_sizes[:] = 0
        for name, values in self.given.items():
            self.host_size(name)[:] = values

    def _finish(self, seed: int, epoch: int, first_batch: int) -> Bulk[Batch]:
        self.stream.synchronize()
        if "repeated" in self.size_names:
            for first, seeds in zip(self.host_size("repeated"), self.seeds, strict=True):
                if first < len(seeds):
                    raise seed_given_twice(seeds[first])
        while not self.is_done():
            if "start" in self.size_names:
                self.begin_tables(self.span())
            self._queue()
            self.stream.synchronize()
        self.learn_sizes()
        return self.batches().map(lambda b, batch: batch.at(Address(seed, epoch, first_batch + b)))

    def _fetch_sizes(self) -> None:
        """Queue the copy of the sizes to the host, which is complete after the stream is synchronised."""
        self._device_sizes.copy_to_host(self._host_sizes, stream=self.stream.numba)

    def host_size(self, name: str) -> Array:
        """Return the size ``name`` (K,) of the bulk's batches, which was fetched to the host."""
        return self._host_sizes[self.size_names.index(name), : self.num_batches]

    def matrix(self, name: str, width: int, dtype: DTypeLike, *, keep: bool = False) -> Any:
        """Return the buffer ``name`` (K, ``width``), or wider; with ``keep`` it keeps its contents if it grows during a bulk."""
        return self.buffers.array(name, (self.num_batches, width), dtype, keep=keep)

    def scan_into_buffer(
        self, size: str, guess: int, counts: Any, requests: int, bounds: tuple[Any, Any, Any], end: Any, counters: Any = None
    ) -> int:
        """Turn edge counts of requests whose sum has no bound into offsets, as ``exclusive_scan`` does. Return the capacity for edges.

        If the edges of any batch exceed the capacity, the whole bulk is treated as having no requests, and it will be queued again.

        Args:
            size: name of the size that receives the needed capacity.
            guess: initial capacity; see ``capacity``.
            counts: (K, N+1) number of edges of each request, replaced by offsets.
            requests: most requests of a batch.
            bounds: ``begin``, ``end`` and ``base`` of the scan.
            end: (K,) receives the end of the edges.
            counters: counters of requests that are already grouped.
        """
        capacity = self.capacity(size, guess)
        counters = self.sizes["zeros"] if counters is None else counters
        scan_into_buffer(self.launch, counts, requests, bounds, self.sums(requests), self.sizes[size], capacity, end, counters)
        return capacity

    def sums(self, items: int) -> Any:
        """Return the scratch buffer of a scan over ``items``."""
        return self.matrix("sums", -(-items // self.thresholds.block), np.int64)

    def table(self, name: str, capacity: int, dtype: DTypeLike) -> tuple[Any, Any]:
        """Return a relabelling table for ``capacity`` nodes of a batch, which is at most half full."""
        size = self._table_size(capacity)
        return self.matrix(f"{name}.keys", size, dtype), self.matrix(f"{name}.values", size, self.dtype)

    def _table_size(self, capacity: int) -> int:
        return 1 << (2 * max(1, capacity) - 1).bit_length()

    def span(self) -> int:
        """Return an upper bound, with the present capacities, of the numbers stored in the bulk's tables; by default the bound given to ``begin_tables``."""
        return self.tables.span

    def begin_tables(self, span: int) -> None:
        """Begin the use of ``tables`` for a bulk that stores numbers below ``span``. Set the sizes "start" and ``restarts`` to the start of each use."""
        names = "start", *self.restarts
        self._stamps = self.dtype == np.int32 and len(names) * span <= EMPTY
        if self._stamps:
            self.given |= dict(zip(names, self.tables.begin(self.launch, span, len(names)), strict=True))

    def stamped_table(
        self, name: str, capacity: int, num_graph_nodes: int, dtype: np.dtype[Any], trees: int | None = None, start: str = "start"
    ) -> StampedTable | None:
        """Return a relabelling table for ``capacity`` nodes of a batch. It is never cleared; the numbers in it begin with the size ``start``.

        It has an entry for every node of the graph, unless a hash table would be smaller or the tables of two batches would not fit the device's
        cache. Then it is a packed hash table, as large as was enough so far. With ``trees`` nodes are keys: a node id of 32 bits in one of that many
        trees, all with the same capacity. Returns None if numbers, or node ids in a packed table, need more than 32 bits.
        """
        if not self._stamps:
            return None
        first, tables = self.sizes[start], self.tables
        table_bytes = self._table_size(capacity) * (dtype.itemsize + self.dtype.itemsize)
        if trees is None and 4 * num_graph_nodes <= min(table_bytes, self.thresholds.cache_bytes // 2):
            return StampedTable(first, tables.entries(self.buffers, self.launch, f"{name}.entries", num_graph_nodes))
        if trees is None and dtype != np.int32:
            return None
        parts = trees or 1
        size = self._table_size(-(-capacity // (tables.share * parts)))
        entries = tables.entries(self.buffers, self.launch, f"{name}.words", 2 * size * parts)
        if trees is None:
            size = entries.shape[1] // 2  # the actual size, since an earlier bulk may have enlarged the table
        most_probes = FEW_PROBES if tables.share > 1 else size
        words = PackedFields(entries.view(np.int64), size.bit_length() - 1, tables.span, most_probes, self.sizes["unplaced"])
        return StampedTable(first, entries, words)

    def relabel_scratch(self, width: int) -> tuple[Any, Any, Any]:
        """Return scratch buffers for relabelling up to ``width`` edges of a batch."""
        return self.matrix("slots", width, self.dtype), self.matrix("ranks", width + 1, self.dtype), self.sums(width)

    def to_device(self, array: Array, what: str) -> Any:
        """Return a copy of a host array that kernels can read. An empty array becomes one zero; ``what`` names it in messages."""
        array = _not_empty(array)
        return to_device(array, choose_placement(self.placement, array.nbytes, what), self.stream, what, self._meeting)

    def place_graph(self, graph: RelationColumns, tables: AliasTables = NO_TABLES) -> DeviceGraph:
        """Return a copy of a graph and its alias tables that kernels can read."""
        of_tables = {"threshold": _not_empty(tables.threshold), "alias": _not_empty(tables.alias)}
        return DeviceGraph({"indptr": graph.indptr, "indices": graph.indices, **of_tables}, self.placement, self.stream, self._meeting)


def _not_empty(array: Array) -> Array:
    return array if array.size else np.zeros(1, array.dtype)
