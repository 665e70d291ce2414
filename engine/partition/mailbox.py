"""An exchange by way of another process on this machine, the carrier: who fills a cache imports no torch, and the carrier has nothing but its collectives.

Both speak through two pieces of memory without a name, one for each direction. A message is there once its number is.
"""

from __future__ import annotations

import mmap
import os
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError, see
from hoptrain.engine.partition.exchange import Message, Swap, size_of, split, write_into
from hoptrain.engine.patience import Patience
from hoptrain.engine.queue.shared_memory import anonymous_file, reserve

_LOOK_S = 0.0005
_ALIVE_S = 0.5
STOPPED_S = 10.0
"""A carrier that is stopped for so long is taken for lost."""
_HEAD = 4096  # bytes: number, kind, parts, sizes of the parts; the last number is who wrote it
_MOST_PARTS = _HEAD // 8 - 4
MESSAGE, FAILURE = 0, 1


class Mailbox:
    """One message at a time, from one process to another; pickled it is where to find it. The next one overwrites it.

    Attributes:
        path: of the memory, for processes of this user on this machine.
    """

    def __init__(self, path: str) -> None:
        """Name memory that there is; it is mapped when it is first used."""
        self.path = path
        self._pages: mmap.mmap | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Mailbox, (self.path,)

    @classmethod
    def make(cls) -> Mailbox:
        """New memory, which lives as long as the object and those who map it."""
        fd = anonymous_file("hoptrain-mail")
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
            raise InputError(f"a window's rows for other machines: {error}") from error
        finally:
            os.close(file)


class CarriedExchange:
    """An ``Exchange`` that a carrier makes.

    Attributes:
        rank: of this machine.
        size: machines.
    """

    def __init__(self, rank: int, size: int, letters: Mailbox, answers: Mailbox, carrier: int, patience_s: float) -> None:
        """Take both directions, the carrier's process id, and how long to wait for it."""
        self.rank, self.size = rank, size
        self._letters, self._answers, self._carrier, self._patience_s = letters, answers, carrier, patience_s

    def exchange(self, to: Sequence[Message]) -> list[Array]:
        """See ``Exchange``."""
        number = self._letters.number + 1
        self._letters.put(number, to)
        patience, stopped, due = Patience(self._patience_s), Patience(STOPPED_S), time.monotonic()
        while self._answers.number != number:
            if time.monotonic() >= due:
                due = time.monotonic() + _ALIVE_S
                state = _state(self._carrier)
                if state in ("", "Z", "X"):
                    raise InputError(
                        "the process that exchanges rows with other machines was killed: by hand, or since memory ran out" + see("rows")
                    )
                if state != "T":
                    stopped = Patience(STOPPED_S)
                elif stopped.is_over():
                    raise InputError(
                        f"the process that exchanges rows with other machines was stopped (SIGSTOP) for {STOPPED_S:g} s" + see("rows")
                    )
            if patience.is_over():
                raise InputError(
                    f"rows of other machines have not come for {self._patience_s:g} s: one of them makes no steps" + see("rows")
                )
            time.sleep(_LOOK_S)
        kind, parts = self._answers.get(copy=False)
        if kind == FAILURE:
            raise InputError(parts[0].tobytes().decode(errors="replace"))
        return parts


def carry(letters: Mailbox, answers: Mailbox, exchange: Swap) -> None:
    """The carrier's part: make each exchange that a letter asks for, from box to box, until one fails, which is answered."""
    done = 0
    while True:
        while (number := letters.number) == done:
            time.sleep(_LOOK_S)
        try:
            exchange.swap(*letters.content(), answers.room)
            answers.post(number)
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            answers.put(number, [np.frombuffer(text.encode(), np.uint8)], FAILURE)
            return
        done = number


def _state(pid: int) -> str:
    """A letter for what a process does, as /proc has it; nothing where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""
