"""Reader of the published CIFAR-10 archive (Krizhevsky 2009): the python or the binary version, unpacked or as ``.tar.gz``.

The python version consists of pickle files, which are read without executing code (``hoptrain.engine.datasets.ogb.pickled``).
"""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.ogb.pickled import ArrayUnpickler, plain
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.files.untrusted import open_regular

_SHAPE = (3, 32, 32)  # channels first, as in the archive
_PIXELS = 3 * 32 * 32
_NAMES = {
    "cifar-10-batches-py": [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"],
    "cifar-10-batches-bin": [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"],
}
_ARCHIVES = {"cifar-10-python.tar.gz": "cifar-10-batches-py", "cifar-10-binary.tar.gz": "cifar-10-batches-bin"}


def find_cifar10(folders: Sequence[Path]) -> list[Path]:
    """Return the six files of an unpacked archive, or the archive file. The list is empty if no folder has a complete archive."""
    for folder in folders:
        for name, members in _NAMES.items():
            files = [folder / name / member for member in members]
            if all(file.is_file() for file in files):
                return files
        for name in _ARCHIVES:
            if (folder / name).is_file():
                return [folder / name]
    return []


def read_cifar10(files: Sequence[Path]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Read the files of ``find_cifar10`` and return training and test images, each (x, y): (N, 32, 32, 3) uint8 and (N,) int64.

    Raises:
        InputError: a file cannot be read or is not a CIFAR-10 batch.
    """
    train: list[tuple[Array, Array]] = []
    test: list[tuple[Array, Array]] = []
    for name, content in _contents(files):
        try:
            part = _from_binary(content) if name.endswith(".bin") else _from_pickle(content)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, EOFError, pickle.UnpicklingError) as error:
            raise InputError(
                f"{name} in {files[0].parent} is not a batch of CIFAR-10 ({one_line(error)}): fetch the archive again"
            ) from None
        (test if name.startswith("test") else train).append(part)
    return _join(train), _join(test)


def _contents(files: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    if files[0].name not in _ARCHIVES:
        for file in files:
            try:
                with open_regular(file) as stream:
                    yield file.name, stream.read()
            except (OSError, ValueError) as error:
                raise InputError(f"{file} cannot be read ({one_line(error)}): make it readable, or fetch the archive again") from None
        return
    folder = _ARCHIVES[files[0].name]
    try:
        # Members are read into memory and never extracted to disk.
        with open_regular(files[0]) as stream, tarfile.open(fileobj=stream) as archive:
            for name in _NAMES[folder]:
                member = archive.extractfile(f"{folder}/{name}")
                if member is None:
                    raise KeyError(f"{name} is not a file in the archive")
                yield name, member.read()
    except (OSError, EOFError, KeyError, ValueError, tarfile.TarError) as error:
        raise InputError(f"{files[0]} cannot be read ({one_line(error)}): fetch the archive again") from None


def _from_binary(content: bytes) -> tuple[Array, Array]:
    """Parse rows of one byte for the class, followed by the pixels."""
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + _PIXELS)
    return _checked(rows[:, 1:], rows[:, 0])


def _from_pickle(content: bytes) -> tuple[Array, Array]:
    batch = plain(ArrayUnpickler(io.BytesIO(content), encoding="bytes").load())
    return _checked(batch[b"data"], np.array(batch[b"labels"]))


def _checked(pixels: Array, y: Array) -> tuple[Array, Array]:
    if pixels.shape != (len(y), _PIXELS) or y.ndim != 1 or not 0 <= int(y.min()) <= int(y.max()) <= 9:
        raise ValueError(f"pixels have shape {pixels.shape} and labels {y.shape}: must be (N, {_PIXELS}) and (N,), with labels from 0 to 9")
    return pixels.reshape(-1, *_SHAPE).transpose(0, 2, 3, 1), y.astype(np.int64)


def _join(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
