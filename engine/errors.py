"""What goes wrong: a mistake of the caller's or a worker's failure, what more there is to say of some, and how an unknown name is answered."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

_log = logging.getLogger(__name__)


class InputError(ValueError):
    """A mistake that the user can mend. The message is one line: the value, the rule, the remedy. The command line exits with 2.

    Examples:
        >>> from hoptrain import InputError, NeighborSampler
        >>> try:
        ...     NeighborSampler([10, -5])
        ... except InputError as error:
        ...     print(error)
        fanout -5 in [10, -5]: a hop takes 1 to 67108863 edges a node, or -1 for all, or a share of them such as 0.5, above 0 and at most 1.0; correct it
    """


class WorkerError(RuntimeError):
    """A sampler process failed, died or went silent. The message names the worker, the batch and what is known."""


EXPLAINED: Final = {
    "workers": (
        "A worker process failed, died or made nothing for `timeout` seconds, `max_restarts` times in a row, or the system let none start. The message "
        "has the last cause: an exception with its traceback, a signal, an exit code, or a limit.",
        "After an exception mend the sampler; with `num_workers=0` it is raised where a debugger stops. SIGKILL without a reason mostly means that the machine "
        "ran out of memory (`dmesg` tells): fewer workers, a smaller batch, or `buffer_dir`. A sampler that is only slow: a larger `timeout`. A limit: "
        "`ulimit -a` shows it.",
    ),
    "memory": (
        "The queue keeps some batches for each worker, of the largest size that the sampler may make. That memory is reserved before the first batch, so "
        "that a training does not die in its middle; it is not there, in the control group of this process or on the machine.",
        "Lower `num_workers`, `prefetch_factor` or `batch_size`; or give `buffer_dir` (`--data.worker_options.buffer_dir`), a folder on a disk.",
    ),
    "files": (
        "Each batch in the queue is an open file or two. The limit of this process on open files is below what the workers need.",
        "Raise it by `ulimit -n` as the message says, in the shell that starts the training; or fewer `num_workers`, less `prefetch_factor`.",
    ),
    "sending": (
        "With workers the sampler goes to processes of their own. It holds what stays with its process: an open file, a lock, a thread, a socket.",
        "Open it in the worker, at the first batch, instead of in `__init__`; or `num_workers=0`.",
    ),
    "iterator": (
        "A loader has one iterator at a time: a second `iter(loader)`, or `close()`, ends the one before. That one was asked for a batch.",
        "One `for` loop over a loader at a time. For two at once make two loaders; their graph and features are in memory once.",
    ),
    "reader": (
        "With `feature_cache` one process of each machine reads the features for all ranks. It made no rows for longer than every rank waits.",
        "Its own messages stand above, those of the first rank of this machine. If the disk is only slow: a smaller `batch_size`, or more `feature_cache`.",
    ),
    "rows": (
        "Features lie in parts on several machines, whose processes ask one another for rows. One of them has ended, was killed or stopped, or makes no steps.",
        "The machine that is the cause says why, and its rank is named at the end. Started again, the run goes on by `--ckpt_path last`. Where machines do not "
        "find one another at all: ports between them have to be open, and `GLOO_SOCKET_IFNAME` names the network interface.",
    ),
    "damaged": (
        "A folder of data is kept with a checksum, a type and a shape for each array. One of them is not as it was written: the disk was full, a copy was cut "
        "short, or somebody changed it.",
        "Remove the folder and make it again, from the source that it came from; what lies in `$HOPTRAIN_CACHE` is made again by itself.",
    ),
    "returned": (
        "The first batch of each process is checked in full: ids are integers that exist, a block's destinations are the first of its sources, weights "
        "are finite. A sampler returned another one.",
        "Call `sampler.sample(graph, seeds)` alone, and look at the array that the message names. `SamplingProgram` builds correct blocks by itself.",
    ),
    "checkpoint": (
        "The file is none of Lightning's, was cut short, holds code (checkpoints are read without any), or was written at a moment from which no run can go on "
        "bit for bit: in the middle of an optimiser's step, or by one of several ranks.",
        "Another checkpoint, `last.ckpt` for instance. A checkpoint of a program of your own with more than tensors and plain values: load it there, and save "
        "its `state_dict`.",
    ),
    "cuda": (
        "Sampling on a GPU needs the extra `cuda`, a driver of NVIDIA's, and a device that can be seen. The message says which of them is missing.",
        '`hoptrain doctor --gpu` looks for each and says what to do. Or `device="cpu"`, `--data.sampler_device cpu`.',
    ),
}
"""Cause and cure of what no line can tell, by the name that messages end with. `hoptrain explain NAME` prints an entry, docs/errors.md has all."""


def explain_hint(name: str) -> str:
    """The end of a message: where its entry in ``EXPLAINED`` can be read, also without a network."""
    return f" [hoptrain explain {name}]"


def one_line(error: Exception) -> str:
    """What an error says, in one line; its kind where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def printable(text: str, keep: str = "") -> str:
    r"""Return text with its control characters, and what is no character at all, escaped: names in a file could steer the terminal.

    Args:
        text: what is to be shown.
        keep: characters that stay as they are, such as line ends.

    Examples:
        >>> print(printable("a name \x1b[31m"))
        a name \x1b[31m
    """
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def join_limited(names: Iterable[object], most: int = 8) -> str:
    """The first names, as a message of one line may list them: ``a, b and 18 more``."""
    shown = [":".join(name) if isinstance(name, tuple) else str(name) for name in names]
    return ", ".join(shown) if len(shown) <= most else f"{', '.join(shown[: most - 1])} and {len(shown) - most + 1} more"


def not_carried(name: str, kind: str, left: Iterable[str], remedy: str = "") -> dict[str, Any]:
    """Return ``meta`` of a data set made from another library's object, and log a warning: ``left`` names what a ``kind`` of data set does not hold."""
    names = sorted(left)
    if names:
        _log.warning("%s: a %s does not hold %s: no batch will have them%s", name, kind, join_limited(names), remedy)
    return {"not_carried": names} if names else {}


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """``did you mean X?`` with the names of ``known`` nearest to ``name``; empty where none is near.

    Names may have parts, as ``data.batch_size`` or ``synthetic:reddit``: a part that was left out (``batch_size``) or cut short (``data.batch``) counts as
    near, and names of the same first part come before others.
    """
    last = _last_part(name)
    if not last:
        return ""
    near = [each for each in known if _last_part(each) == last] or [each for each in known if each.startswith(name)]
    beside = [each for each in known if each.partition(".")[0] == name.partition(".")[0]] if "." in name else []
    near = near or difflib.get_close_matches(name, beside or known, n=2, cutoff=0.7)
    if not near:  # of another first part, or without one
        lasts = difflib.get_close_matches(last, [_last_part(each) for each in known], n=1, cutoff=0.7)
        near = [each for each in known if _last_part(each) in lasts]
    return f"did you mean {' or '.join(near[:2])}?" if near else ""


def _last_part(name: str) -> str:
    return re.split("[.:]", name)[-1]


def check_choice(option: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the ``choices``.

    Raises:
        InputError: it is none of them.
    """
    if value not in choices:
        near = f"; {hint}" if isinstance(value, str) and (hint := did_you_mean(value, choices)) else ""
        raise InputError(f"{option} is {value!r}: it is one of {', '.join(choices)}{near}")


@contextmanager
def error_context(what: str) -> Iterator[None]:
    """Put ``what`` before the message of a mistake that is found within: which of several it is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
