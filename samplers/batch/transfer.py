"""Arrays become torch tensors on the device where they are needed, and page-locked memory from which a GPU copies them by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hoptrain.engine.arrays import BFLOAT16, Array, ids_at
from hoptrain.engine.features.quantized import Columns, QuantizedRows, codes_of
from hoptrain.engine.features.take import take_rows
from hoptrain.engine.queue.ring import Recycled
from hoptrain.engine.queue.shared_memory import mapped_file

if TYPE_CHECKING:
    import torch


_expanded = Recycled()
"""Memory of the numbers that batches' codes stand for."""


def as_tensor(array: Any) -> torch.Tensor:
    """A NumPy array as a torch tensor that shares its memory; ``BFLOAT16`` becomes ``torch.bfloat16``. A tensor stays as it is.

    ``QuantizedRows`` become float32, in memory that is used again when the tensor is gone.
    """
    import torch

    if isinstance(array, torch.Tensor):
        return array
    if isinstance(array, QuantizedRows):
        numbers = _expanded([("rows", array.dtype, array.shape)])["rows"]
        return torch.from_numpy(array.columns.expand(array.codes, numbers))
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def ids_like(edge_ids: Array | None, places: Any) -> Any:
    """Return ``ids_at`` of an array, or of a tensor on whatever device; from a file that is larger than the free memory they are read (``take_rows``)."""
    if edge_ids is None or isinstance(places, np.ndarray):
        return _ids_at(edge_ids, places)
    return as_tensor(_ids_at(edge_ids, places.cpu().numpy())).to(places.device, places.dtype)


def _ids_at(edge_ids: Array | None, places: Array) -> Array:
    if edge_ids is None or mapped_file(edge_ids) is None:
        return ids_at(edge_ids, places)
    found, is_edge = np.full(len(places), -1, edge_ids.dtype), places >= 0
    found[is_edge] = take_rows(edge_ids, places[is_edge])
    return found


def expanded_here(rows: Any) -> Any:
    """The numbers of ``QuantizedRows`` whose codes are a tensor; anything else as it is."""
    import torch

    if not isinstance(rows, QuantizedRows) or not isinstance(rows.codes, torch.Tensor):
        return rows
    return expand_tensor(rows.codes, rows.columns)


def expand_tensor(codes: torch.Tensor, columns: Columns) -> torch.Tensor:
    """``columns.expand`` of codes (N, width) uint8 on their device, by torch's current stream: (N, F) float32, the same bits."""
    import torch

    scale, zero = _on_device(columns, codes.device)
    if columns.format == "int4":
        codes = torch.stack([codes & 15, codes >> 4], dim=2).reshape(len(codes), -1)[:, : len(scale)]
    return codes.float().mul_(scale).add_(zero)


@lru_cache(maxsize=16)
def _on_device(columns: Columns, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    return torch.tensor(columns.scale, device=device), torch.tensor(columns.zero, device=device)


_under_way: deque[tuple[Any, list[Any]]] = deque()
"""Events after copies, and the arrays that must stay as they are until then."""


@contextmanager
def copies_to(device: Any) -> Iterator[Callable[[Any], torch.Tensor]]:
    """A function that copies an array to ``device``; what lies there already is not copied.

    To a GPU the copies are queued on a stream beside torch's current one, which on leaving is told to wait for them. ``QuantizedRows`` are copied as
    codes and become numbers there.
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
            tensor: torch.Tensor = as_tensor(codes_of(array)).to(beside.device, non_blocking=True)
            if isinstance(array, QuantizedRows):
                tensor = expand_tensor(tensor, array.columns)
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
