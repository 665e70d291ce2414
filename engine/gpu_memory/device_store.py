"""Graphs and feature tables that a CUDA device reads, in its own memory or in pinned host memory."""

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
"""Fraction of the free device memory that graph and features may fill. The rest is for batches, the model and activations."""
_COUNTING_THREADS = 1 << 14
"""Number of threads that count a batch's hot rows. Each thread makes one atomic addition."""


def choose_placement(placement: str, num_bytes: int, what: str) -> str:
    """Return the placement, chosen by size if it is "auto".

    Raises:
        InputError: the placement is unknown.
    """
    if placement not in PLACEMENTS:
        raise InputError(
            f'placement is {placement!r}: it must be "device" for device memory, "pinned" for pinned host memory, or "auto"; choose one for {what}'
        )
    if placement != "auto":
        return placement
    return "device" if num_bytes <= _FREE_SHARE * free_memory() else "pinned"


def free_memory() -> float:
    """Return the free memory of the current device in bytes, infinite in the simulator."""
    from numba import cuda

    return float(cuda.current_context().get_memory_info().free)


def to_device(array: Array, placement: str, stream: DeviceStream, what: str = "an array", meeting: Meeting | None = None) -> Any:
    """Copy a host array to where kernels can read it: device memory, or pinned host memory that is mapped into the device's address space.

    With a ``meeting``, all ranks must call this for corresponding arrays in the same order; the ranks of a machine with placement "pinned" share one copy.
    """
    if meeting is not None and (copy := one_copy(array, what, meeting, wanted=placement == "pinned")) is not None:
        return copy
    if placement == "pinned" and array.size:  # CUDA cannot pin empty memory
        from numba import cuda

        pinned = cuda.mapped_array(array.shape, array.dtype)
        pinned[...] = array
        return pinned
    copy = stream.empty(array.shape, array.dtype)
    copy.copy_to_device(np.ascontiguousarray(array), stream=stream.numba)
    stream.synchronize()
    return copy


class DeviceGraph:
    """A graph whose arrays CUDA kernels can read.

    Attributes:
        indptr: (V+1,) int32 or int64 offsets of the columns.
        indices: (E,) int32 or int64 sources of the edges.
        threshold: (E,) uint32 thresholds of alias tables, or (1,) without weights.
        alias: (E,) int32 aliases of alias tables, or (1,) without weights.
        placement: name of an array -> "device" or "pinned".
    """

    def __init__(self, arrays: dict[str, Array], placement: str, stream: DeviceStream, meeting: Meeting | None = None) -> None:
        """Copy arrays by name. With "auto" each goes to device memory if it fits, in the given order. ``meeting`` lets ranks share pinned copies."""
        self.placement: dict[str, str] = {}
        placed = {}
        for name, array in arrays.items():
            self.placement[name] = choose_placement(placement, array.nbytes, "the graph")
            placed[name] = to_device(array, self.placement[name], stream, f"the graph's {name}", meeting)
        self.indptr, self.indices, self.threshold, self.alias = (placed[name] for name in ("indptr", "indices", "threshold", "alias"))

    def arrays(self) -> tuple[Any, Any, Any, Any]:
        """Return the arrays in the order in which kernels take them."""
        return self.indptr, self.indices, self.threshold, self.alias

    def __repr__(self) -> str:
        places = ", ".join(f"{name}={where}" for name, where in self.placement.items())
        return f"DeviceGraph(num_nodes={len(self.indptr) - 1:,}, num_edges={len(self.indices):,}, {places})"


Gather: TypeAlias = Callable[[Launch, Any, Any], None]
"""A function ``copy(launch, ids, rows)`` that copies the rows ``ids`` (N,) of a table to ``rows`` (N, ...). Both are torch tensors or device arrays."""


def numba_gather(source: tuple[Any, ...], stream: DeviceStream) -> Gather:
    """Return a function that copies rows with Numba's kernels.

    Args:
        source: tuple of arrays, as ``hoptrain.kernels.cuda.gather.gather`` takes it.
        stream: stream on which rows are read.
    """
    dtype = source[0].dtype
    return lambda launch, ids, rows: gather(launch, source, stream.lend(ids), stream.lend(rows.reshape(len(rows), -1), dtype))


