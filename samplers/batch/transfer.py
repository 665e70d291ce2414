"""Arrays become torch tensors on the device where they are needed, and page-locked memory from which a GPU copies them by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hoptrain.engine.arrays import BFLOAT16

if TYPE_CHECKING:
    import torch


def as_tensor(array: Any) -> torch.Tensor:
    """A NumPy array as a torch tensor that shares its memory; ``BFLOAT16`` becomes ``torch.bfloat16``. A tensor stays as it is."""
    import torch

    if isinstance(array, torch.Tensor):
        return array
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


_under_way: deque[tuple[Any, list[Any]]] = deque()
"""Events after copies, and the arrays that must stay as they are until then."""


@contextmanager
def copies_to(device: Any) -> Iterator[Callable[[Any], torch.Tensor]]:
    """A function that copies an array to ``device``; what lies there already is not copied.

    To a GPU the copies are queued on a stream beside torch's current one, which on leaving is told to wait for them.
    """
    import torch

    device = torch.device(device)
    if device.type != "cuda":
        yield lambda array: as_tensor(array).to(device)
        return
    release_copied()
    sources: list[Any] = []
    index = torch.cuda.current_device() if device.index is None else device.index
    current, beside = torch.cuda.current_stream(index), _copy_stream(index)

    def copy(array: Any) -> torch.Tensor:
        if isinstance(array, torch.Tensor) and array.is_cuda:
            return array.to(beside.device, non_blocking=True)
        sources.append(array)
        with torch.cuda.stream(beside):
            tensor = as_tensor(array).to(beside.device, non_blocking=True)
        tensor.record_stream(current)
        return tensor

    try:
        yield copy
    finally:  # copies that were queued go on, whatever went wrong
        done = beside.record_event()
        current.wait_event(done)
        _under_way.append((done, sources))


def release_copied() -> None:
    """Let go of the arrays whose copies are done: slots among them go back to their workers."""
    while _under_way and _under_way[0][0].query():
        _under_way.popleft()


@lru_cache
def _copy_stream(index: int) -> torch.cuda.Stream:
    import torch

    return torch.cuda.Stream(index)  # type: ignore[no-untyped-call]
