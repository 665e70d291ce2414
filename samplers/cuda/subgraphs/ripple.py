"""Ripple walks on a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.kernels.cuda.subgraphs import ripple as kernels
from hoptrain.samplers.cuda.subgraphs.induced import CudaSubgraphs, Drawing
from hoptrain.samplers.subgraphs.induced import MAX_ATTEMPTS, check_one_unit
from hoptrain.samplers.subgraphs.ripple import RippleWalkSampler

_THREADS = 64
"""Threads of a subgraph: each tile of a column has some barriers, and most columns are short."""


class RippleDrawing(Drawing):
    """Growth from a root. It takes three numbers a vertex of the graph and batch."""

    def __init__(self, sampler: RippleWalkSampler, work: CudaSubgraphs) -> None:
        """Copy the roots to where the device reads them."""
        self._sampler = sampler
        self._roots = work.place(sampler.split.seeds, "the roots")

    def begin(self, work: CudaSubgraphs, units: list[Array]) -> int:
        """A unit is a subgraph, and a batch is one."""
        for some in units:
            check_one_unit(some, self._sampler.num_units, self._sampler)
        return min(self._sampler.size, work.num_vertices)

    def draw(self, work: CudaSubgraphs, drawn: Any) -> None:
        """Queue the growth of all subgraphs."""
        numbers, seen, waiting = (
            work.matrix(f"ripple.{name}", work.num_vertices, work.id_dtype) for name in ("numbers", "seen", "waiting")
        )
        work.launch.rows(fill_rows, work.num_vertices, numbers, np.iinfo(work.id_dtype).max)
        threads = min(_THREADS, work.thresholds.block)
        size, ratio = min(self._sampler.size, work.num_vertices), self._sampler.ratio_units
        kernels.grow_subgraphs[(1, work.num_batches), threads, work.stream.numba, 8 * threads](
            work.graph.indptr, work.graph.indices, self._roots, size, ratio, MAX_ATTEMPTS, work.addresses[0], work.num_vertices,
            numbers, seen, waiting, drawn, work.sizes["drawn"],
        )  # fmt: skip
