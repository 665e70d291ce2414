"""Features as a data set takes them: arrays or tensors, a row of finite numbers for each vertex or edge."""

from __future__ import annotations

from typing import Any

import numpy as np

from hoptrain.engine.arrays import as_array, check_numbers
from hoptrain.engine.errors import InputError
from hoptrain.engine.features.quantized import QuantizedRows, Rows


def taken_in(rows: Any) -> Any:
    """A tensor or another array as NumPy's, C-contiguous, since kernels gather rows that lie one behind another; ``QuantizedRows`` and None as they are."""
    if rows is None or isinstance(rows, QuantizedRows):
        return rows
    array = as_array(rows)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def check_features(name: str, x: Rows | None, num_nodes: int) -> None:
    """Refuse features that are not a row of finite numbers for each vertex."""
    if x is None:
        return
    if x.ndim != 2 or len(x) != num_nodes:
        raise InputError(f"{name}: x has shape {x.shape}: features are one row for each of the {num_nodes:,} vertices; reshape x")
    _check_numbers(name, "x", x)


def check_edge_features(name: str, edge_attr: Rows | None, num_ids: int) -> None:
    """Refuse features of edges that are not a row of finite numbers for each edge id, of which there are ``num_ids``."""
    if edge_attr is None:
        return
    if edge_attr.ndim != 2 or len(edge_attr) < num_ids:
        raise InputError(
            f"{name}: edge_attr has shape {edge_attr.shape}: it has a row for each edge in the order of edge_index, {num_ids:,} at least; reshape it"
        )
    _check_numbers(name, "edge_attr", edge_attr)


def _check_numbers(name: str, what: str, rows: Rows) -> None:
    if not isinstance(rows, QuantizedRows):
        check_numbers(name, what, rows)
        return
    columns, codes = rows.columns, rows.codes
    if codes.dtype != np.uint8 or codes.shape[1:] != (columns.width,):
        raise InputError(
            f"{name}: {what} has codes {codes.dtype} of shape {codes.shape}: {columns.format} of {len(columns.scale)} columns is uint8 "
            f"({len(codes)}, {columns.width}); quantise it again"
        )
    if not (np.isfinite(columns.scale).all() and np.isfinite(columns.zero).all()):
        raise InputError(f"{name}: {what} has a scale or a zero that is not finite: features are; quantise it again")
