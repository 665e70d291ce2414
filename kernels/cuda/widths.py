"""Kernels for ids, and offsets, of either width: a graph has int32 where they fit, else int64 (``hoptrain.engine.arrays.id_dtype``)."""

from hoptrain.kernels.cuda.compile import cuda_kernel


def id_kernel(signature):
    """``cuda_kernel`` for both widths: ``ID`` in the signature is int32, and int64."""
    return cuda_kernel(*(signature.replace("ID", width) for width in ("int32", "int64")))
