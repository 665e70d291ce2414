"""Dropout of tensors on a GPU, by the CUDA C++ kernels of ``hoptrain.kernels.cuda.native.dropout`` or by Numba kernels, bit-identical to the CPU's."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from hoptrain.engine.device import cuda_status
from hoptrain.trainers.models.cuda.launch import launch_for, lend

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
"""Data types that the kernels read."""


@cache
def has_kernels() -> bool:
    """Return whether this process can run hoptrain's CUDA kernels."""
    return cuda_status() is None


def drop(x: Tensor, seed: int, dropped: int, *, clip: bool) -> Tensor:
    """Return the dropout of a contiguous tensor, see ``native.dropout.drop``."""
    if not x.numel():
        return torch.empty_like(x)
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # kernels are launched on the current GPU
        return _drop(x, seed, dropped, clip)


def _drop(x: Tensor, seed: int, dropped: int, clip: bool) -> Tensor:
    if _has_native():
        from hoptrain.kernels.cuda.native.dropout import drop as drop_native

        out = torch.empty_like(x)
        drop_native(launch_for(x), x, out, seed, dropped, clip=clip)
        return out
    from hoptrain.kernels.cuda.training.dropout import drop as drop_numba

    wide = _widened(x)
    out = torch.empty_like(wide)
    drop_numba(launch_for(x), lend(wide.view(-1)), lend(out.view(-1)), seed, dropped, clip=clip)
    return out.to(x.dtype)


def pass_gradient(gradient: Tensor, out: Tensor, dropped: int) -> Tensor:
    """Return the gradient of ``drop`` with ``clip``, from its results ``out``; both are contiguous."""
    if not out.numel():
        return torch.empty_like(out)
    if _has_native():
        from hoptrain.kernels.cuda.native.dropout import pass_gradient as pass_native

        by_x = torch.empty_like(gradient)
        pass_native(launch_for(out), gradient, out, by_x, dropped)
        return by_x
    from hoptrain.kernels.cuda.training.dropout import pass_gradient as pass_numba

    by_x = torch.empty_like(_widened(gradient))
    lent = [lend(_widened(array).view(-1)) for array in (gradient, out, by_x)]
    pass_numba(launch_for(out), lent[0], lent[1], lent[2], dropped)
    return by_x.to(out.dtype)


@cache
def _has_native() -> bool:
    from hoptrain.engine.gpu_memory.device_store import has_native

    return has_native("dropout")


def _widened(x: Tensor) -> Tensor:
    """Convert elements to a data type that Numba's kernels read."""
    return x.float() if x.dtype == torch.bfloat16 else x
