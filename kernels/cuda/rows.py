"""Kernels that fill and copy the rows of matrices, one row for each batch."""

from numba import cuda

from hoptrain.kernels.cuda.compile import cuda_kernel
from hoptrain.kernels.cuda.widths import id_kernel


@id_kernel("void(ID[:, ::1], int64)")
def fill_rows(rows, value):
    """Set the first ``gridDim.y`` rows to ``value``."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, rows.shape[1], cuda.gridDim.x * cuda.blockDim.x):
        rows[b, i] = value


@cuda_kernel("void(int32[:, ::1], int32[:, ::1])", "void(int64[:, ::1], int64[:, ::1])", "void(int32[:, ::1], int64[:, ::1])")
def copy_rows(source, target):
    """Copy the first ``gridDim.y`` rows to the beginnings of the rows of ``target``, which are at least as long."""
    b = cuda.blockIdx.y
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, source.shape[1], cuda.gridDim.x * cuda.blockDim.x):
        target[b, i] = source[b, i]
