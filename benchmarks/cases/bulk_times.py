"""Timing of bulks of mini-batches on a CUDA device, separately for the host's and the device's work."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from hoptrain.benchmarks.common.options import SEED
from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers import Sampler, Workspace


class TimedBulks:
    """A callable for ``time_rounds`` that samples a bulk at each call: call i samples bulk i.

    Attributes:
        host_s: for each call, seconds of work on the host: queueing the bulk, taking over the results, and creating the mini-batches.
        device_s: for each call, seconds on the device from the first to the last queued operation; meaningless in the simulator. If launches are
            queued one by one, this may include waiting for the host.
    """

    def __init__(self, sampler: Sampler, graph: Graph, workspace: Workspace, bulks: Sequence[Sequence[Array]]) -> None:
        """Prepare to sample ``bulks[call]`` with a workspace on "cuda"."""
        self._sampler, self._graph, self.workspace, self._bulks = sampler, graph, workspace, bulks
        self.host_s: list[float] = []
        self.device_s: list[float] = []

    def __call__(self, call: int) -> int:
        """Sample the bulk, and return its number of edges."""
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
        """Return the medians of ``host_s`` and ``device_s`` over the last rounds."""
        return {name: float(np.median(getattr(self, name)[-rounds:])) for name in ("host_s", "device_s")}

    def device_ratio(self, other: TimedBulks, rounds: int) -> float:
        """Return the speedup of the device's part over ``other``: the time of ``other`` divided by this one's, the median over the last rounds."""
        return float(np.median(np.divide(other.device_s[-rounds:], self.device_s[-rounds:])))
