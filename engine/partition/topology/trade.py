"""Questions to the owners of nodes and their answers, in two rounds; what comes is put into the order of the questions, never of the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.partition.exchange import NOTHING, Exchange

_LENGTH = np.dtype(np.int64)


def trade(exchange: Exchange, questions: Sequence[Array], answer: Callable[[Array], Array]) -> list[Array]:
    """What each part answers to ``questions[p]`` (n,) uint8; all machines call this, those without questions too.

    Args:
        exchange: among the machines, whose numbers are those of the parts.
        questions: to each part, this machine's own too: that one does not travel.
        answer: of a question to this machine.

    Raises:
        InputError: as ``Exchange``, and as ``answer``.
    """
    here = exchange.rank
    asked = exchange.exchange([NOTHING if part == here else question for part, question in enumerate(questions)])
    asked[here] = questions[here]
    answers = [answer(question) for question in asked]
    came = exchange.exchange([NOTHING if part == here else own for part, own in enumerate(answers)])
    came[here] = answers[here]
    return came


def packed(*arrays: Array) -> Array:
    """Arrays (n,) as one message: their lengths, and their bytes."""
    lengths = np.array([array.nbytes for array in arrays], _LENGTH)
    return np.concatenate([lengths.view(np.uint8), *(np.ascontiguousarray(array).view(np.uint8) for array in arrays)])


def unpacked(message: Array, *dtypes: np.dtype[np.generic] | type[np.generic]) -> list[Array]:
    """The arrays of ``packed``, whose dtypes these are.

    Raises:
        InputError: it is none of these messages.
    """
    begin = len(dtypes) * _LENGTH.itemsize
    lengths = message[:begin].copy().view(_LENGTH)
    ends = begin + np.cumsum(lengths)
    if len(lengths) != len(dtypes) or ends[-1] != len(message):
        raise InputError(
            f"a message of {len(message):,} bytes came from another machine where others are sent: machines run other versions; install one"
        )
    return [message[end - length : end].copy().view(dtype) for end, length, dtype in zip(ends, lengths, dtypes, strict=True)]
