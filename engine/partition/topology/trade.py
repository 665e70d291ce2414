"""Requests to the owners of nodes and their answers, in two exchange rounds. Answers are in the order of the requests, independent of arrival."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.partition.exchange import NOTHING, Exchange

_LENGTH = np.dtype(np.int64)


def trade(exchange: Exchange, questions: Sequence[Array], answer: Callable[[Array], Array]) -> list[Array]:
    """Return each partition's answer to ``questions[p]`` (n,) uint8. All machines must call this together, even without questions.

    Args:
        exchange: exchange among the machines, numbered like their partitions.
        questions: one question per partition; the one to this machine is answered locally.
        answer: function that answers a question to this machine.

    Raises:
        InputError: the exchange fails, or ``answer`` raises it.
    """
    here = exchange.rank
    asked = exchange.exchange([NOTHING if part == here else question for part, question in enumerate(questions)])
    asked[here] = questions[here]
    answers = [answer(question) for question in asked]
    came = exchange.exchange([NOTHING if part == here else own for part, own in enumerate(answers)])
    came[here] = answers[here]
    return came


def packed(*arrays: Array) -> Array:
    """Pack arrays (n,) into one message: the lengths of all arrays in bytes, then the bytes of the arrays."""
    lengths = np.array([array.nbytes for array in arrays], _LENGTH)
    return np.concatenate([lengths.view(np.uint8), *(np.ascontiguousarray(array).view(np.uint8) for array in arrays)])


def unpacked(message: Array, *dtypes: np.dtype[np.generic] | type[np.generic]) -> list[Array]:
    """Unpack a message of ``packed`` into arrays of the given dtypes.

    Raises:
        InputError: the message does not have such arrays.
    """
    begin = len(dtypes) * _LENGTH.itemsize
    lengths = message[:begin].copy().view(_LENGTH)
    ends = begin + np.cumsum(lengths)
    if len(lengths) != len(dtypes) or ends[-1] != len(message):
        raise InputError(
            f"a message of {len(message):,} bytes from another machine has an unexpected format: all machines need the same version of hoptrain; install one"
        )
    return [message[end - length : end].copy().view(dtype) for end, length, dtype in zip(ends, lengths, dtypes, strict=True)]
