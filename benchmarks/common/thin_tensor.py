"""Tensors that report being on a GPU. This module imports torch, so benchmarks import it only when they run, which keeps their help fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike


class _Tensor(torch.Tensor):
    """A CPU tensor that reports being on a GPU."""

    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


def thin(shape: Sequence[int], dtype: DTypeLike) -> Any:
    """Return a tensor of the given shape, with NumPy's ``dtype``, that takes the memory of one element."""
    return thin_like(shape, torch.from_numpy(np.empty(0, dtype)).dtype)


def thin_like(shape: Sequence[int], dtype: torch.dtype) -> Any:
    """Return a tensor of a shape and a dtype that takes the memory of one element."""
    return torch.empty(1, dtype=dtype).expand(tuple(shape)).as_subclass(_Tensor)
