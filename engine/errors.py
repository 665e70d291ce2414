"""Exceptions, the longer explanations that ``hoptrain explain`` prints, and helpers to write error messages."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any, Final, TypeVar

_log = logging.getLogger(__name__)
SomeClass = TypeVar("SomeClass", bound=type[Any])


class InputError(ValueError):
    """An error in the input that the user can fix. Its message is one line: value, rule, remedy. The command line exits with code 2.

    Examples:
        >>> from hoptrain import Graph, InputError
        >>> try:
        ...     Graph([0, 2, 1], [0])
        ... except InputError as error:
        ...     print(error)
        indptr falls from 2 to 1 at node 1: offsets must never descend; rebuild it with Graph.from_edges
    """


class WorkerError(RuntimeError):
    """A sampler process that failed, died or stopped responding. The message names the worker, the batch and the known cause."""


EXPLAINED: Final = {
    "workers": (
        "A worker process raised an exception, died, or produced no batch for `timeout` seconds, `max_restarts` times in a row. Or the system could not "
        "start one. The message has the last cause: an exception with its traceback, a signal, an exit code, or a limit.",
        "After an exception, fix the sampler; with `num_workers=0` the exception is raised in this process, where a debugger stops. SIGKILL without a reason "
        "usually means that the machine ran out of memory (see `dmesg`): use fewer workers, a smaller batch, or `buffer_dir`. For a sampler that is only slow, "
        "raise `timeout`. `ulimit -a` shows the limits.",
    ),
    "memory": (
        "The queue reserves memory for several batches per worker, of the largest size that the sampler may produce. It does so before the first batch, so "
        "that training does not fail later. This process's control group or the machine has too little free memory.",
        "Use fewer `num_workers`, less `prefetch_factor` or a smaller `batch_size`. Or put the queue into a folder: `--data.worker_options.buffer_dir`.",
    ),
    "files": (
        "Each batch in the queue takes one or two open files. This process's limit on open files is below what the workers need.",
        "Raise the limit with `ulimit -n`, as the message says, in the shell that starts the training. Or use fewer `num_workers` or less `prefetch_factor`.",
    ),
    "sending": (
        "Workers are separate processes, to which the sampler is sent. It holds an object that cannot be sent: an open file, a lock, a thread, a socket.",
        "Open it in the worker, at the first batch, instead of in `__init__`. Or use `num_workers=0`.",
    ),
    "iterator": (
        "A loader has one iterator at a time: a second `iter(loader)`, or `close()`, ends the previous one. A batch was requested from an ended iterator.",
        "Use one `for` loop over a loader at a time. For two at once, make two loaders; they share graph and features in memory.",
    ),
    "reader": (
        "With `feature_cache`, one process of each machine reads the features for all ranks. It delivered no rows within the ranks' time limit.",
        "Look for its own messages in the output of this machine's first rank. If the disk is only slow, use a smaller `batch_size` or more `feature_cache`.",
    ),
    "rows": (
        "Features are partitioned over several machines, whose processes request rows from each other. One process ended, was killed or stopped, or makes no "
        "progress.",
        "The machine at fault prints the cause, and its rank is named at the end of the output. Start the run again with `--ckpt_path last` to resume it. If "
        "machines never connect, open the ports between them and set `GLOO_SOCKET_IFNAME` to the network interface.",
    ),
    "damaged": (
        "A data folder stores a checksum, a dtype and a shape for each array. One array does not match: the disk was full, a copy was truncated, or the file "
        "was changed.",
        "Remove the folder and create it again from its source. Data in `$HOPTRAIN_CACHE` are recreated automatically.",
    ),
    "returned": (
        "The first batch of each process is checked in full: ids must be integers that exist, a block's destinations must be the first of its sources, and "
        "weights must be finite. The sampler returned a batch that breaks one of these rules.",
        "Call `sampler.sample(graph, seeds)` on its own and inspect the array that the message names. Blocks that `SamplingProgram` builds always pass.",
    ),
    "checkpoint": (
        "The file is not a Lightning checkpoint, is truncated, or contains code (checkpoints are loaded without executing any). Or it was written at a point "
        "from which no run can resume with bit-identical results: within an optimiser step, or by one of several ranks.",
        "Give another checkpoint, such as `last.ckpt`. If a checkpoint of your own program has more than tensors and plain values, load it there and save its "
        "`state_dict`.",
    ),
    "cuda": (
        "Sampling on a GPU needs the extra `cuda`, an NVIDIA driver, and a visible device. The message says which one is missing.",
        'Run `hoptrain doctor --gpu`, which checks each of them and prints the remedy. Or use `device="cpu"` or `--data.sampler_device cpu`.',
    ),
}
"""Name at the end of an error message -> (cause, remedy), for errors whose explanation needs more than one line.

