"""Reader of pickled arrays of NumPy and torch that executes no code of the file, and no unpickling functions of NumPy or torch.

For the few global names that such files contain, the unpickler creates inert records of the arguments, from which this module builds arrays. It rejects
all other names. torch's own safe loader does not support pickles of protocol 4, such as OGB's.
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
"""Prefix of the name of a torch storage class -> code of the NumPy dtype."""
_CODES = {*_STORAGES.values(), "u2", "u4", "u8"}


class Record:
    """An inert record of a call in a pickle: the name that is called, its arguments, and the state that is set afterwards."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        """Store the arguments without interpreting them."""
        self.kind = kind
        self.arguments = arguments
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _encode(text: str, encoding: str) -> bytes:
    """Encode a text; it replaces ``_codecs.encode``, with which protocol 2 stores bytes as text."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"bytes in the pickle are encoded in {encoding!r}: must be latin1")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): partial(Record, "ndarray"),
    ("numpy", "dtype"): partial(Record, "dtype"),
    **{(f"numpy.{core}.multiarray", "_reconstruct"): partial(Record, "array") for core in ("core", "_core")},
    **{("torch", f"{name}Storage"): code for name, code in _STORAGES.items()},
    ("torch._utils", "_rebuild_tensor_v2"): partial(Record, "tensor"),
    ("collections", "OrderedDict"): dict,  # class of the backward hooks of a pickled tensor
    ("_codecs", "encode"): _encode,
    # pickle protocol 2 stores empty bytes as a call of bytes()
    **{(module, "bytes"): lambda: b"" for module in ("__builtin__", "builtins")},
}


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler that creates records for calls that build arrays and tensors, and rejects all other names."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the replacement for a name. Raise UnpicklingError for unknown names."""
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"the pickle names {module}.{name}, which no array needs")
        return _KNOWN[module, name]

    def persistent_load(self, pid: Any) -> Record:
        """Return a record of a tensor's storage; the numbers themselves are stored outside the pickle."""
        _, code, key, *_ = pid
        return Record("storage", code, key)


def read_torch_file(path: Path) -> Any:
    """Read a file of ``torch.save``, in either format and any protocol, with little-endian numbers. Tensors are returned as arrays.

    Raises:
        Exception: the file is damaged (an exception of any class), or contains objects other than arrays (``pickle.UnpicklingError``).
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
    """Return an unpickled value with arrays instead of records. ``storages`` has the bytes of tensors by key.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: a record does not describe an array.
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
        raise ValueError(f"an array of dtype {code!r} holds no numbers")
    return np.frombuffer(content, np.dtype(order + code)).reshape(shape, order="F" if is_fortran else "C")


def _tensor(record: Record, storages: Mapping[str, bytes]) -> Array:
    storage, offset, shape, strides, *_ = record.arguments
    code, key = storage.arguments
    rows = np.frombuffer(storages[key], code)
    number = prod(shape)
    if tuple(strides) != tuple(prod(shape[i + 1 :]) for i in range(len(shape))) or not 0 <= offset <= len(rows) - number:
        raise ValueError(
            f"a tensor of shape {shape} has strides {strides} and {len(rows) - offset} numbers: must be contiguous and complete"
        )
    return rows[offset : offset + number].reshape(shape)


def _storages(value: Any) -> list[Record]:
    """Return the storage records of all tensors in an unpickled value."""
    if isinstance(value, dict | list | tuple):
        return [record for own in (value.values() if isinstance(value, dict) else value) for record in _storages(own)]
    return [value.arguments[0]] if isinstance(value, Record) and value.kind == "tensor" else []


def _old_storage(stream: BinaryIO, itemsize: int) -> bytes:
    """Read the next storage in torch's old format: a count, followed by that many numbers."""
    return stream.read(struct.unpack("<q", stream.read(8))[0] * itemsize)


def _text(value: Any) -> str:
    """Return ``value`` as a string; Python 2 may have pickled it as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
