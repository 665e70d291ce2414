"""GPUs of a machine that can read each other's memory: groups of such GPUs, and device memory shared between processes.

Memory is shared by the driver's IPC handles, 64 bytes that are sent as text. torch's method (``_share_cuda_``) leaves counters in /dev/shm for each tensor
and depends on its allocator's configuration. Numba's method pickles handles. Neither is needed here.
"""

from __future__ import annotations

import ctypes
import logging
import zlib
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hoptrain.engine.arrays import Array
from hoptrain.engine.device import is_simulated
from hoptrain.engine.errors import one_line
from hoptrain.engine.gpu_memory.meeting import Meeting
from hoptrain.engine.gpu_memory.one_copy import machine

_log = logging.getLogger(__name__)

_HANDLE_BYTES = 64
_COMPARED = 1024  # number of hot rows that are compared among ranks, in addition to the node ids of all slots
_lent: list[Any] = []
"""Device memory that other processes may read. The driver does not report when these processes stop reading, so the memory is kept until this process ends."""


def peer_group(meeting: Meeting) -> list[int]:
    """Return the group of this rank: the ranks of this machine, in order, whose GPUs can all read the memory of exactly the same GPUs.

    Every rank of the run must call this; all compute the same groups.
    """
    told = meeting.exchange("which GPU it has", {"machine": machine(), "gpu": gpu_name()})
    beside = [rank for rank, other in enumerate(told) if other["machine"] == told[meeting.rank]["machine"]]
    reached = reachable([told[rank]["gpu"] for rank in beside])
    mine = sorted({meeting.rank, *(rank for rank, is_reached in zip(beside, reached, strict=True) if is_reached)})
    return group_of(meeting.rank, meeting.exchange("which GPUs its own reaches", mine))


def group_of(rank: int, reached: Sequence[Sequence[int]]) -> list[int]:
    """Return the ranks that ``rank`` reaches if all of these reach the same ranks, else [rank]. ``reached`` are the ranks that each rank reaches."""
    mine = list(reached[rank])
    return mine if all(list(reached[other]) == mine for other in mine) else [rank]


def gpu_name() -> str:
    """Return the unique name (UUID) of the GPU whose context is current."""
    from numba import cuda

    return str(cuda.get_current_device().uuid)


def reachable(gpus: Sequence[str]) -> list[bool]:
    """Return whether the current GPU can read the memory of each GPU in ``gpus`` (UUIDs). False for GPUs that this process does not see."""
    from numba import cuda

    if is_simulated():
        return [False] * len(gpus)
    own, seen = cuda.current_context(), {str(gpu.uuid): gpu for gpu in cuda.gpus}
    return [name == str(own.device.uuid) or (name in seen and own.can_access_peer(seen[name].id)) for name in gpus]


def lend(shape: tuple[int, ...], dtype: DTypeLike) -> tuple[Any, str]:
    """Return a device array of undefined contents that lives until this process ends, and the handle for ``borrow`` in other processes.

    Numba allocates it directly from the driver, because memory of torch's allocator may not be sharable.
    """
    from numba import cuda
    from numba.cuda.cudadrv.driver import device_extents, driver

    array = cuda.device_array(shape, dtype)
    base, _ = device_extents(array)
    handle = driver.cuIpcGetMemHandle(base)
    _lent.append(array)
    return array, f"{_bytes_of(handle).raw.hex()} {array.device_ctypes_pointer.value - int(base)}"


def borrow(handle: str, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
    """Return an array that another process has lent, for kernels of the current context. It stays open until this process ends."""
    from numba import cuda
    from numba.cuda.cudadrv.driver import IpcHandle, binding

    text, offset = handle.split()
    opened = binding.CUipcMemHandle()
    _bytes_of(opened).raw = bytes.fromhex(text)
    dtype = np.dtype(dtype)
    strides = tuple(prod(shape[axis + 1 :]) * dtype.itemsize for axis in range(len(shape)))
    ours = IpcHandle(None, opened, prod(shape) * dtype.itemsize, offset=int(offset))
    return ours.open_array(cuda.current_context(), shape, dtype, strides)


def shared_out(rows: Array, hot: Array, meeting: Meeting, group: Sequence[int]) -> tuple[Any, ...] | None:
    """Distribute the hot rows among the P GPUs of a group: slot s is on the GPU of ``group[s % P]``, at row ``s // P``.

    Every rank of the run must call this, even one that is alone in its group.

    Args:
        rows: (V, W) the whole table.
        hot: (C,) the node of each slot, equal on all ranks of the group.
        meeting: all-gather among the ranks.
        group: the P ranks of the group, in order.

    Returns:
        P arrays (C_p, W), as kernels of this rank read them. None for a rank that is alone, for fewer hot rows than ranks, and for all ranks of a group if
        one has other rows or cannot share memory, which is logged.
    """
    from numba import cuda

    own, number = list(group).index(meeting.rank), len(group)
    is_alone = number == 1 or len(hot) < number  # every rank needs a non-empty part, since the kernel takes arrays of one type
    lent, handle, reason = None, None, ""
    if not is_alone:
        try:
            mine = np.ascontiguousarray(rows[hot[own::number]])
            lent, handle = lend(mine.shape, mine.dtype)
            lent.copy_to_device(mine)
            cuda.synchronize()  # copy_to_device returns before the copy is complete
        except Exception as error:  # the driver's exceptions have no common base class
            handle, reason = None, one_line(error)
    same = zlib.crc32(rows[hot[:_COMPARED]].tobytes(), zlib.crc32(hot.tobytes()))
    told = meeting.exchange("the location of its hot rows", [handle, same])
    parts: list[Any] = []
    if not is_alone and any(told[rank][1] != same for rank in group):
        reason = "they are not the same on all ranks"
    elif not is_alone and all(told[rank][0] for rank in group):
        try:
            for part, rank in enumerate(group):
                shape = (len(hot[part::number]), rows.shape[1])
                parts.append(lent if rank == meeting.rank else borrow(told[rank][0], shape, rows.dtype))
        except Exception as error:
            parts, reason = [], one_line(error)
    fine = meeting.exchange("whether it reads the hot rows of the others", len(parts) == number)
    if reason:
        _log.warning("GPUs cannot share their hot rows (%s): each keeps its own copy", reason)
    return tuple(parts) if not is_alone and all(fine[rank] for rank in group) else None


def _bytes_of(handle: Any) -> Any:
    return (ctypes.c_char * _HANDLE_BYTES).from_address(handle.getPtr())
