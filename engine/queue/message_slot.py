"""One message at a time from one process to another, in shared memory without a name. A message is there once its number is."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.queue.shared_memory import anonymous_file, reserve

_HEAD = 4096  # bytes: number, kind, parts, sizes of the parts; the last number is who wrote it
_MOST_PARTS = _HEAD // 8 - 4
MESSAGE, FAILURE = 0, 1


class Written(NamedTuple):
    """A message that is written where it is sent from: a window's rows are too many to be copied on their way.

    Attributes:
        num_bytes: of it.
        write: writes them, into (num_bytes,) uint8.
    """

    num_bytes: int
    write: Callable[[Array], None]


Message: TypeAlias = Array | Written
"""Bytes (n,) uint8, or what writes them."""


def size_of(message: Message) -> int:
    """Its bytes."""
    return message.num_bytes if isinstance(message, Written) else len(message)


def write_into(message: Message, out: Array) -> None:
    """Write it to ``out`` (n,) uint8."""
    if isinstance(message, Written):
        message.write(out)
    else:
        out[...] = message


def split(content: Array, sizes: Sequence[int]) -> list[Array]:
    """Messages of these sizes, one behind another in ``content``, as views."""
    return [content[begin:end] for begin, end in pairwise(accumulate(sizes, initial=0))]


class SharedMessageSlot:
    """A message buffer in shared memory with one writer and one reader. A new message overwrites the previous one; pickling transfers the path alone.

    Attributes:
        path: of the memory, for processes of this user on this machine.
    """

    def __init__(self, path: str) -> None:
        """Name memory that there is; it is mapped when it is first used."""
        self.path = path
        self._pages: mmap.mmap | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedMessageSlot, (self.path,)

    @classmethod
    def make(cls) -> SharedMessageSlot:
        """New memory, which lives as long as the object and those who map it."""
        fd = anonymous_file("hoptrain-message")
        os.fchmod(fd, 0o600)
        reserve(fd, _HEAD).close()
        made = cls(f"/proc/{os.getpid()}/fd/{fd}")
        weakref.finalize(made, os.close, fd)
        return made

    @property
    def number(self) -> int:
        """Of the message that is there; 0 before the first."""
        return int(self._head()[0])

    @property
    def writer(self) -> int:
        """The process id of who wrote it; 0 before the first message."""
        return int(self._head()[-1])

    def put(self, number: int, parts: Sequence[Message], kind: int = MESSAGE) -> None:
        """Write a message of some parts.

        Raises:
            InputError: too many parts, or too little memory.
        """
        sizes = list(map(size_of, parts))
        for part, out in zip(parts, split(self.room(sizes), sizes), strict=True):
            write_into(part, out)
        self.post(number, kind)

    def room(self, sizes: Sequence[int]) -> Array:
        """Where the parts of the next message go, one behind another, (sum of their sizes,) uint8; then it is to be posted.

        Raises:
            InputError: as ``put``.
        """
        if len(sizes) > _MOST_PARTS:
            raise InputError(f"{len(sizes)} machines exchange rows: there can be {_MOST_PARTS}; use fewer")
        size = _HEAD + sum(sizes)
        if size > len(self._mapped()):
            self._map(size)
        self._head()[2 : 3 + len(sizes)] = [len(sizes), *sizes]
        return np.frombuffer(self._mapped(), np.uint8)[_HEAD:size]

    def post(self, number: int, kind: int = MESSAGE) -> None:
        """The message is written: whoever waits for its number may read it."""
        head = self._head()
        head[1], head[-1] = kind, os.getpid()
        head[0] = number

    def get(self, *, copy: bool = True) -> tuple[int, list[Array]]:
        """Kind and parts of the message that is there, as copies, or as views that are good until the next one is."""
        content, sizes = self.content()
        parts = split(content.copy() if copy else content, sizes)
        return int(self._head()[1]), parts

    def content(self) -> tuple[Array, list[int]]:
        """The parts of the message that is there, one behind another, as a view (n,) uint8 that is good until the next one is, and their sizes."""
        number = int(self._head()[2])
        sizes = self._head()[3 : 3 + number].tolist()
        if (end := _HEAD + sum(sizes)) > len(self._mapped()):
            self._map(0)
        return np.frombuffer(self._mapped(), np.uint8)[_HEAD:end], sizes

    def _head(self) -> Array:
        return np.frombuffer(self._mapped(), np.int64, _HEAD // 8)

    def _mapped(self) -> mmap.mmap:
        if self._pages is None:
            self._map(0)
        return self._pages  # type: ignore[return-value]

    def _map(self, size: int) -> None:
        """Map all of it, once it has ``size`` bytes; maps of before go with the arrays over them."""
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if size > os.fstat(file).st_size:
                reserve(file, size * 17 // 16).close()  # a window is large, and the next one as large
            self._pages = mmap.mmap(file, os.fstat(file).st_size)
        except MemoryError as error:
            raise InputError(f"a message to another process: {error}") from error
        finally:
            os.close(file)
