"""Copies of a sampler process's arrays from a device to the host, before they are written into a slot of the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.engine.queue.ring import Spec, carve, total_bytes


class Staging:
    """A pinned buffer to which several device arrays are copied with one synchronisation. It grows to the size of the largest batch."""

    def __init__(self, stream: DeviceStream) -> None:
        """Start with an empty buffer. The arrays are written on ``stream``."""
        self._stream = stream
        self._memory: Array = np.empty(0, np.uint8)

    def fetch(self, arrays: Sequence[Any]) -> list[Array]:
        """Return the arrays on the host, in the same order. Copies are valid until the next call; NumPy arrays are returned unchanged."""
        away = {str(i): self._stream.lend(array) for i, array in enumerate(arrays) if not isinstance(array, np.ndarray)}
        specs: list[Spec] = [(name, np.dtype(array.dtype), tuple(array.shape)) for name, array in away.items()]
        if not specs:
            return list(arrays)
        if total_bytes(specs) > len(self._memory):
            from numba import cuda

            self._memory = cuda.pinned_array(total_bytes(specs) * 5 // 4, np.uint8)
        copies = carve(self._memory, specs)
        for name, array in away.items():
            if copies[name].size:
                array.copy_to_host(copies[name], stream=self._stream.numba)
        self._stream.synchronize()
        return [copies.get(str(i), array) for i, array in enumerate(arrays)]
