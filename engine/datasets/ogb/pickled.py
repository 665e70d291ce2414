"""Pickles of arrays, as NumPy and torch write them, read without executing anything that they say, NumPy's and torch's own unpickling included.

The few names that such a file may hold give inert records of their arguments, of which arrays are made here. Any other name is refused. torch itself
reads pickles of protocol 4, as OGB's, only by executing them.
"""

from __future__ import annotations

import pickle
import struct
import zipfile
from collections.abc import Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.files.untrusted import open_regular

_STORAGES = {
    "Byte": "u1",
    "Char": "i1",
    "Short": "i2",
    "Int": "i4",
    "Long": "i8",
    "Half": "f2",
    "Float": "f4",
    "Double": "f8",
    "Bool": "b1",
}
"""What torch calls storages, and NumPy their numbers."""
_CODES = {*_STORAGES.values(), "u2", "u4", "u8"}


class Record:
    """What a name in a pickle was given: arguments, and the state that follows."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        """Take what the file says, unread."""
        self.kind = kind
        self.arguments = arguments
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _encode(text: str, encoding: str) -> bytes:
    """Protocol 2 writes bytes as text: ``_codecs.encode``."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"its bytes are in {encoding!r}")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): partial(Record, "ndarray"),
    ("numpy", "dtype"): partial(Record, "dtype"),
    **{(f"numpy.{core}.multiarray", "_reconstruct"): partial(Record, "array") for core in ("core", "_core")},
    **{("torch", f"{name}Storage"): code for name, code in _STORAGES.items()},
    ("torch._utils", "_rebuild_tensor_v2"): partial(Record, "tensor"),
    ("collections", "OrderedDict"): dict,  # a tensor's hooks
    ("_codecs", "encode"): _encode,
    **{(module, "bytes"): lambda: b"" for module in ("__builtin__", "builtins")},  # none, in protocol 2
}


class ArrayUnpickler(pickle.Unpickler):
    """Gives records for the names with which arrays and tensors are pickled, and refuses every other."""

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a name in the file."""
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array needs")
        return _KNOWN[module, name]

    def persistent_load(self, pid: Any) -> Record:
        """Of torch's, which storage a tensor is of: its numbers lie outside of the pickle."""
        _, code, key, *_ = pid
        return Record("storage", code, key)


def read_torch_file(path: Path) -> Any:
    """What ``torch.save`` has written, of little-endian numbers, in either of its formats and any protocol: plain values, arrays and tensors, these as arrays.

    Raises:
        Exception: of many kinds, as a damaged pickle raises them; ``pickle.UnpicklingError`` for one that names more than arrays.
    """
    with open_regular(path) as stream:
        if zipfile.is_zipfile(stream):
            with zipfile.ZipFile(stream) as archive:
                (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
                with archive.open(name) as pickled:
                    value = ArrayUnpickler(pickled).load()
                begin = f"{name.removesuffix('/data.pkl')}/data/"
                storages = {other.removeprefix(begin): archive.read(other) for other in archive.namelist() if other.startswith(begin)}
            return plain(value, storages)
        stream.seek(0)
        _magic, _version, _machine, value, keys = (ArrayUnpickler(stream).load() for _ in range(5))
        codes = {record.arguments[1]: record.arguments[0] for record in _storages(value)}
        return plain(value, {key: _old_storage(stream, np.dtype(codes[key]).itemsize) for key in keys})


def plain(value: Any, storages: Mapping[str, bytes] | None = None) -> Any:
    """What was unpickled, with arrays in place of records; ``storages`` are the numbers of tensors, by key.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: records that describe no array.
    """
    if isinstance(value, dict):
        return {key: plain(own, storages) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [plain(own, storages) for own in value]
    if not isinstance(value, Record):
        return value
    return _array(value) if value.kind == "array" else _tensor(value, storages or {})


def _array(record: Record) -> Array:
    _, shape, dtype, is_fortran, content = record.state
    code, order = _text(dtype.arguments[0]), _text(dtype.state[1])
    if code not in _CODES or order not in "<>|=" or not isinstance(content, bytes):
        raise ValueError(f"an array is of {code!r}, and no numbers")
    return np.frombuffer(content, np.dtype(order + code)).reshape(shape, order="F" if is_fortran else "C")


def _tensor(record: Record, storages: Mapping[str, bytes]) -> Array:
    storage, offset, shape, strides, *_ = record.arguments
    code, key = storage.arguments
    rows = np.frombuffer(storages[key], code)
    number = prod(shape)
    if tuple(strides) != tuple(prod(shape[i + 1 :]) for i in range(len(shape))) or not 0 <= offset <= len(rows) - number:
        raise ValueError(f"a tensor of shape {shape} has strides {strides} and {len(rows) - offset} numbers")
    return rows[offset : offset + number].reshape(shape)


def _storages(value: Any) -> list[Record]:
    """The storages of all tensors in what was unpickled."""
    if isinstance(value, dict | list | tuple):
        return [record for own in (value.values() if isinstance(value, dict) else value) for record in _storages(own)]
    return [value.arguments[0]] if isinstance(value, Record) and value.kind == "tensor" else []


def _old_storage(stream: BinaryIO, itemsize: int) -> bytes:
    """The next storage of torch's old format: how many numbers there are, and these."""
    return stream.read(struct.unpack("<q", stream.read(8))[0] * itemsize)


def _text(value: Any) -> str:
    """Python 2 wrote bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
