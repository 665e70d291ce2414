"""What goes wrong, in two kinds: the caller's mistake and a worker's failure; and how a name that does not exist is answered."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class InputError(ValueError):
    """A mistake that the user can mend. The message is one line: the value, the rule, the remedy. The command line exits with 2."""


class WorkerError(RuntimeError):
    """A sampler process failed, died or went silent. The message names the worker, the batch and what is known."""


def reason_of(error: Exception) -> str:
    """What an error says, in one line; its kind where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def some_of(names: Iterable[object], most: int = 8) -> str:
    """The first names, as a message of one line may list them: ``a, b and 18 more``."""
    shown = [":".join(name) if isinstance(name, tuple) else str(name) for name in names]
    return ", ".join(shown) if len(shown) <= most else f"{', '.join(shown[: most - 1])} and {len(shown) - most + 1} more"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """``did you mean X?`` with the names of ``known`` nearest to ``name``; empty where none is near.

    Names may have parts, as ``data.batch_size``: a part that was left out (``batch_size``) or cut short (``data.batch``) counts as near, and
    names of the same first part come before others.
    """
    last = name.rpartition(".")[2]
    if not last:
        return ""
    near = [each for each in known if each.rpartition(".")[2] == last] or [each for each in known if each.startswith(name)]
    beside = [each for each in known if each.partition(".")[0] == name.partition(".")[0]] if "." in name else []
    near = near or difflib.get_close_matches(name, beside or known, n=2, cutoff=0.7)
    if not near:  # of another first part, or without one
        lasts = difflib.get_close_matches(last, [each.rpartition(".")[2] for each in known], n=1, cutoff=0.7)
        near = [each for each in known if each.rpartition(".")[2] in lasts]
    return f"did you mean {' or '.join(near[:2])}?" if near else ""


def check_choice(option: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the ``choices``.

    Raises:
        InputError: it is none of them.
    """
    if value not in choices:
        near = f"; {hint}" if isinstance(value, str) and (hint := did_you_mean(value, choices)) else ""
        raise InputError(f"{option} is {value!r}: it is one of {', '.join(choices)}{near}")


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Put ``what`` before the message of a mistake that is found within: which of several it is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
