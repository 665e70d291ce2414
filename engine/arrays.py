"""Array types, the one rule for the width of ids, and what numbers features are."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hoptrain.engine.errors import InputError

Array: TypeAlias = NDArray[Any]

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""bfloat16, which NumPy does not know: the high 16 bits of a float32, under a name that its files carry. As a tensor: torch.bfloat16."""


def to_bfloat16(values: Array) -> Array:
    """float32 values rounded to the nearest bfloat16, ties to even: half the bytes of a feature store, with float32's range."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    rounded[np.isnan(values)] = 0x7FC0  # rounding could carry a NaN into infinity
    return rounded.view(BFLOAT16)


def as_float32(x: Array) -> Array:
    """Numbers of any dtype that features have, also ``BFLOAT16``, as float32, one row after another; copied only if need be."""
    if x.dtype == BFLOAT16:
        x = (np.ascontiguousarray(x).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x, np.float32)


def as_array(values: Any) -> Array:
    """A tensor of torch on whatever device, or anything that NumPy takes, as an array; torch.bfloat16 as ``BFLOAT16``. Copied only if need be."""
    if isinstance(values, np.ndarray):  # also one that is mapped from a file
        return values
    if not hasattr(values, "detach"):
        return np.asarray(values)
    values = values.detach().cpu()
    if str(values.dtype) != "torch.bfloat16":
        return np.asarray(values)
    import torch

    return np.asarray(values.contiguous().view(torch.uint16)).view(BFLOAT16)


def read_only(array: Array) -> Array:
    """A view that cannot be written to. Kernels are compiled for such arrays once, whether they are mapped from a file or not."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def as_weights(weights: Any) -> Array:
    """Weights of another library: (E, 1) as (E,), and other real numbers than float32 and float64 as float32."""
    weights = as_array(weights)
    weights = weights.reshape(-1) if weights.shape[1:] == (1,) else weights
    wide: Array = weights.astype(np.float32) if weights.dtype.kind in "iu" or weights.dtype == np.float16 else weights
    return wide


def as_labels(y: Array) -> Array:
    """Return labels of another library: (V, 1) as (V,), and floating ones as integers where they are, a NaN as none (-1)."""
    y = y.reshape(-1) if y.shape[1:] == (1,) else y
    if y.dtype.kind != "f":
        return y
    with np.errstate(invalid="ignore"):  # infinities, which are no labels
        whole = np.nan_to_num(y, nan=-1).astype(np.int64)
    return whole if np.array_equal(whole, np.nan_to_num(y, nan=-1)) else y


def id_dtype(count: int) -> np.dtype[Any]:
    """int32 where ids in [0, count) fit, else int64: half the bytes of every index that is read, moved or stored."""
    return _INT32 if count < 1 << 31 else _INT64


def offset_dtype(count: int) -> np.dtype[Any]:
    """The dtype of offsets 0 to ``count``, both included: int32 where they fit, else int64."""
    return id_dtype(count + 1)


def is_integer(dtype: DTypeLike) -> bool:
    """Whether the dtype holds integers (bool does not count)."""
    return np.issubdtype(np.dtype(dtype), np.integer)


def check_numbers(name: str, what: str, x: Array) -> None:
    """Refuse features ``x`` (N, F) of the data set ``name`` that are no finite real numbers; ``what`` they are called."""
    if x.dtype.kind not in "fiu" and x.dtype != BFLOAT16:
        raise InputError(
            f"{name}: {what} is {x.dtype}: features are real numbers, floating or integer; convert it, perhaps by {what}.astype(np.float32)"
        )
    if x.dtype.kind in "iu":
        return
    for begin in range(0, len(x), 65536):
        finite = _is_finite(x[begin : begin + 65536])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            value = x[begin + row, column]
            raise InputError(
                f"{name}: {what}[{begin + row}, {column}] is {value}: features are finite; replace it, for instance by np.nan_to_num({what})"
            )


def _is_finite(x: Array) -> Array:
    if x.dtype == BFLOAT16:
        exponent = np.uint16(0x7F80)
        bits: Array = x.view(np.uint16) & exponent
        finite: Array = bits != exponent
        return finite
    return np.isfinite(x)


def ids_at(edge_ids: Array | None, places: Array) -> Array:
    """The ids of the edges at ``places`` (N,) of a graph with ``Graph.edge_ids``; -1 stays -1."""
    if edge_ids is None:
        return places
    if len(edge_ids) == 0:  # then there is no place but -1
        return np.full(len(places), -1, edge_ids.dtype)
    found: Array = np.where(places < 0, edge_ids.dtype.type(-1), edge_ids[places])
    return found
