"""Filling and copying the rows of matrices: one row for each batch."""

from numba import cuda

from hoptrain.kernels.cuda.compile import cuda_kernel
from hoptrain.kernels.cuda.widths import id_kernel


@id_kernel("void(ID[:, ::1], int64)")
def fill_rows(rows, value):
    """Set as many rows as the grid has in y to ``value``."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, rows.shape[1], cuda.gridDim.x * cuda.blockDim.x):
        rows[b, i] = value


@cuda_kernel("void(int32[:, ::1], int32[:, ::1])", "void(int64[:, ::1], int64[:, ::1])", "void(int32[:, ::1], int64[:, ::1])")
def copy_rows(source, target):
    """Copy as many rows as the grid has in y to the beginning of those of ``target``, which are not shorter."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, source.shape[1], cuda.gridDim.x * cuda.blockDim.x):
        target[b, i] = source[b, i]
