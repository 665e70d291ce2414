"""A graph, or a table of features, where a CUDA device reads it: in its own memory, or in pinned host memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.device import PLACEMENTS
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.gpu_memory.device_stream import DeviceStream, to_host
from hoptrain.engine.gpu_memory.hot_rows import slots_of
from hoptrain.engine.gpu_memory.meeting import Meeting
from hoptrain.engine.gpu_memory.one_copy import one_copy
from hoptrain.kernels.cuda import native
from hoptrain.kernels.cuda.gather import count_placed, gather, word_dtype
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.native.gather import placed_gather
from hoptrain.kernels.cuda.thresholds import THRESHOLDS, Thresholds

_FREE_SHARE = 0.7
"""Part of the free device memory that graph and features may fill: the rest is for batches, the model and its activations."""
_COUNTING_THREADS = 1 << 14
"""That count a batch's rows: each adds to one counter, once."""


def choose_placement(placement: str, num_bytes: int, what: str) -> str:
    """The choice, or by size where it is "auto".

    Raises:
        InputError: no such placement.
    """
    if placement not in PLACEMENTS:
        raise InputError(
            f'placement is {placement!r}: {what} lies in "device" memory or in "pinned" host memory, or "auto" decides; choose one'
        )
    if placement != "auto":
        return placement
    return "device" if num_bytes <= _FREE_SHARE * free_memory() else "pinned"


def free_memory() -> float:
    """Bytes of the current device that nothing has; infinite in the simulator."""
    from numba import cuda

    return float(cuda.current_context().get_memory_info().free)


def to_device(array: Array, placement: str, stream: DeviceStream, what: str = "an array", meeting: Meeting | None = None) -> Any:
    """A copy of a host array that kernels can read: in device memory, or in pinned host memory mapped into the device's address space.

    With a ``meeting`` all ranks have to call this alike, and those of a machine whose placement is "pinned" read one copy.
    """
    if meeting is not None and (copy := one_copy(array, what, meeting, wanted=placement == "pinned")) is not None:
        return copy
    if placement == "pinned" and array.size:  # CUDA pins no empty memory
        from numba import cuda

        pinned = cuda.mapped_array(array.shape, array.dtype)
        pinned[...] = array
        return pinned
    copy = stream.empty(array.shape, array.dtype)
    copy.copy_to_device(np.ascontiguousarray(array), stream=stream.numba)
    stream.synchronize()
    return copy


class DeviceGraph:
    """A graph's arrays where kernels can read them.

    Attributes:
        indptr: (V+1,) int32 or int64.
        indices: (E,) int32 or int64.
        threshold: (E,) uint32 of alias tables, or (1,) without them.
        alias: (E,) int32 of alias tables, or (1,) without them.
        placement: name of an array -> "device" or "pinned".
    """

    def __init__(self, arrays: dict[str, Array], placement: str, stream: DeviceStream, meeting: Meeting | None = None) -> None:
        """Copy the arrays, by name; with "auto" each goes to the device while it fits, in the order given. ``meeting`` as of ``to_device``."""
        self.placement: dict[str, str] = {}
        placed = {}
        for name, array in arrays.items():
            self.placement[name] = choose_placement(placement, array.nbytes, "the graph")
            placed[name] = to_device(array, self.placement[name], stream, f"the graph's {name}", meeting)
        self.indptr, self.indices, self.threshold, self.alias = (placed[name] for name in ("indptr", "indices", "threshold", "alias"))

    def arrays(self) -> tuple[Any, Any, Any, Any]:
        """As the kernels take them."""
        return self.indptr, self.indices, self.threshold, self.alias

    def __repr__(self) -> str:
        places = ", ".join(f"{name}={where}" for name, where in self.placement.items())
        return f"DeviceGraph(num_nodes={len(self.indptr) - 1:,}, num_edges={len(self.indices):,}, {places})"


Gather: TypeAlias = Callable[[Launch, Any, Any], None]
"""``copy(launch, ids, rows)`` of a table: ids (N,) and rows (N, ...) are arrays as users get them."""


def numba_gather(source: tuple[Any, ...], stream: DeviceStream) -> Gather:
    """What copies rows by Numba's kernels.

    Args:
        source: as ``hoptrain.kernels.cuda.gather.gather`` takes it.
        stream: of those who will read.
    """
    dtype = source[0].dtype
    return lambda launch, ids, rows: gather(launch, source, stream.lend(ids), stream.lend(rows.reshape(len(rows), -1), dtype))


def native_gather(source: tuple[Any, ...], placement: str, stream: DeviceStream) -> Gather:
    """What copies the same rows by the kernel in CUDA C++; ``placement``, "device" or "pinned", is that of the whole table."""
    whole, parts, where = source if len(source) > 1 else (*source, (), None)
    upload = partial(to_device, placement="device", stream=stream)
    copy: Gather = placed_gather(whole, upload, pinned=placement == "pinned", parts=parts, where=where)
    return copy


