"""Bulks of mini-batches on a CUDA device, timed in two parts: what the host does for them, and what the device does."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from hoptrain.benchmarks.common.options import SEED
from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers import Sampler, Workspace


class TimedBulks:
    """A callable for ``time_rounds`` that samples the bulk of a given number.

    Attributes:
        host_s: of each call, seconds in which the host worked: it queued the bulk, took it over when the device was done, and made its mini-batches.
        device_s: of each call, seconds on the device between the first and the last thing that was queued (in the simulator nothing that means
            anything). Where launches are queued one by one, the host may be what the device waits for.
    """

    def __init__(self, sampler: Sampler, graph: Graph, workspace: Workspace, bulks: Sequence[Sequence[Array]]) -> None:
        """Sample ``bulks[call]`` with a workspace on "cuda"."""
        self._sampler, self._graph, self.workspace, self._bulks = sampler, graph, workspace, bulks
        self.host_s: list[float] = []
        self.device_s: list[float] = []

    def __call__(self, call: int) -> int:
        """Sample; returns the edges."""
        from numba import cuda

        bulk, workspace, clock = self._bulks[call], self.workspace, time.perf_counter
        stream = workspace.stream
        stream.wait_for_torch()
        begin, end = cuda.event(), cuda.event()
        begin.record(stream.numba)
        started = clock()
        address = {"seed": SEED, "epoch": 0, "first_batch": call * len(bulk)}
        finish = self._sampler.start_bulk(self._graph, bulk, **address, workspace=workspace)
        queued = clock()
        end.record(stream.numba)
        end.synchronize()
        done = clock()
        batches = list(finish())
        self.host_s.append(queued - started + clock() - done)
        self.device_s.append(begin.elapsed_time(end) / 1e3)
        return sum(batch.num_edges for batch in batches)

    def parts(self, rounds: int) -> dict[str, float]:
        """The medians over the last rounds."""
        return {name: float(np.median(getattr(self, name)[-rounds:])) for name in ("host_s", "device_s")}

    def device_ratio(self, other: TimedBulks, rounds: int) -> float:
        """How many times as long the device took for ``other``, by the median over the last rounds."""
        return float(np.median(np.divide(other.device_s[-rounds:], self.device_s[-rounds:])))
