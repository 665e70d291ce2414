"""The launches of a bulk with their arguments, as they were made: on a device, in the simulator, or with the driver replaced."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any
from unittest import mock

from hoptrain.engine.device import is_simulated


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch.

    Attributes:
        kernel: its name.
        grid: blocks in x and y.
        block: threads of a block.
        arguments: by the parameter's name, as they were given.
    """

    kernel: str
    grid: tuple[int, int]
    block: int
    arguments: Mapping[str, Any]


@contextlib.contextmanager
def recorded() -> Iterator[list[Launched]]:
    """All launches of numba-cuda's kernels, or of the simulator's, while it lasts; those of a CUDA graph's replay are not seen."""
    launches: list[Launched] = []
    configured = _simulated() if is_simulated() else _compiled()
    call = configured.__call__

    def note(launch: Any, *arguments: Any) -> Any:
        if is_simulated() and launch.grid_dim is None:  # a kernel calls a device function
            return call(launch, *arguments)
        function, grid, block = (
            (launch.fn, launch.grid_dim, launch.block_dim)
            if is_simulated()
            else (launch.dispatcher.py_func, launch.griddim, launch.blockdim)
        )
        named = dict(zip(_parameters(function), arguments, strict=True))
        launches.append(Launched(function.__name__, (grid[0], grid[1] if len(grid) > 1 else 1), prod(block), named))
        return call(launch, *arguments)

    with mock.patch.object(configured, "__call__", note):
        yield launches


def _compiled() -> Any:
    from numba.cuda import dispatcher

    return dispatcher._LaunchConfiguration


def _simulated() -> Any:
    from numba import cuda

    return type(cuda.jit(lambda: None))


@cache
def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)