def has_native(name: str = "gather") -> bool:
    """Whether the kernels of NAME.cu are used: CuPy is there, and compiles and loads them. If it cannot, a warning says so, once."""
    return native.reason_against() is None and _loads(name)


_DOING = {"gather": "rows are gathered", "aggregate": "neighbours are added up"}
"""Name of a source -> what its kernels do."""


@cache
def _loads(name: str) -> bool:
    try:
        native.load(name)
    except Exception as error:  # CuPy's errors, the compiler's and the driver's have no common class
        warnings.warn(
            f"{_DOING[name]} by Numba's kernels, since CuPy does not load those in CUDA C++: {one_line(error)}; install the one for this "
            "CUDA (pip install 'hoptrain[cuda]'), or uninstall it",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


class DeviceRows:
    """A table of features or labels where kernels can read it.

    Attributes:
        placement: "device" or "pinned", of the whole table.
        row_shape: shape of a row.
        dtype: of the entries.
    """

    def __init__(
        self,
        store: Array,
        stream: DeviceStream,
        *,
        placement: str = "auto",
        hot: Array | None = None,
        thresholds: Thresholds | None = None,
        what: str = "a feature store",
        meeting: Meeting | None = None,
    ) -> None:
        """Copy a store.

        Args:
            store: (V, ...) of any type; a row is not empty.
            stream: of those who will read.
            placement: "device", "pinned" or "auto".
            hot: (C,) distinct rows that are kept in device memory as well, see ``keep_hot``.
            thresholds: what decides about speed.
            what: its name, for people.
            meeting: as of ``to_device``.
        """
        self.placement = choose_placement(placement, store.nbytes, what)
        self.row_shape, self.dtype = store.shape[1:], store.dtype
        self._stream, self._thresholds = stream, thresholds or THRESHOLDS
        self._words = as_words(store)
        self._source: tuple[Any, ...] = (to_device(self._words, self.placement, stream, what, meeting),)
        self._hits: Any = None
        self._copy = self._chosen_gather()
        if hot is not None:
            self.keep_hot(hot)

    def keep_hot(self, hot: Array, parts: tuple[Any, ...] | None = None) -> None:
        """Have rows read from device memory instead.

        Args:
            hot: (C,) distinct row numbers; the place of one is its slot.
            parts: these rows as ``hoptrain.engine.gpu_memory.peers.shared_out`` has them; by default they are copied to this device.
        """
        parts = parts or (to_device(self._words[hot], "device", self._stream),)
        where = to_device(slots_of(hot, len(self._words)), "device", self._stream)
        self._source = (self._source[0], parts, where)
        self._hits = to_device(np.zeros(1, np.int64), "device", self._stream)
        self._copy = self._chosen_gather()

    def _chosen_gather(self) -> Gather:
        return native_gather(self._source, self.placement, self._stream) if has_native() else numba_gather(self._source, self._stream)

    def take_hits(self) -> int:
        """How many rows came from those kept hot since this was asked last. Waits for the stream."""
        self._stream.synchronize()
        hits = int(to_host(self._hits)[0])
        self._hits.copy_to_device(np.zeros(1, np.int64), stream=self._stream.numba)
        return hits

    def gather(self, ids: Any) -> Any:
        """The rows of nodes, for torch's current stream.

        Args:
            ids: (N,) int32 or int64 on the device (in the simulator a NumPy array), not checked.

        Returns:
            (N, ...) a torch tensor on the device, Numba's device array without torch, NumPy's in the simulator.
        """
        self._stream.wait_for_torch()
        rows = self.gather_here(ids)
        self._stream.hand_to_torch(rows)
        return rows

    def gather_here(self, ids: Any) -> Any:
        """Like ``gather`` where the ids come from the stream of this table and the rows stay on it.

        The rows are torch's memory from the start, so that its allocator knows who still reads them (``DeviceStream.hand_to_torch``).
        """
        rows = self._stream.tensor((len(ids), *self.row_shape), self.dtype)
        if len(ids):
            launch = Launch(stream=self._stream.numba, thresholds=self._thresholds, num_batches=1)
            self._copy(launch, ids, rows)
            if self._hits is not None:
                launch.flat(count_placed, min(len(ids), _COUNTING_THREADS), self._source[-1], self._stream.lend(ids), self._hits)
        return rows


def as_words(store: Array) -> Array:
    """A store (V, ...) as a matrix (V, W) of the widest words that divide a row: the same memory, if it is C-contiguous."""
    flat = np.ascontiguousarray(store).reshape(len(store), -1)
    words: Array = flat.view(word_dtype(flat.shape[1] * flat.itemsize))
    return words