def native_gather(source: tuple[Any, ...], placement: str, stream: DeviceStream) -> Gather:
    """Return a function that copies rows with the CUDA C++ kernel. ``placement`` is that of the whole table, "device" or "pinned"."""
    whole, parts, where = source if len(source) > 1 else (*source, (), None)
    upload = partial(to_device, placement="device", stream=stream)
    copy: Gather = placed_gather(whole, upload, pinned=placement == "pinned", parts=parts, where=where)
    return copy


def has_native(name: str = "gather") -> bool:
    """Return whether CuPy can compile and load the CUDA C++ kernels of NAME.cu. A failure is reported once, as a warning."""
    return native.reason_against() is None and _loads(name)


_DOING = {"gather": "gathering rows", "aggregate": "summing neighbours", "dropout": "dropout"}
"""Name of a CUDA C++ source file -> operation that its kernels perform, as text for warnings."""


@cache
def _loads(name: str) -> bool:
    try:
        native.load(name)
    except Exception as error:  # exceptions of CuPy, compiler and driver have no common base class
        warnings.warn(
            f"{_DOING[name]} falls back to Numba's kernels, because CuPy failed to load the CUDA C++ ones ({one_line(error)}): install the CuPy build for "
            "this CUDA version (pip install 'hoptrain[cuda]'), or uninstall CuPy",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


class DeviceRows:
    """A table of features or labels that CUDA kernels can read.

    Attributes:
        placement: placement of the whole table, "device" or "pinned".
        row_shape: shape of a row.
        dtype: dtype of the table's entries.
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
        """Copy a table to where kernels can read it.

        Args:
            store: (V, ...) of any dtype, with non-empty rows.
            stream: stream on which rows are read.
            placement: placement of the table, "device", "pinned" or "auto".
            hot: (C,) distinct rows that are also kept in device memory, see ``keep_hot``.
            thresholds: tuning thresholds of the kernels.
            what: name of the table in messages.
            meeting: all-gather by which the ranks of a machine share one pinned copy.
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
        """Keep hot rows in device memory and read them from there.

        Args:
            hot: (C,) distinct row indices; a row's slot is its index in ``hot``.
            parts: these rows distributed over GPUs, from ``hoptrain.engine.gpu_memory.peers.shared_out``; by default they are copied to this device.
        """
        parts = parts or (to_device(self._words[hot], "device", self._stream),)
        where = to_device(slots_of(hot, len(self._words)), "device", self._stream)
        self._source = (self._source[0], parts, where)
        self._hits = to_device(np.zeros(1, np.int64), "device", self._stream)
        self._copy = self._chosen_gather()

    def _chosen_gather(self) -> Gather:
        return native_gather(self._source, self.placement, self._stream) if has_native() else numba_gather(self._source, self._stream)

    def take_hits(self) -> int:
        """Return the number of hot rows read since the last call, after waiting for the stream."""
        self._stream.synchronize()
        hits = int(to_host(self._hits)[0])
        self._hits.copy_to_device(np.zeros(1, np.int64), stream=self._stream.numba)
        return hits

    def gather(self, ids: Any) -> Any:
        """Return the rows of nodes, for use on torch's current stream.

        Args:
            ids: (N,) int32 or int64 on the device (a NumPy array in the simulator), not checked.

        Returns:
            (N, ...) torch tensor on the device; without torch a Numba device array; a NumPy array in the simulator.
        """
        self._stream.wait_for_torch()
        rows = self.gather_here(ids)
        self._stream.hand_to_torch(rows)
        return rows

    def gather_here(self, ids: Any) -> Any:
        """Return rows as ``gather`` does, for ids and rows that stay on this table's stream.

        The rows are allocated by torch, so that its allocator knows which streams read them (``DeviceStream.hand_to_torch``).
        """
        rows = self._stream.tensor((len(ids), *self.row_shape), self.dtype)
        if len(ids):
            launch = Launch(stream=self._stream.numba, thresholds=self._thresholds, num_batches=1)
            self._copy(launch, ids, rows)
            if self._hits is not None:
                launch.flat(count_placed, min(len(ids), _COUNTING_THREADS), self._source[-1], self._stream.lend(ids), self._hits)
        return rows


def as_words(store: Array) -> Array:
    """Return a table (V, ...) as a matrix (V, W) of the widest words that divide a row. A C-contiguous table is not copied."""
    flat = np.ascontiguousarray(store).reshape(len(store), -1)
    words: Array = flat.view(word_dtype(flat.shape[1] * flat.itemsize))
    return words
