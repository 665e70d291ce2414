"""Kernels for ids and offsets of both widths. A graph uses int32 if its ids fit, otherwise int64 (``hoptrain.engine.arrays.id_dtype``)."""

from hoptrain.kernels.cuda.compile import cuda_kernel


def id_kernel(signature):
    """Return the ``cuda_kernel`` decorator for both widths: ``ID`` in the signature stands for int32 and for int64."""
    return cuda_kernel(*(signature.replace("ID", width) for width in ("int32", "int64")))
