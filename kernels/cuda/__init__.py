"""CUDA kernels, compiled by Numba, and host functions that launch them. Importing this package needs numba-cuda, but no GPU."""

from hoptrain.kernels import numba_cuda  # noqa: F401 - must come before the modules below import numba.cuda
from hoptrain.kernels.cuda import draw, gather, group, induce, relabel, rows, sample_parallel, scan, stamped, transit_parallel
from hoptrain.kernels.cuda.compile import KERNELS, cuda_kernel, device_function
from hoptrain.kernels.cuda.layerwise import layers
from hoptrain.kernels.cuda.nodewise import importance, labor, pinsage, temporal, weighted
from hoptrain.kernels.cuda.programs import program
from hoptrain.kernels.cuda.seeds import link
from hoptrain.kernels.cuda.subgraphs import pagerank, ripple, shadow, vertices
from hoptrain.kernels.cuda.training import aggregate, dropout

__all__ = [
    "KERNELS", "aggregate", "cuda_kernel", "device_function", "draw", "dropout", "gather", "group", "importance", "induce", "labor", "layers", "link",
    "pagerank", "pinsage", "program", "relabel", "ripple", "rows", "sample_parallel", "scan", "shadow", "stamped", "temporal", "transit_parallel",
    "vertices", "weighted",
]  # fmt: skip
