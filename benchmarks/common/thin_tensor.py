"""Tensors that say that they are on a GPU; in a file of their own, since it imports torch, and a benchmark's help does without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike


class _Tensor(torch.Tensor):
    """On a GPU, as far as it says."""

    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


def thin(shape: Sequence[int], dtype: DTypeLike) -> Any:
    """A tensor of a shape, with the memory of one entry, of NumPy's ``dtype``."""
    return thin_like(shape, torch.from_numpy(np.empty(0, dtype)).dtype)


def thin_like(shape: Sequence[int], dtype: torch.dtype) -> Any:
    """Return a tensor of a shape and a dtype that takes the memory of one element."""
    return torch.empty(1, dtype=dtype).expand(tuple(shape)).as_subclass(_Tensor)
