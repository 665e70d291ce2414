"""Launches of hoptrain's CUDA kernels on torch tensors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


def launch_for(rows: Tensor) -> Any:
    """Return a kernel launch configuration for torch's current stream on the GPU of ``rows``."""
    from hoptrain.kernels.cuda.launch import Launch
    from hoptrain.kernels.cuda.thresholds import THRESHOLDS

    stream = _numba_stream(torch.cuda.current_stream(rows.device).cuda_stream)
    return Launch(stream=stream, thresholds=THRESHOLDS, num_batches=1)


@lru_cache(maxsize=16)
def _numba_stream(handle: int) -> Any:
    from numba import cuda

    return cuda.external_stream(handle) if handle else cuda.default_stream()


def lend(array: Tensor | None) -> Any:
    """Return a tensor as an array for Numba's kernels, without a copy."""
    from numba import cuda

    return None if array is None else cuda.as_cuda_array(array.detach())
