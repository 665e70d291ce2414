"""Lookup of rows by index, with a gradient that is bit-identical in every run."""

from __future__ import annotations

import torch
from torch import Tensor


def lookup(x: Tensor, index: Tensor) -> Tensor:
    """Return ``x[index]`` for rows ``x`` (N, C) and an integer index of any shape (...): (..., C).

    The gradient of a row is added in the order of the index. On a CPU, the gradient of ``x[index]`` is not: torch adds the values of large float32
    results in several threads by atomic operations, in another order in each run. On a GPU it is the gradient of ``index_select`` that is atomic.
    """
    if x.is_cuda or torch.compiler.is_compiling():
        return x[index.long()]
    return x.index_select(0, index.flatten()).view(*index.shape, x.shape[1])
