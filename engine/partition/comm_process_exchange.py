"""An exchange through a communication process of the same machine, so that the process that fills the cache need not import torch.

The two processes use two shared-memory message slots, one for each direction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.deadline import Deadline
from hoptrain.engine.errors import InputError, explain_hint
from hoptrain.engine.partition.exchange import Swap
from hoptrain.engine.queue.message_slot import FAILURE, Message, SharedMessageSlot

_LOOK_S = 0.0005
_ALIVE_S = 0.5
STOPPED_S = 10.0
"""Time in seconds after which a communication process that was stopped (SIGSTOP) counts as failed."""


class CommProcessExchange:
    """An ``Exchange`` that a communication process carries out.

    Attributes:
        rank: index of this machine.
        size: number of machines.
    """

    def __init__(self, rank: int, size: int, requests: SharedMessageSlot, answers: SharedMessageSlot, pid: int, patience_s: float) -> None:
        """Store the message slots of both directions, the id of the communication process, and the timeout in seconds."""
        self.rank, self.size = rank, size
        self._requests, self._answers, self._pid, self._patience_s = requests, answers, pid, patience_s

    def exchange(self, to: Sequence[Message]) -> list[Array]:
        """Exchange messages; see ``Exchange.exchange``."""
        number = self._requests.number + 1
        self._requests.put(number, to)
        patience, stopped, due = Deadline(self._patience_s), Deadline(STOPPED_S), time.monotonic()
        while self._answers.number != number:
            if time.monotonic() >= due:
                due = time.monotonic() + _ALIVE_S
                state = _state(self._pid)
                if state in ("", "Z", "X"):
                    raise InputError(
                        "the process that exchanges rows with other machines was killed, by a signal or because memory ran out"
                        + explain_hint("rows")
                    )
                if state != "T":
                    stopped = Deadline(STOPPED_S)
                elif stopped.is_over():
                    raise InputError(
                        f"the process that exchanges rows with other machines was stopped (SIGSTOP) for {STOPPED_S:g} s"
                        + explain_hint("rows")
                    )
            if patience.is_over():
                raise InputError(
                    f"no rows of other machines arrived for {self._patience_s:g} s: one of them makes no progress" + explain_hint("rows")
                )
            time.sleep(_LOOK_S)
        kind, parts = self._answers.get(copy=False)
        if kind == FAILURE:
            raise InputError(parts[0].tobytes().decode(errors="replace"))
        return parts


def carry(requests: SharedMessageSlot, answers: SharedMessageSlot, exchange: Swap) -> None:
    """Run the communication process: carry out each requested exchange until one fails, and report the failure."""
    done = 0
    while True:
        while (number := requests.number) == done:
            time.sleep(_LOOK_S)
        try:
            exchange.swap(*requests.content(), answers.reserve)
            answers.post(number)
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            answers.put(number, [np.frombuffer(text.encode(), np.uint8)], FAILURE)
            return
        done = number


def _state(pid: int) -> str:
    """Return the state of a process as the letter in /proc, or "" if the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""
