"""``SharedMessageSlot``: one message at a time from one process to another, in anonymous shared memory."""

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

_HEAD = 4096  # bytes of the header: message number, kind, number of parts, sizes of the parts, and last the writer's process id
_MOST_PARTS = _HEAD // 8 - 4
MESSAGE, FAILURE = 0, 1


class Written(NamedTuple):
    """A message that is written directly into shared memory, since the rows of many steps are too large to copy.

    Attributes:
        num_bytes: size of the message in bytes.
        write: function that writes the message into an array (num_bytes,) uint8.
    """

    num_bytes: int
    write: Callable[[Array], None]


Message: TypeAlias = Array | Written
"""Type of a message: bytes (n,) uint8, or an object that writes them."""


def size_of(message: Message) -> int:
    """Return the size of a message in bytes."""
    return message.num_bytes if isinstance(message, Written) else len(message)


def write_into(message: Message, out: Array) -> None:
    """Write a message to ``out`` (n,) uint8."""
    if isinstance(message, Written):
        message.write(out)
    else:
        out[...] = message


def split(content: Array, sizes: Sequence[int]) -> list[Array]:
    """Return consecutive views of ``content`` with these sizes."""
    return [content[begin:end] for begin, end in pairwise(accumulate(sizes, initial=0))]


class SharedMessageSlot:
    """A message buffer in shared memory with one writer and one reader. A new message overwrites the previous one; pickling transfers only the path.

    Attributes:
        path: path of the memory, for processes of this user on this machine.
    """

    def __init__(self, path: str) -> None:
        """Refer to existing memory, which is mapped when it is first used."""
        self.path = path
        self._bytes: Array = np.empty(0, np.uint8)
        self._words: Array = np.empty(0, np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedMessageSlot, (self.path,)

    @classmethod
    def make(cls) -> SharedMessageSlot:
        """Return a slot with new memory, which exists as long as this object or a mapping of it."""
        fd = anonymous_file("hoptrain-message")
        os.fchmod(fd, 0o600)
        reserve(fd, _HEAD).close()
        made = cls(f"/proc/{os.getpid()}/fd/{fd}")
        weakref.finalize(made, os.close, fd)
        return made

    @property
    def number(self) -> int:
        """Number of the current message; 0 before the first. The number is written last, so a message is complete once its number can be read."""
        return int(self._head()[0])

    @property
    def writer(self) -> int:
        """Process id of the writer; 0 before the first message."""
        return int(self._head()[-1])

    def put(self, number: int, parts: Sequence[Message], kind: int = MESSAGE) -> None:
        """Write a message of several parts.

        Raises:
            InputError: too many parts, or too little memory.
        """
        sizes = list(map(size_of, parts))
        for part, out in zip(parts, split(self.reserve(sizes), sizes), strict=True):
            write_into(part, out)
        self.post(number, kind)

    def reserve(self, sizes: Sequence[int]) -> Array:
        """Return memory (sum of the sizes,) uint8 for the parts of the next message; call ``post`` after writing them.

        Raises:
            InputError: too many parts, or too little memory.
        """
        if len(sizes) > _MOST_PARTS:
            raise InputError(f"{len(sizes)} machines exchange rows: must be at most {_MOST_PARTS}; use fewer")
        size = _HEAD + sum(sizes)
        if size > len(self._bytes):
            self._map(size)
        self._words[2 : 3 + len(sizes)] = [len(sizes), *sizes]
        return self._bytes[_HEAD:size]

    def post(self, number: int, kind: int = MESSAGE) -> None:
        """Publish the message that was written; a reader waits for its number."""
        head = self._head()
        head[1], head[-1] = kind, os.getpid()
        head[0] = number

    def get(self, *, copy: bool = True) -> tuple[int, list[Array]]:
        """Return kind and parts of the current message, as copies, or as views that are valid until the next message."""
        content, sizes = self.content()
        parts = split(content.copy() if copy else content, sizes)
        return int(self._head()[1]), parts

    def content(self) -> tuple[Array, list[int]]:
        """Return the parts of the current message as one view (n,) uint8, valid until the next message, and their sizes."""
        head = self._head()
        sizes = head[3 : 3 + int(head[2])].tolist()
        if (end := _HEAD + sum(sizes)) > len(self._bytes):
            self._map(0)
        return self._bytes[_HEAD:end], sizes

    def _head(self) -> Array:
        """Return the header as numbers (_HEAD / 8,) int64; maps the memory at the first call."""
        if not len(self._words):
            self._map(0)
        return self._words

    def _map(self, size: int) -> None:
        """Enlarge the memory to ``size`` bytes and map it; earlier mappings live as long as arrays over them."""
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if size > os.fstat(file).st_size:
                reserve(file, size * 17 // 16).close()  # some spare bytes, since the next window is about as large
            self._bytes = np.frombuffer(mmap.mmap(file, os.fstat(file).st_size), np.uint8)
            self._words = self._bytes[:_HEAD].view(np.int64)
        except MemoryError as error:
            raise InputError(f"a message to another process: {error}") from error
        finally:
            os.close(file)
