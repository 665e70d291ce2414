"""Array types, and the one rule for the width of ids."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array: TypeAlias = NDArray[Any]


def id_dtype(count: int) -> np.dtype[Any]:
    """int32 where ids in [0, count) fit, else int64: half the bytes of every index that is read, moved or stored."""
    return np.dtype(np.int32 if count <= np.iinfo(np.int32).max else np.int64)


def is_integer(dtype: DTypeLike) -> bool:
    """Whether the dtype holds integers (bool does not count)."""
    return np.issubdtype(np.dtype(dtype), np.integer)
