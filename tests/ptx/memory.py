"""Emulated device memory, its arrays, and the stream."""

import bisect
import collections
import ctypes
import weakref

import numpy as np
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

from ptx import watch

_BYTES = 96 << 20  # untouched pages take no memory
_GAP, _ALIGNMENT = 256, 256


class Memory:
    """One range of bytes for device and pinned memory, with the records for race detection.

    ``bytes`` (n,) uint8 is the contents, ``written`` (n,) says whether a byte was written since its allocation, ``shadow`` (n, columns)
    int32 and ``touched`` (n / sector, 2) are described in ``watch``.
    """

    def __init__(self):
        self.bytes, self.written = np.zeros(_BYTES, np.uint8), np.zeros(_BYTES, np.bool_)
        self.shadow = np.zeros((_BYTES, watch.SHADOW_COLUMNS), np.int32)
        self.touched = np.zeros((_BYTES // watch.SECTOR, 2), np.int64)
        self.address = self.bytes.ctypes.data
        self._begins, self._ends = [0], [watch.SHARED_BYTES]  # begins and ends of allocated ranges, in order
        self._gone = []  # freed ranges; arrays may be freed at any time, also during an allocation
        self._random = np.random.default_rng(0)

    def allocate(self, shape, dtype, *, written):
        """Allocate an array of garbage that counts as written or not; its memory is freed with the last view."""
        while self._gone:
            place = bisect.bisect_left(self._begins, self._gone.pop())
            del self._begins[place], self._ends[place]
        dtype = np.dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        for place, end in enumerate(self._ends, 1):
            begin = -(-(end + _GAP) // _ALIGNMENT) * _ALIGNMENT
            if begin + size + _GAP <= (self._begins[place] if place < len(self._begins) else _BYTES):
                self._begins.insert(place, begin)
                self._ends.insert(place, begin + size)
                return self._array(begin, size, shape, dtype, written)
        raise MemoryError(f"{size:,} bytes: the tests' device has {_BYTES:,} in all; sample less")

    def _array(self, begin, size, shape, dtype, written):
        self.bytes[begin : begin + size] = self._random.integers(0, 256, size, np.uint8)
        self.written[begin : begin + size] = written
        owner = (ctypes.c_uint8 * size).from_address(self.address + begin)
        weakref.finalize(owner, self._gone.append, begin).atexit = False
        return np.frombuffer(owner, dtype).reshape(shape) if size else np.empty(shape, dtype)

    def bounds(self, array):
        """Return the index of an array's first byte and the index after its last; (0, 0) for an empty array, None for an array elsewhere."""
        if not array.size:
            return 0, 0
        low, high = (int(bound) - self.address for bound in np.lib.array_utils.byte_bounds(array))
        return (low, high) if low >= 0 and high <= _BYTES else None

    def mark(self, array):
        """Mark a whole array as written."""
        low, high = self.bounds(array)
        self.written[low:high] = True


MEMORY = Memory()


class Stream:
    """The only stream. It runs nothing until the host waits for it, so missing waits show."""

    handle = 0

    def __init__(self):
        self.queue = collections.deque()
        self.sources = []  # pinned memory that queued copies will read

    def push(self, work, *, wait=False):
        self.queue.append(work)
        if wait:
            self.synchronize()

    def synchronize(self):
        try:
            while self.queue:
                self.queue.popleft()()
        finally:
            self.queue.clear()
            self.sources.clear()

    def __int__(self):
        return 0


STREAM = Stream()


def is_pinned(array):
    """Return whether a host array was allocated as pinned memory."""
    return MEMORY.bounds(array) is not None


class DeviceArray(FakeCUDAArray):
    """An array in device memory that tracks written bytes, and queues copies as a real device does."""

    def __getitem__(self, index):
        item = self._ary[index]
        if isinstance(item, np.ndarray):
            return DeviceArray(item)
        STREAM.synchronize()
        return self._ary[index]

    def __setitem__(self, index, value):
        STREAM.synchronize()
        self._ary[index] = value
        MEMORY.mark(self._ary[index] if isinstance(self._ary[index], np.ndarray) else self._ary[index : index + 1])

    def copy_to_device(self, ary, stream=0):
        """Copy as numba-cuda does. From pinned memory the copy is queued, so changes of the source before the stream runs are copied too."""
        if ary.size == 0:
            return
        source = ary._ary if isinstance(ary, FakeCUDAArray) else np.asarray(ary)
        if self.dtype != source.dtype or self._ary.squeeze().shape != source.squeeze().shape or not self._ary.flags.c_contiguous:
            raise TypeError(f"{source.dtype} {source.shape} cannot be copied to {self.dtype} {self.shape}")

        def copy():
            np.copyto(self._ary, source)
            MEMORY.mark(self._ary)

        if not isinstance(ary, FakeCUDAArray) and is_pinned(source):
            STREAM.sources.append(source)
            STREAM.push(copy)
        else:
            STREAM.push(copy, wait=not isinstance(ary, FakeCUDAArray))

    def copy_to_host(self, ary=None, stream=0):
        """Copy as numba-cuda does. To pinned memory the copy is queued; until then the destination holds garbage."""
        if ary is None or stream is not STREAM or not is_pinned(ary):
            STREAM.synchronize()
            return super().copy_to_host(ary)
        if not any(np.may_share_memory(ary, source) for source in STREAM.sources):  # wait until queued copies have read them
            ary.reshape(-1).view(np.uint8)[:] = 0xDB
        STREAM.push(lambda: np.copyto(ary, self._ary))
        return ary

    def reshape(self, *args, **options):
        return DeviceArray(self._ary.reshape(*args, **options))

    def view(self, *args, **options):
        return DeviceArray(self._ary.view(*args, **options))

    def ravel(self, *args, **options):
        return DeviceArray(self._ary.ravel(*args, **options))


class MappedArray(DeviceArray):
    """Pinned host memory that kernels can read, and a host array."""

    def __array__(self, dtype=None, copy=None):
        STREAM.synchronize()
        return np.asarray(self._ary, dtype)


def device_array(shape, dtype=np.float64, strides=None, order="C", stream=0):
    return DeviceArray(MEMORY.allocate(shape, dtype, written=False))


def to_device(obj, stream=0, copy=True, to=None):
    if to is not None:
        return to.copy_to_device(obj, stream)
    STREAM.synchronize()
    source = obj._ary if isinstance(obj, FakeCUDAArray) else np.asarray(obj)
    made = MEMORY.allocate(source.shape, source.dtype, written=True)
    made[...] = source
    return DeviceArray(made)


def pinned_array(shape, dtype=np.float64, strides=None, order="C"):
    return MEMORY.allocate(shape, dtype, written=True)


def mapped_array(shape, dtype=np.float64, strides=None, order="C", stream=0, portable=False, wc=False):
    return MappedArray(MEMORY.allocate(shape, dtype, written=True))
