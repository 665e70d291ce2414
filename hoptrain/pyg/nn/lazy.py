"""Rows that are computed when something reads them: a layer's outputs for nodes that no seed needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from hoptrain.engine import InputError
from hoptrain.trainers.models.layers import dropout
from hoptrain.trainers.models.sums.edge_index import changes


class LazyRows(Tensor):
    """A tensor (N, C) of which only the first rows are computed. The others are computed when something reads them.

    Functions that compute each row from the same row of their inputs, such as ``relu``, ``dropout`` or ``linear``, return ``LazyRows`` again. Computed rows
    are read without the others (``rows[:batch_size]``). Every other function gets all rows, as a plain tensor. Gradients flow through the rows that
    were read.
    """

    num_rows: int
    _others: Postponed
    _whole: Tensor | None

    @staticmethod
    def of(first: Tensor, num_rows: int, others: Callable[[], Tensor], reads: Iterable[Tensor]) -> Tensor:
        """Return ``num_rows`` rows. The plain tensor ``first`` has the first of these rows, which are computed already.

        Args:
            first: the rows that are computed already.
            num_rows: number of all rows, N.
            others: function that computes the remaining rows.
            reads: tensors that ``others`` reads. They must not change before it is called.
        """
        if len(first) == num_rows:
            return first
        made = first.as_subclass(LazyRows)
        made.num_rows, made._others, made._whole = num_rows, Postponed(others, reads, first.device.type), None
        return made

    def computed(self) -> Tensor:
        """Return the computed rows, as a plain tensor."""
        if self._whole is not None:
            return self._whole
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)

    def whole(self) -> Tensor:
        """Return all rows, as a plain tensor. From now on everything reads and changes this tensor."""
        if self._whole is None:
            self._whole = self._others.after(self)
            del self._others  # frees the deferred computation and the tensors that it reads
        return self._whole

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func`` on the computed rows alone if it reads no other row, otherwise on all rows."""
        kwargs = kwargs or {}
        handle = _HANDLERS.get(func)
        made = NotImplemented if handle is None else handle(func, *args, **kwargs)
        if made is not NotImplemented:
            return made
        args, kwargs = tree_map(all_of, (args, kwargs))
        return func(*args, **kwargs)


class Postponed:
    """A computation that runs later, with the gradient mode and the autocast settings of its creation."""

    def __init__(self, compute: Callable[[], Tensor], reads: Iterable[Tensor], device_type: str) -> None:
        self._compute = compute
        self._reads = [(tensor, _changes(tensor)) for tensor in reads]
        self._with_gradient = torch.is_grad_enabled()
        self._autocast: dict[str, Any] = {
            "device_type": device_type,
            "dtype": torch.get_autocast_dtype(device_type),
            "enabled": torch.is_autocast_enabled(device_type),
        }

    def after(self, first: LazyRows) -> Tensor:
        """Run the computation, and return the computed rows of ``first`` followed by its result.

        Raises:
            InputError: a tensor that the computation reads has changed.
        """
        if any(_changes(tensor) != number for tensor, number in self._reads):
            raise InputError(
                "output rows of nodes that are not seeds were read after the weights or inputs of the layer changed: these rows are computed when they are "
                "read; read them before the optimizer's step, or take the layer from torch_geometric.nn"
            )
        with torch.set_grad_enabled(self._with_gradient), torch.autocast(**self._autocast):
            return torch.cat([first.computed(), self._compute()])


def computed_of(x: Tensor) -> Tensor:
    """Return the computed rows of ``x``, which are all rows of a plain tensor."""
    return x.computed() if isinstance(x, LazyRows) else x


def first_rows(x: Tensor, number: int) -> Tensor:
    """Return the first ``number`` rows of ``x``, which must be computed. If no more are computed, they are not sliced, to save a copy in the backward pass."""
    rows = computed_of(x)
    return rows if len(rows) == number else rows[:number]


def all_of(value: Any) -> Any:
    """Return all rows of ``LazyRows``, and any other value unchanged."""
    return value.whole() if isinstance(value, LazyRows) else value


