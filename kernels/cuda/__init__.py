"""Loops and memory for CUDA: Numba kernels, and host functions that launch them in order. Importing it needs numba-cuda, but no device."""

from hoptrain.kernels.cuda import (
    draw,
    gather,
    group,
    importance,
    induce,
    labor,
    layerwise,
    link,
    pagerank,
    pinsage,
    program,
    relabel,
    ripple,
    rows,
    sample_parallel,
    scan,
    shadow,
    subgraph,
    temporal,
    transit_parallel,
    weighted,
)
from hoptrain.kernels.cuda.compile import KERNELS, cuda_kernel, device_function

__all__ = [
    "KERNELS", "cuda_kernel", "device_function", "draw", "gather", "group", "importance", "induce", "labor", "layerwise", "link", "pagerank", "pinsage",
    "program", "relabel", "ripple", "rows", "sample_parallel", "scan", "shadow", "subgraph", "temporal", "transit_parallel", "weighted",
]  # fmt: skip
