"""What a sampler works with: scratch memory that is used again for every batch, and threads."""

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
from hoptrain.kernels.cpu.nodewise.neighbor import Scratch

if TYPE_CHECKING:
    from hoptrain.engine.gpu_memory.device_stream import DeviceStream
    from hoptrain.engine.gpu_memory.meeting import Meeting
    from hoptrain.engine.gpu_memory.staging import Staging
    from hoptrain.kernels.cuda.thresholds import Thresholds

DEVICES = ("cpu", "cuda")

DIRECT_TABLE_BYTES = 512 << 20
"""Largest relabelling table with an entry for every node; every thread and worker has its own. It is faster than a hash table at any size
that was tried (2 to 111 million nodes: 5 to 7 ns an edge against 13), so this limits memory only."""


class Workspace:
    """Arrays by name that grow to the largest size asked for and then stay; threads; a relabelling table; or a device with a graph on it.

    What a sampler returns from a workspace are views of it, good until the next call with the same one. A workspace serves one call at a
    time.

    Attributes:
        threads: threads that a call uses. Batches of a bulk go to different ones; for a single batch they share its hops.
        device: "cpu" or "cuda".
        kernel: on CUDA the schedule, "sample" or "transit"; "auto" lets the cost model choose for each hop.
        placement: on CUDA the graph's place, "device" memory or "pinned" host memory; "auto" takes device memory while it is free.
        gpu: on CUDA the device's number; None for torch's current one, or that of the local rank (``hoptrain.engine.device.default_gpu``).
        cuda_graphs: on CUDA whether a bulk of a shape that there was before is queued by one call, a CUDA graph.
        meeting: on CUDA of the ranks that share what lies in host memory with those of their machine; None where each has its own.
        on_device: on CUDA what ``hoptrain.samplers.cuda`` keeps there between calls.
        scratch: memory for a chunk of a hop, by the draws of a destination and whether they are by weight.

    Examples:
        >>> from hoptrain import NeighborSampler, Workspace, load_dataset
        >>> graph, sampler, workspace = load_dataset("digits-knn").graph, NeighborSampler([5, 5]), Workspace(threads=2)
        >>> for number in range(2):
        ...     batch = sampler.sample(graph, range(100), batch=number, workspace=workspace)  # good until the next one
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
        """Start empty.

        Raises:
            InputError: no thread, an unknown device, or an option that the device has not.
        """
        if threads < 1:
            raise InputError(f"threads is {threads}: a call needs at least one; correct it")
        if device not in DEVICES:
            raise InputError(
                f'device is {device!r}: a sampler runs on "cpu" or "cuda", in a loader also on one GPU by its number, as "cuda:1"; choose one'
            )
        if device == "cpu" and (kernel, placement, gpu, cuda_graphs) != ("auto", "auto", None, True):
            raise InputError(
                f'kernel={kernel!r}, placement={placement!r}, gpu={gpu} and capture={cuda_graphs} on the CPU: they are for device="cuda"; leave them out'
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
        self.scratch: dict[tuple[int, bool], Scratch] = {}
        self._tables: dict[str, RelabelTable] = {}
        self._arrays: dict[str, Array] = {}
        self._parts: list[Workspace] = []
        self._resting: tuple[dict[str, Array], list[Workspace]] = {}, []
        self._thread_tables = [(RelabelTable(), dict[str, RelabelTable]()) for _ in range(threads)]
        self._executor: ThreadPoolExecutor | None = None
        self._executor_pid = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker is told the GPU of the process that starts it, which torch knows there and not in the worker.
        is_open = self.device == "cuda" and self.gpu is None and not is_simulated()
        gpu = default_gpu() if is_open else self.gpu
        return Workspace, (self.threads, self.device, self.kernel, self.placement, gpu, self.cuda_graphs)

    @property
    def stream(self) -> DeviceStream:
        """On CUDA the stream of all that is done with this workspace.

        Raises:
            InputError: CUDA cannot be used.
        """
        if self._stream is None:
            from hoptrain.engine.gpu_memory.device_stream import DeviceStream

            self._stream = DeviceStream(self.gpu)
        return self._stream

    @property
    def staging(self) -> Staging:
        """On CUDA what brings a mini-batch to the host."""
        if self._staging is None:
            from hoptrain.engine.gpu_memory.staging import Staging

            self._staging = Staging(self.stream)
        return self._staging

    def twin(self) -> Workspace:
        """On CUDA another workspace on the same stream, which reads the same copies of the graph: so two bulks are good at a time."""
        other: Workspace = self.__reduce__()[0](*self.__reduce__()[1])
        other._stream, own = self.stream, self.on_device
        other.on_device = OnDevice(own.thresholds, own.driver and own.driver.twin(), own.made_for)
        return other

    def array(self, name: str, size: int, dtype: DTypeLike, *, keep: int = 0) -> Array:
        """An array (size,) of undefined contents; the first ``keep`` entries are those it had before."""
        old = self._arrays.get(name)
        if old is None or len(old) < size or old.dtype != dtype:
            new = np.empty(size if old is None else max(size, len(old) * 5 // 4), dtype)
            if old is not None and keep:
                new[:keep] = old[:keep]
            self._arrays[name] = old = new
        return old[:size]

    def table_of(self, name: str) -> RelabelTable:
        """A relabelling table besides ``table``, for a batch with several spaces of ids; the same one for the same name."""
        return self._tables.setdefault(name, RelabelTable())

    def take_turns(self) -> None:
        """Go on with other arrays, in turn with these: what the last call returned is good until the next call but one. Tables stay the same."""
        (self._arrays, self._parts), self._resting = self._resting, (self._arrays, self._parts)

    def part(self, i: int, thread: int | None = None) -> Workspace:
        """The workspace of batch ``i`` of a bulk. Its tables are those of the thread that makes the batch; without one, of thread ``i % threads``."""
        while len(self._parts) <= i:
            self._parts.append(Workspace())
        part = self._parts[i]
        part.table, part._tables = self._thread_tables[(i if thread is None else thread) % self.threads]
        return part

    def run(self, functions: Iterable[Callable[[], None]]) -> None:
        """Run the functions at the same time, one in this thread; an exception in any of them is raised here, after all have ended."""
        mine, *others = functions
        self.start(others, mine)()

    def start(self, functions: Iterable[Callable[[], None]], mine: Callable[[], None]) -> Callable[[], None]:
        """Run ``functions`` in the other threads; what is returned runs ``mine`` in this one and waits for them, as ``run``."""
        others = list(functions)
        if others and self._executor_pid != os.getpid():  # a fork has none of its parent's threads
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
    """What samples on a device in place of a sampler; see ``hoptrain.samplers.cuda.drivers``."""

    def start(self, *seeds: Any, **options: Any) -> Callable[[], Any]:
        """Queue a bulk; see ``Sampler.start_bulk``."""

    def twin(self) -> Driver:
        """Another one that reads the same copies of the graph, and whose bulks are in buffers of their own."""


@dataclass(eq=False, slots=True)
class OnDevice:
    """What a workspace keeps on CUDA.

    Attributes:
        thresholds: what decides about speed; None for ``hoptrain.kernels.cuda.thresholds.THRESHOLDS``.
        driver: what sampled last: it has the graph and buffers.
        made_for: the graph and the samplers that the driver was made for.
    """

    thresholds: Thresholds | None = None
    driver: Driver | None = None
    made_for: tuple[object, ...] = ()


class RelabelTable:
    """The table that turns global ids into local ones; see ``hoptrain.kernels.cpu.relabel``.

    It is cleared only when its stamps run out: after 2**(32 - bits of a local id) - 1 mini-batches.
    """

    def __init__(self, direct_bytes: int | None = None) -> None:
        """Start without memory.

        Args:
            direct_bytes: bytes up to which the table has an entry for each node of the graph; a larger one is a hash table of a batch's nodes. By default
                ``DIRECT_TABLE_BYTES``.
        """
        self._direct_bytes = direct_bytes
        self._num_graph_nodes = 0
        self._entries = np.zeros(0, np.uint32)
        self._slot_bits = 0
        self._id_bits = 1
        self._stamp = 0

    def start(self, num_graph_nodes: int, capacity: int) -> None:
        """Begin a mini-batch of at most ``capacity`` nodes (more after ``reserve``) from a graph of ``num_graph_nodes``."""
        self._num_graph_nodes = num_graph_nodes
        self._fit(capacity)
        self._stamp += 1
        if self._stamp >= 1 << (32 - self._id_bits):
            self._entries[:] = 0
            self._stamp = 1

    def _fit(self, capacity: int) -> bool:
        """Make the table large enough for ``capacity`` nodes; True if that emptied it."""
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
        """Enter the first nodes of a mini-batch; returns the place of one that stands there twice, or -1."""
        again: int = kernels.enter(nodes, num_nodes, self.view())
        return again

    def reserve(self, nodes: Array, num_nodes: int, capacity: int) -> None:
        """Make room for ``capacity`` nodes; the first ``num_nodes`` of ``nodes`` are entered already and stay so."""
        if self._fit(capacity):
            self._stamp = 1
            self.enter(nodes, num_nodes)

    def view(self) -> kernels.Table:
        """What the kernels take."""
        return kernels.Table(self._entries, self._slot_bits, self._id_bits, np.uint32(self._stamp << self._id_bits))


def _hash_bits(capacity: int) -> int:
    """At most two thirds full."""
    return max(4, (capacity + capacity // 2).bit_length())
