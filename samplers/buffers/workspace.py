"""``Workspace``, the buffers that a sampler uses again for every batch, its threads, relabelling tables and device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.device import default_gpu, is_simulated
from hoptrain.kernels.cpu import relabel as kernels
from hoptrain.kernels.cpu.nodewise.neighbor import HopScratch

if TYPE_CHECKING:
    from hoptrain.engine.gpu_memory.device_stream import DeviceStream
    from hoptrain.engine.gpu_memory.meeting import Meeting
    from hoptrain.engine.gpu_memory.staging import Staging
    from hoptrain.kernels.cuda.thresholds import Thresholds

DEVICES = ("cpu", "cuda")

DIRECT_TABLE_BYTES = 512 << 20
"""Maximum bytes of a relabelling table with an entry for every node of the graph. Every thread and worker has its own table. Such a table was faster than
a hash table at all tested sizes (2 to 111 million nodes: 5 to 7 ns vs. 13 ns per edge), so the limit serves only to bound memory."""


class Workspace:
    """A set of reusable buffers, threads and relabelling tables for a sampler, or a GPU with a copy of the graph.

    Buffers have names, grow to the largest requested size and keep it. The arrays that a sampler returns are views of its workspace, valid until
    the next call with the same workspace. A workspace serves one call at a time.

    Attributes:
        threads: number of threads of a call. Each samples whole batches of a bulk; a single batch is divided among them.
        device: "cpu" or "cuda".
        kernel: schedule on CUDA, "sample" or "transit"; "auto" lets the cost model choose for each hop.
        placement: memory of the graph on CUDA: "device" memory or "pinned" host memory; "auto" takes device memory while there is free space.
        gpu: number of the GPU; None for torch's current one, or that of the local rank (``hoptrain.engine.device.default_gpu``).
        cuda_graphs: on CUDA, queue a bulk by a single call, a CUDA graph, if one of the same shape was sampled before.
        meeting: communication of ranks that share arrays in pinned host memory with the ranks of their machine; None if each has its own.
        on_device: state that ``hoptrain.samplers.cuda`` keeps on the device between calls.
        scratch: buffers of a hop's kernels, by the number of draws of a destination and whether these are by weight.

    Examples:
        >>> from hoptrain import NeighborSampler, Workspace, load_dataset
        >>> graph, sampler, workspace = load_dataset("digits-knn").graph, NeighborSampler([5, 5]), Workspace(threads=2)
        >>> for number in range(2):
        ...     batch = sampler.sample(graph, range(100), batch=number, workspace=workspace)  # valid until the next call
        ...     print(len(batch.node_ids))
        977
        990
    """

    def __init__(
        self,
        threads: int = 1,
        device: str = "cpu",
        kernel: str = "auto",
        placement: str = "auto",
        gpu: int | None = None,
        cuda_graphs: bool = True,
    ) -> None:
        """Check and keep the options; buffers are allocated when they are needed.

        Raises:
            InputError: ``threads`` is below 1, the device is unknown, or an option does not apply to the device.
        """
        if threads < 1:
            raise InputError(f"threads is {threads}: a call needs at least one thread; give 1 or more")
        if device not in DEVICES:
            raise InputError(
                f'device is {device!r}: a sampler runs on "cpu" or "cuda", in a loader also on one GPU by its number, as "cuda:1"; choose one'
            )
        if device == "cpu" and (kernel, placement, gpu, cuda_graphs) != ("auto", "auto", None, True):
            raise InputError(
                f'kernel={kernel!r}, placement={placement!r}, gpu={gpu} and cuda_graphs={cuda_graphs} on the CPU: they are for device="cuda"; leave them out'
            )
        if device == "cuda" and threads > 1:
            raise InputError(f"threads={threads} on CUDA: one thread launches the kernels; leave it out")
        self.threads = threads
        self.device = device
        self.kernel = kernel
        self.placement = placement
        self.gpu = gpu
        self.cuda_graphs = cuda_graphs
        self.meeting: Meeting | None = None
        self.on_device: OnDevice = OnDevice()
        self._stream: DeviceStream | None = None
        self._staging: Staging | None = None
        self.table: RelabelTable = RelabelTable()
        self.scratch: dict[tuple[int, bool], HopScratch] = {}
        self._tables: dict[str, RelabelTable] = {}
        self._arrays: dict[str, Array] = {}
        self._parts: list[Workspace] = []
        self._resting: tuple[dict[str, Array], list[Workspace]] = {}, []
        self._thread_tables = [(RelabelTable(), dict[str, RelabelTable]()) for _ in range(threads)]
        self._executor: ThreadPoolExecutor | None = None
        self._executor_pid = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # Passes the current GPU of this process to a worker, in which torch does not know it.
        is_open = self.device == "cuda" and self.gpu is None and not is_simulated()
        gpu = default_gpu() if is_open else self.gpu
        return Workspace, (self.threads, self.device, self.kernel, self.placement, gpu, self.cuda_graphs)

    @property
    def stream(self) -> DeviceStream:
        """CUDA stream of all work with this workspace.

        Raises:
            InputError: CUDA cannot be used.
        """
        if self._stream is None:
            from hoptrain.engine.gpu_memory.device_stream import DeviceStream

            self._stream = DeviceStream(self.gpu)
        return self._stream

    @property
    def staging(self) -> Staging:
        """Buffers that copy a mini-batch from the device to the host."""
        if self._staging is None:
            from hoptrain.engine.gpu_memory.staging import Staging

            self._staging = Staging(self.stream)
        return self._staging

    def twin(self) -> Workspace:
        """Return a second CUDA workspace with the same stream and the same copy of the graph, for double buffering of two bulks."""
        other: Workspace = self.__reduce__()[0](*self.__reduce__()[1])
        other._stream, own = self.stream, self.on_device
        other.on_device = OnDevice(own.thresholds, own.driver and own.driver.double_buffer(), own.made_for)
        return other

    def array(self, name: str, size: int, dtype: DTypeLike, *, keep: int = 0) -> Array:
        """Return the buffer ``name`` as an array (size,) whose first ``keep`` entries are kept; the others are undefined."""
        old = self._arrays.get(name)
        if old is None or len(old) < size or old.dtype != dtype:
            new = np.empty(size if old is None else max(size, len(old) * 5 // 4), dtype)
            if old is not None and keep:
                new[:keep] = old[:keep]
            self._arrays[name] = old = new
        return old[:size]

    def table_of(self, name: str) -> RelabelTable:
        """Return the relabelling table ``name``, for batches with several node types; the attribute ``table`` is the table of a homogeneous graph."""
        return self._tables.setdefault(name, RelabelTable())

    def take_turns(self) -> None:
        """Swap the buffers with a second set, so that the arrays of the last call stay valid for one more call. Tables are not swapped."""
        (self._arrays, self._parts), self._resting = self._resting, (self._arrays, self._parts)

    def part(self, i: int, thread: int | None = None) -> Workspace:
        """Return the workspace of batch ``i`` of a bulk, which has the relabelling tables of ``thread``, by default of thread ``i % threads``."""
        while len(self._parts) <= i:
            self._parts.append(Workspace())
        part = self._parts[i]
        part.table, part._tables = self._thread_tables[(i if thread is None else thread) % self.threads]
        return part

    def run(self, functions: Iterable[Callable[[], None]]) -> None:
        """Run the functions in parallel, the first in this thread. An exception of any of them is raised here after all have ended."""
        mine, *others = functions
        self.start(others, mine)()

    def start(self, functions: Iterable[Callable[[], None]], mine: Callable[[], None]) -> Callable[[], None]:
        """Run ``functions`` in the other threads. Return a function that runs ``mine`` in this thread and waits for them, as ``run`` does."""
        others = list(functions)
        if others and self._executor_pid != os.getpid():  # threads do not survive a fork
            self._executor = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="hoptrain-sampler")
            self._executor_pid = os.getpid()
        futures = [self._executor.submit(function) for function in others] if self._executor else []

        def finish() -> None:
            try:
                mine()
            finally:
                errors = [future.exception() for future in futures]
            for error in errors:
                if error is not None:
                    raise error

        return finish


class Driver(Protocol):
    """The interface of a sampler's implementation on a CUDA device; see ``hoptrain.samplers.cuda.drivers``."""

    def start(self, *seeds: Any, **options: Any) -> Callable[[], Any]:
        """Queue a bulk and return a function that waits for its batches; see ``Sampler.start_bulk``."""

    def double_buffer(self) -> Driver:
        """Return a second driver with the same copy of the graph and its own buffers, for double buffering."""