``hoptrain explain NAME`` and docs/errors.md show them.
"""


def explain_hint(name: str) -> str:
    """Return the end of a message that points to its entry in ``EXPLAINED``."""
    return f" [hoptrain explain {name}]"


def one_line(error: BaseException) -> str:
    """Return an exception's message in one line, without an error number; its class name if it has no message."""
    text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror and error.filename else str(error)
    return re.sub(r"^\[Errno -?\d+\] ", "", " ".join(text.split())) or type(error).__name__


def printable(text: str, keep: str = "") -> str:
    r"""Return text with control characters and unprintable characters escaped, because names in a file could control the terminal.

    Args:
        text: the text to show.
        keep: characters that are not escaped, such as line ends.

    Examples:
        >>> print(printable("a name \x1b[31m"))
        a name \x1b[31m
    """
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def an(noun: object) -> str:
    """Return a noun with its indefinite article, such as ``an int64`` or ``a float32``."""
    return f"{'an' if str(noun).startswith(('a', 'e', 'i', 'o', 'nd')) else 'a'} {noun}"


def join_limited(names: Iterable[object], most: int = 8) -> str:
    """Return the first names as text for a message: ``a, b and 18 more``."""
    shown = [":".join(name) if isinstance(name, tuple) else str(name) for name in names]
    return ", ".join(shown) if len(shown) <= most else f"{', '.join(shown[: most - 1])} and {len(shown) - most + 1} more"


def not_carried(name: str, kind: str, left: Iterable[str], remedy: str = "") -> dict[str, Any]:
    """Log a warning about attributes ``left`` that a data set of class ``kind`` cannot store, and return them as an entry for ``meta``."""
    names = sorted(left)
    if names:
        _log.warning("%s: a %s cannot store %s: batches will not have them%s", name, kind, join_limited(names), remedy)
    return {"not_carried": names} if names else {}


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return ``did you mean X?`` with up to two names of ``known`` closest to ``name``; "" if none is close.

    Names may have components, such as ``data.batch_size`` or ``synthetic:reddit``. A name with a missing (``batch_size``) or truncated
    (``data.batch``) component counts as close. Names with the same first component are preferred.
    """
    last = _last_part(name)
    if not last:
        return ""
    near = [each for each in known if _last_part(each) == last] or [each for each in known if each.startswith(name)]
    beside = [each for each in known if each.partition(".")[0] == name.partition(".")[0]] if "." in name else []
    near = near or difflib.get_close_matches(name, beside or known, n=2, cutoff=0.7)
    if not near:  # the first component of the dotted name is misspelt or missing
        lasts = difflib.get_close_matches(last, [_last_part(each) for each in known], n=1, cutoff=0.7)
        near = [each for each in known if _last_part(each) in lasts]
    return f"did you mean {' or '.join(near[:2])}?" if near else ""


def _last_part(name: str) -> str:
    return re.split("[.:]", name)[-1]


def check_choice(option: str, value: object, choices: Sequence[str]) -> None:
    """Raise InputError if a value is not one of ``choices``.

    Raises:
        InputError: ``value`` is not among the choices; the message suggests the closest one.
    """
    if value not in choices:
        near = f"; {hint}" if isinstance(value, str) and (hint := did_you_mean(value, choices)) else ""
        raise InputError(f"{option} is {value!r}: it must be one of {', '.join(choices)}{near}")


@contextmanager
def error_context(what: str) -> Iterator[None]:
    """Prefix the message of an InputError raised in the body with ``what``, which names the object concerned."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


