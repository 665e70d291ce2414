"""Array types, the choice of int32 or int64 for ids, and checks and conversions of feature and label arrays."""

import logging
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hoptrain.engine.errors import InputError

Array: TypeAlias = NDArray[Any]

_log = logging.getLogger(__name__)
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""NumPy dtype for bfloat16, which NumPy lacks: the high 16 bits of a float32. The field name identifies it in files. Tensors get torch.bfloat16."""


def to_bfloat16(values: Array) -> Array:
    """Round float32 values to the nearest bfloat16, ties to even. bfloat16 halves the size of the features and keeps float32's range."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    rounded[np.isnan(values)] = 0x7FC0  # rounding could turn a NaN into infinity
    return rounded.view(BFLOAT16)


def as_float32(x: Array) -> Array:
    """Return features of any supported dtype, including ``BFLOAT16``, as C-contiguous float32. Values are copied only if necessary."""
    if x.dtype == BFLOAT16:
        x = (np.ascontiguousarray(x).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x, np.float32)


def as_array(values: Any) -> Array:
    """Return a torch tensor on any device, or any array-like, as an array; torch.bfloat16 becomes ``BFLOAT16``. Values are copied only if necessary."""
    if isinstance(values, np.ndarray):  # includes np.memmap
        return values
    if not hasattr(values, "detach"):
        return np.asarray(values)
    values = values.detach().cpu()
    if str(values.dtype) != "torch.bfloat16":
        return np.asarray(values)
    import torch

    return np.asarray(values.contiguous().view(torch.uint16)).view(BFLOAT16)


def read_only(array: Array) -> Array:
    """Return a read-only view, so that Numba compiles a kernel only once for arrays in memory and for arrays mapped from files."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def as_weights(weights: Any) -> Array:
    """Convert edge weights of PyG or DGL: (E, 1) to (E,), and real dtypes other than float32 and float64 to float32."""
    weights = as_array(weights)
    weights = weights.reshape(-1) if weights.shape[1:] == (1,) else weights
    wide: Array = weights.astype(np.float32) if weights.dtype.kind in "iu" or weights.dtype == np.float16 else weights
    return wide


def as_labels(name: str, y: Array, num_classes: int) -> Array:
    """Convert labels of PyG or DGL: (V, 1) to (V,), and floats that are all whole numbers to integers, with NaN as -1 (no label).

    If ``num_classes`` is 1, one-dimensional labels are regression targets and keep their values. Warnings contain the data set's ``name``.
    """
    y = y.reshape(-1) if y.shape[1:] == (1,) else y
    if y.dtype.kind != "f" or (y.ndim == 1 and num_classes == 1):
        return y
    with np.errstate(invalid="ignore"):  # hides warnings about infinities, which the comparison below rejects
        whole = np.nan_to_num(y, nan=-1).astype(np.int64)
    if not np.array_equal(whole, np.nan_to_num(y, nan=-1)):
        return y
    if y.ndim == 1:
        _log.warning(f"{name}: y is {y.dtype} with whole numbers only, which are read as classes; for regression, set num_classes=1")
    return whole


def id_dtype(count: int) -> np.dtype[Any]:
    """Return int32 if ids in [0, count) fit, else int64. int32 halves the bytes of all indices that are read, moved or stored."""
    return _INT32 if count < 1 << 31 else _INT64


def offset_dtype(count: int) -> np.dtype[Any]:
    """Return the dtype for offsets from 0 to ``count`` inclusive: int32 if they fit, else int64."""
    return id_dtype(count + 1)


def is_integer(dtype: DTypeLike) -> bool:
    """Return whether a dtype is an integer type; bool does not count as one."""
    return np.issubdtype(np.dtype(dtype), np.integer)


def check_numbers(name: str, what: str, x: Array) -> None:
    """Raise InputError if the features ``x`` (N, F) are not finite real numbers. The message names the data set (``name``) and the features (``what``)."""
    if x.dtype.kind not in "fiu" and x.dtype != BFLOAT16:
        raise InputError(
            f"{name}: {what} is {x.dtype}: features must be floating-point numbers or integers; convert it, for example with {what}.astype(np.float32)"
        )
    if x.dtype.kind in "iu":
        return
    for begin in range(0, len(x), 65536):
        finite = _is_finite(x[begin : begin + 65536])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            value = as_float32(x[begin + row])[column] if x.dtype == BFLOAT16 else x[begin + row, column]
            raise InputError(
                f"{name}: {what}[{begin + row}, {column}] is {value}: features must be finite; replace it, for example with np.nan_to_num({what})"
            )


def _is_finite(x: Array) -> Array:
    if x.dtype == BFLOAT16:
        exponent = np.uint16(0x7F80)
        bits: Array = x.view(np.uint16) & exponent
        finite: Array = bits != exponent
        return finite
    return np.isfinite(x)


def ids_at(edge_ids: Array | None, places: Array) -> Array:
    """Return the ids of the edges at the CSC positions ``places`` (N,). ``edge_ids`` is ``Graph.edge_ids``. Position -1 has the id -1."""
    if edge_ids is None:
        return places
    if len(edge_ids) == 0:  # without edges all positions are -1
        return np.full(len(places), -1, edge_ids.dtype)
    found: Array = np.where(places < 0, edge_ids.dtype.type(-1), edge_ids[places])
    return found