@dataclass(eq=False, slots=True)
class OnDevice:
    """The state of a workspace on a CUDA device.

    Attributes:
        thresholds: constants that affect only speed; None for ``hoptrain.kernels.cuda.thresholds.THRESHOLDS``.
        driver: driver of the last call, which holds the graph and buffers on the device.
        made_for: graph and samplers for which the driver was created.
    """

    thresholds: Thresholds | None = None
    driver: Driver | None = None
    made_for: tuple[object, ...] = ()


class RelabelTable:
    """A table that maps global to local node ids; see ``hoptrain.kernels.cpu.relabel``.

    Its entries have a stamp for each mini-batch, so it is cleared only after 2**(32 - bits of a local id) - 1 mini-batches.
    """

    def __init__(self, direct_bytes: int | None = None) -> None:
        """Create an empty table, whose memory is allocated by ``start``.

        Args:
            direct_bytes: largest size in bytes at which the table has an entry for each node of the graph; beyond it the table is a hash table of
                the nodes of a batch. By default ``DIRECT_TABLE_BYTES``.
        """
        self._direct_bytes = direct_bytes
        self._num_graph_nodes = 0
        self._entries = np.zeros(0, np.uint32)
        self._slot_bits = 0
        self._id_bits = 1
        self._stamp = 0

    def start(self, num_graph_nodes: int, capacity: int) -> None:
        """Begin a mini-batch of at most ``capacity`` nodes (more after ``reserve``) from a graph of ``num_graph_nodes`` nodes."""
        self._num_graph_nodes = num_graph_nodes
        self._fit(capacity)
        self._stamp += 1
        if self._stamp >= 1 << (32 - self._id_bits):
            self._entries[:] = 0
            self._stamp = 1

    def _fit(self, capacity: int) -> bool:
        """Make the table large enough for ``capacity`` nodes. Return whether the table was replaced by a larger, empty one."""
        most = DIRECT_TABLE_BYTES if self._direct_bytes is None else self._direct_bytes
        is_direct = self._num_graph_nodes * self._entries.itemsize <= most
        slot_bits = 0 if is_direct else max(self._slot_bits, _hash_bits(capacity))
        size = self._num_graph_nodes if is_direct else 1 << slot_bits
        id_bits = max(self._id_bits, (capacity - 1).bit_length())
        if size <= len(self._entries) and (slot_bits, id_bits) == (self._slot_bits, self._id_bits):
            return False
        self._entries = np.zeros(max(size, len(self._entries)), np.uint32)
        self._slot_bits, self._id_bits, self._stamp = slot_bits, id_bits, 0
        return True

    def enter(self, nodes: Array, num_nodes: int) -> int:
        """Enter the first ``num_nodes`` nodes of a mini-batch; return the position of a repeated node, or -1 if all are distinct."""
        again: int = kernels.enter(nodes, num_nodes, self.view())
        return again

    def reserve(self, nodes: Array, num_nodes: int, capacity: int) -> None:
        """Make the table large enough for ``capacity`` nodes; the first ``num_nodes`` of ``nodes`` stay entered."""
        if self._fit(capacity):
            self._stamp = 1
            self.enter(nodes, num_nodes)

    def view(self) -> kernels.RelabelView:
        """Return the table as the kernels take it."""
        return kernels.RelabelView(self._entries, self._slot_bits, self._id_bits, np.uint32(self._stamp << self._id_bits))


def _hash_bits(capacity: int) -> int:
    """Return the bits of a hash table that is at most two thirds full with ``capacity`` nodes."""
    return max(4, (capacity + capacity // 2).bit_length())