_SIZES = {
    "in_channels": ("in_feats", "in_dim", "input_dim", "num_features", "num_node_features"),
    "hidden_channels": ("hidden_feats", "hidden_dim", "hidden_size", "hidden", "n_hidden", "num_hidden", "h_feats"),
    "out_channels": ("out_feats", "out_dim", "output_dim"),
    "num_classes": ("n_classes", "out_channels", "out_feats", "out_dim", "output_dim"),
    "num_layers": ("n_layers", "num_convs"),
    "edge_channels": ("edge_dim", "num_edge_features", "edge_feats"),
    "heads": ("num_heads", "n_heads"),
    "dropout": ("feat_drop", "drop_rate", "p"),
    "arch": ("conv_type", "aggregator_type"),
}
OTHER_NAMES: Final[Mapping[str, Sequence[str]]] = {
    "fanouts=[15, 10]": ("num_neighbors", "fan_outs", "fan_out", "fanout", "num_samples", "sizes"),
    "sampler=NeighborSampler([15, 10])": ("num_neighbors", "fanouts", "fan_outs", "fanout", "graph_sampler", "num_samples", "sizes"),
    "split='train' or split=ids": ("input_nodes", "node_idx", "nodes", "indices"),
    "num_negatives=1": ("neg_sampling_ratio", "neg_sampling", "num_neg_samples", "num_neg", "negative_sampler"),
    "weighted=True": ("weight_attr", "prob"),
    "data=DATA (a data set)": ("dataset", "graph"),
    "dataset=DATA (a name, a folder or a data set)": ("data", "graph"),
    "Graph.from_edges(src, dst, num_nodes), or indptr=offsets": ("edge_index", "num_nodes"),
    "x=features": ("feat", "features", "node_features", "node_feats"),
    "edge_attr=features": ("edge_feat", "edge_feats", "edge_features"),
    "y=labels": ("label", "labels", "targets"),
    "splits={'train': mask, 'val': mask, 'test': mask}": ("train_mask", "val_mask", "test_mask", "masks"),
    "graph=Graph.from_edges(src, dst, num_nodes, weights=...)": ("edge_weight", "edge_weights", "weights"),
    "graph=Graph.from_edges(src, dst, num_nodes, times=...)": ("time", "times", "edge_time"),
    "graph=Graph.from_edges(src, dst, num_nodes)": ("num_nodes", "adj_t"),
} | {f"{here}=...": names for here, names in _SIZES.items()}
"""Arguments of hoptrain's classes -> their names in other libraries. The name before the first "=" is that of hoptrain's argument."""


def explain_keywords(cls: SomeClass) -> SomeClass:
    """Make a class raise InputError, with the name that hoptrain has, for an argument that it does not have but other libraries do; a class decorator."""
    init = cls.__init__

    @wraps(init)
    def explained(self: Any, *args: Any, **options: Any) -> None:
        try:
            init(self, *args, **options)
        except TypeError as error:
            if "argument" in str(error) and (hint := _keyword_hint(type(self), options)):
                raise InputError(hint) from None
            raise

    cls.__init__ = explained
    return cls


def _keyword_hint(kind: type[Any], options: Iterable[str]) -> str:
    """Return a message about the first of the keywords ``options`` that a class does not have but whose name here is known; "" if there is none."""
    inits = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    own, known = signature(kind.__init__).parameters, {name for init in inits for name in signature(init).parameters}
    for name in options:
        if name in own:
            continue
        for here, names in OTHER_NAMES.items():
            if name in names and (found := re.search(r"\w+(?==)", here)) and found[0] in own:
                return f"{kind.__name__} has no argument {name}: give {here} instead"
        if name not in known:
            near = did_you_mean(name, sorted(known - {"self"}))
            return f"{kind.__name__} has no argument {name}: {near or f'help({kind.__name__}) lists its arguments'}"
    return ""
