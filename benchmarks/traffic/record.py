"""Recording of a bulk's kernel launches with their arguments: on a GPU, in the CUDA simulator, or with a stub of the driver."""

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
    """A kernel launch.

    Attributes:
        kernel: name of the kernel.
        grid: number of blocks in x and y.
        block: number of threads of a block.
        arguments: arguments by the names of the parameters.
    """

    kernel: str
    grid: tuple[int, int]
    block: int
    arguments: Mapping[str, Any]


@contextlib.contextmanager
def recorded() -> Iterator[list[Launched]]:
    """Record all launches of numba-cuda's kernels, or of its simulator, in the body of the ``with`` statement; replays of CUDA graphs are not recorded."""
    launches: list[Launched] = []
    configured = _simulated() if is_simulated() else _compiled()
    call = configured.__call__

    def note(launch: Any, *arguments: Any) -> Any:
        if is_simulated() and launch.grid_dim is None:  # in the simulator this call is not a launch: a kernel calls a device function
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