def _changes(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place. ``LazyRows`` cannot change before all of their rows are computed."""
    if isinstance(tensor, LazyRows):
        return 0 if tensor._whole is None else changes(tensor._whole)
    return changes(tensor)


def _each_row(func: Any, *args: Any, aligned: bool = False, **kwargs: Any) -> Any:
    """Apply a function that computes each row from the same row of its inputs.

    Args:
        func: the function.
        args: its arguments.
        aligned: True if the function also maps the rows of other matrices among the arguments; if not, only the first argument may be ``LazyRows``.
        kwargs: its keyword arguments.
    """
    given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    lazy = [value for value in given if isinstance(value, LazyRows)]
    num_rows, begin = lazy[0].num_rows, min(len(value.computed()) for value in lazy)
    if kwargs.get("out") is not None or kwargs.get("inplace") or any(value.dim() > 2 or value.num_rows != num_rows for value in lazy):
        return NotImplemented
    if not aligned and (len(lazy) > 1 or args[0] is not lazy[0]):
        return NotImplemented
    by_row = {id(value) for value in given if isinstance(value, LazyRows) or (aligned and value.dim() == 2 and len(value) == num_rows)}

    def apply(rows: Callable[[Any], Any]) -> Any:
        own, named = tree_map(lambda value: rows(value) if id(value) in by_row else value, (args, kwargs))
        return func(*own, **named)

    first = apply(lambda value: first_rows(value, begin))
    return LazyRows.of(first, num_rows, lambda: apply(lambda value: all_of(value)[begin:]), given)


def _each_row_of_all(func: Any, *args: Any, **kwargs: Any) -> Any:
    return _each_row(func, *args, aligned=True, **kwargs)


def _along_columns(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply a function whose second argument is ``dim``, if ``dim`` is the dimension of the columns."""
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    return _each_row_of_all(func, *args, **kwargs) if dim in (1, -1) else NotImplemented


def _layer_norm(func: Any, rows: Any, normalized_shape: Any, *args: Any, **kwargs: Any) -> Any:
    is_by_row = isinstance(rows, LazyRows) and len(normalized_shape) == 1
    return _each_row(func, rows, normalized_shape, *args, **kwargs) if is_by_row else NotImplemented


def _dropout(func: Any, rows: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Apply hoptrain's dropout, which draws only 16 random bits for each number."""
    return _each_row(dropout, rows, p, training, inplace=inplace)


def _narrow(func: Any, rows: LazyRows, dim: int, start: int, length: int) -> Any:
    is_computed = dim in (0, -2) and isinstance(start, int) and start >= 0 and start + length <= len(rows.computed())
    return func(rows.computed(), dim, start, length) if is_computed else NotImplemented


def _index_select(func: Any, rows: LazyRows, dim: int, index: Tensor) -> Any:
    return func(rows.computed(), dim, index) if dim in (0, -2) and _are_computed(rows, index) else NotImplemented


def _getitem(func: Any, rows: LazyRows, index: Any) -> Any:
    own, *others = index if isinstance(index, tuple) and index else (index,)
    if isinstance(own, slice):
        numbers = range(rows.num_rows)[own]
        is_computed = own.step in (None, 1) and numbers.stop <= len(rows.computed())
        own = slice(numbers.start, numbers.stop)
    elif isinstance(own, Tensor):
        is_computed = not others and _are_computed(rows, own)
        own = own[: len(rows.computed())] if own.dtype == torch.bool else own
    else:
        is_computed = type(own) is int and 0 <= own < len(rows.computed())
    return func(rows.computed(), (own, *others)) if is_computed else NotImplemented


def _are_computed(rows: LazyRows, index: Tensor) -> bool:
    """Return whether an index of rows (a slice, row numbers, or a mask (N,)) selects only computed rows."""
    number = len(rows.computed())
    if index.dtype == torch.bool:
        return tuple(index.shape) == (rows.num_rows,) and not index[number:].any()
    return not index.is_floating_point() and index.numel() > 0 and bool(((index >= 0) & (index < number)).all())


def _size(func: Any, rows: LazyRows, dim: int | None = None) -> Any:
    shape = torch.Size((rows.num_rows, *rows.computed().shape[1:]))
    return shape if dim is None else shape[dim]


def _length(func: Any, rows: LazyRows) -> int:
    return rows.num_rows


def _fact(func: Any, rows: LazyRows, *args: Any) -> Any:
    return func(rows.computed(), *args)


def _functions(*names: str) -> Iterator[Any]:
    """Yield torch's functions and methods of these names."""
    for name in names:
        yield from (getattr(owner, name) for owner in (torch, F, Tensor) if callable(getattr(owner, name, None)))


_EACH_ROW = (
    *("linear", "matmul", "mm", "__matmul__"),
    *("relu", "relu6", "elu", "selu", "celu", "gelu", "silu", "mish", "leaky_relu", "prelu", "sigmoid", "tanh", "softplus", "hardtanh"),
    *("abs", "neg", "__neg__", "exp", "square", "sqrt", "clamp", "pow", "__pow__"),
    *("clone", "contiguous", "detach", "to", "float", "double", "half", "bfloat16", "cpu", "cuda"),
)
_EACH_ROW_OF_ALL = (
    *("add", "sub", "mul", "div", "true_divide", "maximum", "minimum"),
    *(f"__{letter}{name}__" for name in ("add", "sub", "mul", "truediv", "div") for letter in ("", "r")),
)
_FACTS = (
    *("dtype", "device", "requires_grad", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_sparse_csr", "is_quantized"),
    *("layout", "ndim", "is_leaf", "grad_fn"),
)
_HANDLERS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_functions(*_EACH_ROW), _each_row),
    **dict.fromkeys(_functions(*_EACH_ROW_OF_ALL), _each_row_of_all),
    **dict.fromkeys(_functions("softmax", "log_softmax"), _along_columns),
    **dict.fromkeys(_functions("layer_norm", "rms_norm"), _layer_norm),
    **dict.fromkeys(_functions("narrow"), _narrow),
    **dict.fromkeys(_functions("index_select"), _index_select),
    **dict.fromkeys(_functions("dim", "is_floating_point", "is_complex", "get_device", "element_size", "is_inference"), _fact),
    **{getattr(Tensor, name).__get__: _fact for name in _FACTS},
    F.normalize: lambda func, rows, *args, **kwargs: _along_columns(func, rows, **{"dim": 1, **kwargs}),
    **dict.fromkeys((torch.cat, torch.concat), _along_columns),
    F.dropout: _dropout,
    Tensor.__getitem__: _getitem,
    **{getattr(Tensor, name).__get__: _size for name in ("shape",)},
    Tensor.size: _size,
    Tensor.__len__: _length,
}
