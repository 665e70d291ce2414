"""Conversion of arrays into torch tensors, and their asynchronous copies to a GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hoptrain.engine.arrays import BFLOAT16, Array, ids_at
from hoptrain.engine.features.quantized import QuantizedRows, QuantParams, codes_of
from hoptrain.engine.features.take import take_rows
from hoptrain.engine.queue.ring import Recycled
from hoptrain.engine.queue.shared_memory import mapped_file

if TYPE_CHECKING:
    import torch


_expanded = Recycled()
"""Buffers for dequantised features. A buffer is reused once no tensor refers to it."""


def as_tensor(array: Any) -> torch.Tensor:
    """Return a NumPy array as a torch tensor that shares its memory; a tensor is returned unchanged.

    ``BFLOAT16`` becomes ``torch.bfloat16``. ``QuantizedRows`` are dequantised to float32, in a buffer that is used again when the tensor is gone.
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
    """Return the edge ids at CSC positions ``places``, an array or a tensor on any device; see ``hoptrain.engine.arrays.ids_at``.

    Ids in a mapped file that is larger than the free memory are read from it (``take_rows``).
    """
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
    """Dequantise ``QuantizedRows`` whose codes are a tensor, on its device; return anything else unchanged."""
    import torch

    if not isinstance(rows, QuantizedRows) or not isinstance(rows.codes, torch.Tensor):
        return rows
    return expand_tensor(rows.codes, rows.columns)


def expand_tensor(codes: torch.Tensor, columns: QuantParams) -> torch.Tensor:
    """Dequantise codes (N, width) uint8 on their device, in torch's current stream, to (N, F) float32, bit-identical to ``columns.expand``."""
    import torch

    scale, zero = _on_device(columns, codes.device)
    if columns.format == "int4":
        codes = torch.stack([codes & 15, codes >> 4], dim=2).reshape(len(codes), -1)[:, : len(scale)]
    return codes.float().mul_(scale).add_(zero)


@lru_cache(maxsize=16)
def _on_device(columns: QuantParams, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    return torch.tensor(columns.scale, device=device), torch.tensor(columns.zero, device=device)


_under_way: deque[tuple[Any, list[Any]]] = deque()
"""Copies in progress: pairs of the CUDA event after the copies, and the source arrays that must not change before the event."""


@contextmanager
def copies_to(device: Any) -> Iterator[Callable[[Any], torch.Tensor]]:
    """Yield a function that copies an array to ``device``; a tensor that is already there is not copied.

    To a GPU the copies are queued on a stream of their own, for which torch's current stream waits when the context ends. ``QuantizedRows`` are copied
    as codes and dequantised on the GPU.
    """
    import torch

    device = torch.device(device)
    if device.type != "cuda":
        yield lambda array: as_tensor(array).to(device)
        return
    release_copied()
    sources: list[Any] = []
    index = torch.cuda.current_device() if device.index is None else device.index
    current, copies = torch.cuda.current_stream(index), _copy_stream(index)

    def copy(array: Any) -> torch.Tensor:
        if isinstance(array, torch.Tensor) and array.is_cuda:
            return array.to(copies.device, non_blocking=True)
        sources.append(array)
        with torch.cuda.stream(copies):
            tensor: torch.Tensor = as_tensor(codes_of(array)).to(copies.device, non_blocking=True)
            if isinstance(array, QuantizedRows):
                tensor = expand_tensor(tensor, array.columns)
        tensor.record_stream(current)
        return tensor

    try:
        yield copy
    finally:  # queued copies continue after an exception, and still read the sources
        done = copies.record_event()
        current.wait_event(done)
        _under_way.append((done, sources))


def release_copied() -> None:
    """Release the source arrays whose copies are done, which returns their slots of the queue to the workers."""
    while _under_way and _under_way[0][0].query():
        _under_way.popleft()


@lru_cache
def _copy_stream(index: int) -> torch.cuda.Stream:
    import torch

    return torch.cuda.Stream(index)  # type: ignore[no-untyped-call]
