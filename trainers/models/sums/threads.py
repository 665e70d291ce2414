"""Threads of this process that divide the work of a CPU kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import torch

from hoptrain.samplers import Workspace

_WORTH_SHARING = 1 << 17
"""Minimum number of elements for which several threads work, since starting them takes tens of microseconds."""
_PIECES = 4
"""Number of pieces of the work per thread. With small pieces, threads finish at about the same time."""


def share(work: Callable[[int, int], None], count: int, elements: int) -> None:
    """Call ``work(first, last)`` for ranges that cover [0, count), in torch's number of threads if there are many ``elements`` to compute."""
    threads = torch.get_num_threads() if elements >= _WORTH_SHARING else 1
    number = _PIECES * threads if threads > 1 else 1
    pieces = iter(list(pairwise(count * i // number for i in range(number + 1))))

    def run() -> None:
        for first, last in pieces:
            work(first, last)

    _workspace(threads).run([run] * threads)


@cache
def _workspace(threads: int) -> Workspace:
    return Workspace(threads)
