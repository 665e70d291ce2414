"""GPUs of a machine that read each other's memory: which ones do, and how a process lends memory of its GPU to the others.

Memory is lent by the driver's own IPC handles, 64 bytes that travel as text. Torch's way (``_share_cuda_``) leaves counters in /dev/shm for each
tensor and depends on how its allocator was set up, and Numba's pickles handles; neither is needed here.
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
_COMPARED = 1024  # hot rows that ranks have to have in common, beside the nodes of all slots
_lent: list[Any] = []
"""What others read; the driver does not say when they have done so for the last time, so it lives as long as this process."""


def peer_group(meeting: Meeting) -> list[int]:
    """The ranks, in order, whose GPUs read each other's memory, this one among them: all of the same machine that reach exactly the same ones.

    Every rank of the run has to call this, and all come to the same groups.
    """
    told = meeting.exchange("which GPU it has", {"machine": machine(), "gpu": gpu_name()})
    beside = [rank for rank, other in enumerate(told) if other["machine"] == told[meeting.rank]["machine"]]
    reached = reachable([told[rank]["gpu"] for rank in beside])
    mine = sorted({meeting.rank, *(rank for rank, is_reached in zip(beside, reached, strict=True) if is_reached)})
    return group_of(meeting.rank, meeting.exchange("which GPUs its own reaches", mine))


def group_of(rank: int, reached: Sequence[Sequence[int]]) -> list[int]:
    """The group of a rank, where each of all ranks reaches those in ``reached``, itself included: alone unless all in it reach the same."""
    mine = list(reached[rank])
    return mine if all(list(reached[other]) == mine for other in mine) else [rank]


def gpu_name() -> str:
    """The name that no other GPU has, of the one whose context is current."""
    from numba import cuda

    return str(cuda.get_current_device().uuid)


def reachable(gpus: Sequence[str]) -> list[bool]:
    """Whether the current GPU reads the memory of each of ``gpus``, by their names; not if this process does not see it. It does read its own."""
    from numba import cuda

    if is_simulated():
        return [False] * len(gpus)
    own, seen = cuda.current_context(), {str(gpu.uuid): gpu for gpu in cuda.gpus}
    return [name == str(own.device.uuid) or (name in seen and own.can_access_peer(seen[name].id)) for name in gpus]


def lend(shape: tuple[int, ...], dtype: DTypeLike) -> tuple[Any, str]:
    """A device array of undefined contents that stays to the end of this process, and the handle by which others ``borrow`` it.

    It is memory of Numba's, which asks the driver for it plainly: what torch's allocator gives may be memory that cannot be lent.
    """
    from numba import cuda
    from numba.cuda.cudadrv.driver import device_extents, driver

    array = cuda.device_array(shape, dtype)
    base, _ = device_extents(array)
    handle = driver.cuIpcGetMemHandle(base)
    _lent.append(array)
    return array, f"{_bytes_of(handle).raw.hex()} {array.device_ctypes_pointer.value - int(base)}"


def borrow(handle: str, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
    """The array that another process has lent, for kernels of the current context. It stays open to the end of this process."""
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
    """The hot rows, shared out among a group: slot s is in part ``s % P``, on the group's rank of that number, at row ``s // P``.

    Every rank of the run has to call this, also one that is alone in its group.

    Args:
        rows: (V, W) the whole table.
        hot: (C,) the node of each slot, the same on all ranks of the group.
        meeting: of the ranks.
        group: P ranks, in order.

    Returns:
        P parts (C_p, W), as kernels of this rank read them. None for a rank that is alone, for fewer hot rows than ranks, and for all of a group of
        which one has other rows, or cannot lend or borrow, which is said.
    """
    from numba import cuda

    own, number = list(group).index(meeting.rank), len(group)
    is_alone = number == 1 or len(hot) < number  # no part is empty: kernels take arrays that are alike
    lent, handle, reason = None, None, ""
    if not is_alone:
        try:
            mine = np.ascontiguousarray(rows[hot[own::number]])
            lent, handle = lend(mine.shape, mine.dtype)
            lent.copy_to_device(mine)
            cuda.synchronize()  # the copy comes back before its last piece is there
        except Exception as error:  # the driver's own errors have no common class
            handle, reason = None, one_line(error)
    same = zlib.crc32(rows[hot[:_COMPARED]].tobytes(), zlib.crc32(hot.tobytes()))
    told = meeting.exchange("where its hot rows lie", [handle, same])
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
        _log.warning("GPUs cannot share their hot rows (%s): each keeps its own", reason)
    return tuple(parts) if not is_alone and all(fine[rank] for rank in group) else None


def _bytes_of(handle: Any) -> Any:
    return (ctypes.c_char * _HANDLE_BYTES).from_address(handle.getPtr())
