"""What all that samples on a CUDA device shares: a bulk of mini-batches at once, bit for bit those of the CPU.

K batches, batch-major matrices. The host launches for sizes that it does not know: either they have a bound, or there is as much room as was
enough so far. Kernels count on beyond a room, and write nothing there. The true sizes stay on the device until the bulk is done; if one says then
that there was too little room, it grows and the bulk is queued again. Rooms only grow, so that happens in the first bulks, and hardly ever later.

So nothing is read back in mid-bulk, and what the host does for a bulk follows from its shape: the second bulk of a shape is captured in a CUDA graph,
and later ones are one call each (``replays``).
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
from hoptrain.kernels.cuda.scan import scan_into_room
from hoptrain.kernels.cuda.stamped import EMPTY, FEW_PROBES, Table, Words
from hoptrain.kernels.cuda.thresholds import THRESHOLDS
from hoptrain.samplers.batch.minibatch import HeteroMiniBatch, MiniBatch
from hoptrain.samplers.buffers.alias import NO_TABLES, AliasTables
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_bulk_address, seed_given_twice
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.cost_model import check_kernel
from hoptrain.samplers.cuda.draws import GraphDraws
from hoptrain.samplers.cuda.edges import rounded_up
from hoptrain.samplers.cuda.replays import Replays
from hoptrain.samplers.cuda.tables import StampedTables

Batch = TypeVar("Batch", MiniBatch, HeteroMiniBatch)

NEVER = np.iinfo(np.int64).max
"""A place that there is not, from which a size falls to the first that something is wrong with."""


FEW_EDGES = 4
"""Of a node, where nothing bounds them: for so many there is room at first. If they are more, the first bulk tells."""


class Upload(NamedTuple):
    """What the host brings to the device for a bulk under one name."""

    rows: Sequence[Array]
    dtype: DTypeLike
    """There."""

    @property
    def width(self) -> int:
        """See ``longest``."""
        return longest(self.rows)


def longest(rows: Sequence[Array]) -> int:
    """The length of the longest row, rounded up, lest every bulk have a shape of its own."""
    return rounded_up(max(map(len, rows)))


class DeviceSampler(ABC, Generic[Batch]):
    """Samples one graph by one sampler, one bulk at a time.

    Attributes:
        buffers: device arrays by name.
        tables: those among them that are never cleared.
        dtype: of offsets, local ids and places in tables; it grows with the bulks and stays, as the buffers do.
        hops: numbers of the hops whose random words are drawn.
        restarts: names of sizes: what numbers in ``tables`` begin with where they begin anew in the middle of a bulk, one for each time.
        size_names: of all sizes that come up in a bulk. With "repeated" the seeds are distinct, and it falls to the place of the first that is not. With
            "start" and "unplaced" there are ``tables``.
        seeds: what the batches of the bulk are asked for by, checked.
        launch: of the bulk.
        num_batches: K, of the bulk.
        sizes: rows (K,) int64 on the device, by name: zero, or as ``given``, before the work.
        given: host values of sizes, by name.
        rooms: for what nothing bounds there is so much room, by the name of the size that tells what is needed.
        replays: the bulks that were captured.
        brought: matrices on the device, by name, whose rows begin with those of the uploads.
        addresses: (4,) uint64 on the device for each of ``hops``: seed, epoch, number of the first batch, hop.
    """

    hops: Sequence[int]
    size_names: tuple[str, ...]
    restarts: tuple[str, ...] = ()
    seeds: list[Array]
    _requests_of_seed: Sequence[float] | None = None
    _stamps = False

    def __init__(self, workspace: Workspace) -> None:
        """Start without a graph.

        Raises:
            InputError: CUDA cannot be used, or an unknown kernel.
        """
        check_kernel(workspace.kernel)
        self.stream = workspace.stream
        self.thresholds = workspace.on_device.thresholds or THRESHOLDS
        self.kernel, self.placement, self._meeting = workspace.kernel, workspace.placement, workspace.meeting
        self.buffers = Buffers(self.stream, self.thresholds.block)
        self.dtype: np.dtype[Any] = np.dtype(np.int32)
        self.tables = StampedTables()
        self.rooms: dict[str, int] = {}
        self.replays = Replays(self.stream, workspace.cuda_graphs)

    @abstractmethod
    def begin(self, seeds: list[Array]) -> None:
        """Check the seeds or items and keep them; state ``given`` and a ``dtype`` that holds what comes up."""

    @abstractmethod
    def uploads(self) -> dict[str, Upload]:
        """What ``queue`` finds in ``brought``, by name."""

    @abstractmethod
    def queue(self) -> None:
        """Queue the work of the bulk. What it does, and what it leaves behind on the host, follows from K, ``dtype`` and the uploads' widths.

        Where it does not, ``replays`` have to be cleared. It neither uploads nor waits.
        """

    def is_done(self) -> bool:
        """Whether there was room for all, so that the bulk can be handed out; else there is more, and it is queued again. The sizes are on the host."""
        needed = {size: int(self.host_size(size).max()) for size in self.rooms}
        grown = {size: number + (number >> 3) for size, number in needed.items() if number > self.rooms[size]}
        self.rooms |= grown
        is_unplaced = "unplaced" in self.size_names and bool(self.host_size("unplaced").any())
        if is_unplaced:
            self.tables.share //= 2
        if grown or is_unplaced:
            self.replays.clear()
        return not grown and not is_unplaced

    def room(self, size: str, guess: int) -> int:
        """Room for what nothing bounds: ``guess``, or more if a bulk has asked for more or needed it."""
        if self.rooms.get(size, -1) < guess:
            self.rooms[size] = guess
            self.replays.clear()
        return self.rooms[size]

    def learn_sizes(self) -> None:
        """Take what the sizes of a bulk that is done tell about the next ones."""

    def learn_requests(self, numbers: Sequence[int], drawn: Iterable[tuple[int, GraphDraws, int, str]]) -> None:
        """Take from the first bulk how many requests each step had; ``drawn``: steps, what drew, the fanout and the schedule.

        A seed hardly leads to more or fewer in another bulk, and one that is captured keeps its schedules.
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
        """Requests of a step of this bulk, if one before has told."""
        rates = self._requests_of_seed
        return None if rates is None else rates[step] * sum(len(some) for some in self.seeds)

    @abstractmethod
    def batches(self) -> Bulk[Batch]:
        """The mini-batches, views of buffers, without their addresses."""

    def twin(self) -> Self:
        """Another one with buffers of its own, which reads the same copies of the graph: its bulks and these are not in each other's way."""
        other = copy(self)
        other.buffers, other.replays = Buffers(self.stream, self.thresholds.block), self.replays.twin()
        other.tables, other.rooms = StampedTables(self.tables.share), dict(self.rooms)
        return other

    def start(
        self, seeds: Sequence[Array], *, seed: int, epoch: int, first_batch: int, beside: Mapping[str, Upload] | None = None
    ) -> Callable[[], Bulk[Batch]]:
        """Queue a bulk without regard for what torch has queued; see ``Sampler.start_bulk``. What is given ``beside`` is ``brought`` as well."""
        if len(seeds) > MAX_BATCHES:
            raise InputError(f"a bulk of {len(seeds):,} batches: a grid has room for {MAX_BATCHES:,}; sample them in several calls")
        check_bulk_address(seed, epoch, first_batch, len(seeds))
        self.num_batches = len(seeds)
        self.launch = Launch(stream=self.stream.numba, thresholds=self.thresholds, num_batches=len(seeds))
        self.given: dict[str, Any] = {"repeated": NEVER} if "repeated" in self.size_names else {}
        self.begin([some if isinstance(some, Mapping) else np.asarray(some) for some in seeds])
        addresses = Upload([np.array([seed, epoch, first_batch, hop], np.uint64) for hop in self.hops], np.uint64)
        self._uploads = {"addresses": addresses, **(beside or {}), **self.uploads()}
        try:
            self._queue()
        except BaseException:
            self.stream.synchronize()  # copies that are queued read pinned memory, which the next bulk writes
            raise
        return partial(self._finish, seed, epoch, first_batch)

    def _queue(self) -> None:
        """Queue the bulk: by one call if there were some of its shape and all is where it was."""
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
        """Queue the bulk, one thing after the other."""
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
        """Have the sizes copied to the host; they are there once the stream is done."""
        self._device_sizes.copy_to_host(self._host_sizes, stream=self.stream.numba)

    def host_size(self, name: str) -> Array:
        """(K,) the size as it was fetched."""
        return self._host_sizes[self.size_names.index(name), : self.num_batches]

    def matrix(self, name: str, width: int, dtype: DTypeLike, *, keep: bool = False) -> Any:
        """A buffer (K, ``width``), or larger; with ``keep`` its contents stay when it grows in the middle of a bulk."""
        return self.buffers.array(name, (self.num_batches, width), dtype, keep=keep)

    def scan_into_room(
        self, size: str, guess: int, counts: Any, requests: int, bounds: tuple[Any, Any, Any], end: Any, counters: Any = None
    ) -> int:
        """As ``exclusive_scan`` of the edges that each request gives, where nothing bounds their number; returns where they end at most.

        If they end beyond that in any batch, none of the bulk has requests, and the bulk will be queued again.

        Args:
            size: says in the end what was needed.
            guess: as of ``room``.
            counts: (K, N+1).
            requests: the most of a batch.
            bounds: ``begin``, ``end`` and ``base`` of the scan.
            end: (K,) receives where the edges end.
            counters: of requests that are grouped already.
        """
        room = self.room(size, guess)
        counters = self.sizes["zeros"] if counters is None else counters
        scan_into_room(self.launch, counts, requests, bounds, self.sums(requests), self.sizes[size], room, end, counters)
        return room

    def sums(self, items: int) -> Any:
        """Scratch of a scan."""
        return self.matrix("sums", -(-items // self.thresholds.block), np.int64)

    def table(self, name: str, room: int, dtype: DTypeLike) -> tuple[Any, Any]:
        """A relabelling table for ``room`` nodes of a batch, at most half full."""
        size = self._table_size(room)
        return self.matrix(f"{name}.keys", size, dtype), self.matrix(f"{name}.values", size, self.dtype)

    def _table_size(self, room: int) -> int:
        return 1 << (2 * max(1, room) - 1).bit_length()

    def span(self) -> int:
        """Above all numbers in stamped tables of the bulk, with the rooms that there are; by default as it began."""
        return self.tables.span

    def begin_tables(self, span: int) -> None:
        """Let the numbers in stamped tables, which are below ``span``, begin where the size "start" says, and then where ``restarts`` do."""
        names = "start", *self.restarts
        self._stamps = self.dtype == np.int32 and len(names) * span <= EMPTY
        if self._stamps:
            self.given |= dict(zip(names, self.tables.begin(self.launch, span, len(names)), strict=True))

    def stamped_table(
        self, name: str, room: int, num_graph_nodes: int, dtype: np.dtype[Any], trees: int | None = None, start: str = "start"
    ) -> Table | None:
        """A table for ``room`` nodes of a batch that is not cleared; its numbers begin with the size ``start``.

        It has an entry for every node, unless a hash table would be smaller or the tables of two batches would not fit the device's cache. Then
        it is packed, as large as was enough so far. With ``trees`` nodes are keys, a node of 32 bits in one of so many, all with the same room. None if
        numbers, or nodes in a packed one, need more than 32 bits.
        """
        if not self._stamps:
            return None
        first, tables = self.sizes[start], self.tables
        of_room = self._table_size(room) * (dtype.itemsize + self.dtype.itemsize)
        if trees is None and 4 * num_graph_nodes <= min(of_room, self.thresholds.cache_bytes // 2):
            return Table(first, tables.entries(self.buffers, self.launch, f"{name}.entries", num_graph_nodes))
        if trees is None and dtype != np.int32:
            return None
        parts = trees or 1
        size = self._table_size(-(-room // (tables.share * parts)))
        entries = tables.entries(self.buffers, self.launch, f"{name}.words", 2 * size * parts)
        if trees is None:
            size = entries.shape[1] // 2  # of an earlier bulk, or as asked for
        most_probes = FEW_PROBES if tables.share > 1 else size
        words = Words(entries.view(np.int64), size.bit_length() - 1, tables.span, most_probes, self.sizes["unplaced"])
        return Table(first, entries, words)

    def relabel_scratch(self, width: int) -> tuple[Any, Any, Any]:
        """Scratch for relabelling up to ``width`` edges of a batch."""
        return self.matrix("slots", width, self.dtype), self.matrix("ranks", width + 1, self.dtype), self.sums(width)

    def to_device(self, array: Array, what: str) -> Any:
        """A copy of a host array that kernels can read, never empty."""
        array = _not_empty(array)
        return to_device(array, choose_placement(self.placement, array.nbytes, what), self.stream, what, self._meeting)

    def place_graph(self, graph: RelationColumns, tables: AliasTables = NO_TABLES) -> DeviceGraph:
        """A copy of a graph and its alias tables that kernels can read."""
        of_tables = {"threshold": _not_empty(tables.threshold), "alias": _not_empty(tables.alias)}
        return DeviceGraph({"indptr": graph.indptr, "indices": graph.indices, **of_tables}, self.placement, self.stream, self._meeting)


def _not_empty(array: Array) -> Array:
    return array if array.size else np.zeros(1, array.dtype)
