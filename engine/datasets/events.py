"""Events of a temporal interaction graph, such as messages between users, and loading from ``.npz`` files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, as_array, check_numbers, is_integer
from hoptrain.engine.columns import as_ids, check_ids
from hoptrain.engine.datasets.npz import find_npz, not_found
from hoptrain.engine.datasets.pyg import EVENTS, dataset_of, downloaded
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.features.splits import SPLITS
from hoptrain.engine.files.untrusted import read_npz
from hoptrain.engine.graph import Graph

_LARGEST = 2**53
"""Largest integer up to which float64 represents all integers exactly."""
_NONE: Array = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class Events:
    """E events in order of time, validated by the constructor. Arrays may be NumPy arrays or torch tensors.

    Events are identified by their index. Events with equal times keep their order.

    Attributes:
        src: (E,) source nodes in [0, V).
        dst: (E,) destination nodes in [0, V).
        t: (E,) times, whole numbers that never decrease, of integer or float dtype. Stored as int64.
        messages: (E, D) features of the events, or None. Stored as float32.
        num_nodes: number of nodes V; by default 0, which means the largest node plus one.
        destinations: (N,) nodes that may be destinations, from which negatives are drawn; by default the nodes that occur in ``dst``.
        ends: event indices (a, b) at which training and validation end: events 0 to a - 1 are for training, a to b - 1 for validation, the others for
            testing. None if the events are to be split by ratios (``divided``).
        name: name of the data set in messages.

    Examples:
        >>> from hoptrain import Events
        >>> events = Events(src=[0, 1, 0, 1], dst=[2, 3, 3, 2], t=[10, 20, 20, 50])
        >>> events.num_nodes, events.destinations
        (4, array([2, 3]))
    """

    src: Array
    dst: Array
    t: Array
    messages: Array | None = None
    num_nodes: int = 0
    destinations: Array = field(default_factory=_NONE.copy)
    ends: tuple[int, int] | None = None
    name: str = "events"

    def __post_init__(self) -> None:
        take = object.__setattr__
        for name in ("src", "dst"):
            take(self, name, as_ids(as_array(getattr(self, name)), f"{self.name}: {name}").astype(np.int64))
        take(self, "t", self._times())
        take(self, "num_nodes", self.num_nodes or int(max(self.src.max(), self.dst.max())) + 1)
        given = as_ids(as_array(self.destinations), f"{self.name}: destinations")
        destinations = np.unique(given if len(given) else self.dst).astype(np.int64)
        take(self, "destinations", destinations)
        named = {"source of event": self.src, "destination of event": self.dst, "entry of destinations,": destinations}
        for what, ids in named.items():
            check_ids(ids, self.num_nodes, f"{self.name}: the {what}")
        if self.messages is not None:
            take(self, "messages", self._messages())
        if self.ends is not None:
            take(self, "ends", self._ends(*self.ends))

    def _times(self) -> Array:
        t = as_array(self.t)
        lengths = {"src": len(self.src), "dst": len(self.dst), "t": t.size}
        if t.ndim != 1 or len(set(lengths.values())) > 1 or not t.size:
            found = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
            raise InputError(
                f"{self.name}: {found} entries: there must be at least one event, with one entry of each; give arrays of equal length"
            )
        if not is_integer(t.dtype) and not (t.dtype.kind == "f" and (np.abs(t) < _LARGEST).all() and (t == np.rint(t)).all()):
            raise InputError(
                f"{self.name}: t is {t.dtype} with values that are not whole: times must be whole numbers below 2**53; use a smaller unit"
            )
        if t.dtype == np.uint64:
            raise InputError(f"{self.name}: t is uint64: times must be integers up to int64; convert them")
        whole: Array = t.astype(np.int64)
        falls = np.flatnonzero(whole[1:] < whole[:-1])
        if len(falls):
            k = int(falls[0]) + 1
            raise InputError(
                f"{self.name}: event {k} has time {whole[k]} and the one before {whole[k - 1]}: events must be in order of time; sort them by t"
            )
        return whole

    def _messages(self) -> Array:
        messages = as_array(self.messages)
        if messages.ndim != 2 or len(messages) != len(self.t) or not messages.shape[1]:
            raise InputError(
                f"{self.name}: messages have shape {messages.shape}: they must be one row of numbers for each of {len(self.t):,} events; reshape them"
            )
        check_numbers(self.name, "messages", messages)
        return messages.astype(np.float32)

    def _ends(self, train: int, val: int) -> tuple[int, int]:
        if not 0 < train <= val <= len(self.t):
            raise InputError(
                f"{self.name}: ends are {train} and {val}: they must satisfy 0 < training <= validation <= {len(self.t):,} events; "
                "give the numbers of events up to the end of each"
            )
        return train, val

    def __repr__(self) -> str:
        return f"Events({self.name}, {len(self.t):,} events of {self.num_nodes:,} nodes)"

    @property
    def message_channels(self) -> int:
        """Number of message features, D; 0 without messages."""
        return 0 if self.messages is None else self.messages.shape[1]

    @property
    def splits(self) -> Mapping[str, Array]:
        """Event indices by split name, ``train``, ``val`` and ``test``, without empty splits.

        Raises:
            InputError: ``ends`` is None.
        """
        if self.ends is None:
            raise InputError(
                f"{self.name} has no ends of training and validation: splits need them; give Events(ends=...), or call divided()"
            )
        bounds = (0, *self.ends, len(self.t))
        parts = {name: np.arange(bounds[i], bounds[i + 1]) for i, name in enumerate(SPLITS)}
        return {name: numbers for name, numbers in parts.items() if len(numbers)}

    def divided(self, val_ratio: float, test_ratio: float) -> Events:
        """Return a copy that is split by ratios, as in PyG's ``TemporalData.train_val_test_split``. Events of equal times are in one split.

        Args:
            val_ratio: fraction of the events for validation.
            test_ratio: fraction of the events for testing.

        Raises:
            InputError: a ratio is negative, no events are left for training, or a split with a positive ratio is empty.
        """
        if not (val_ratio >= 0 and test_ratio >= 0 and val_ratio + test_ratio < 1):
            raise InputError(
                f"val_ratio is {val_ratio} and test_ratio {test_ratio}: both must be 0 or more, and their sum below 1; lower them"
            )
        times = np.quantile(self.t, [1 - val_ratio - test_ratio, 1 - test_ratio])
        train, val = (int(np.searchsorted(self.t, time, side="right")) for time in times)
        for split, share, number in (("val", val_ratio, val - train), ("test", test_ratio, len(self.t) - val)):
            if share and not number:
                raise InputError(
                    f"{split}_ratio is {share} of {len(self.t):,} events: the {split} split has no event; give a larger share, or 0 for none"
                )
        return replace(self, ends=(train, val))

    def graph(self) -> Graph:
        """Return the events as edges in both directions. Event k gives the edge ids k and E + k. Times are event indices, so they are distinct."""
        src, dst = np.concatenate([self.src, self.dst]), np.concatenate([self.dst, self.src])
        return Graph.from_edges(src, dst, self.num_nodes, times=np.tile(np.arange(len(self.t)), 2))

    @classmethod
    def from_pyg(cls, data: Any, **others: Any) -> Events:
        """Read PyG's ``TemporalData``: ``src``, ``dst``, ``t`` and, if present, ``msg``. ``others`` are further arguments of ``Events``.

        Raises:
            InputError: an attribute is missing, or the events are invalid.
        """
        missing = [name for name in ("src", "dst", "t") if getattr(data, name, None) is None]
        if missing:
            raise InputError(
                f"{type(data).__name__} has no {', '.join(missing)}: a PyG TemporalData is needed; give one, or arrays to Events"
            )
        return cls(src=data.src, dst=data.dst, t=data.t, messages=getattr(data, "msg", None), **others)


def load_events(name: str, *, root: str | Path | None = None) -> Events:
    """Read a ``.npz`` file with ``src``, ``dst``, ``t`` and optionally ``messages`` (or ``msg``), ``num_nodes``, ``dst_range`` and ``ends``.

    If ``temporal_jodie_wikipedia`` is not found, PyG downloads it.

    Args:
        name: name of the file without ``.npz``, in ``root`` or ``$HOPTRAIN_DATA``; or the path of the file.
        root: folder that holds the file, and to which a missing file is downloaded.

    Raises:
        InputError: the file is not found, or does not hold valid events.

    Examples:
        >>> import numpy as np, tempfile
        >>> from hoptrain import load_events
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/mails.npz", src=[0, 1, 0], dst=[2, 3, 3], t=[10, 20, 20])
        ...     events = load_events("mails", root=folder)
        >>> events.t
        array([10, 20, 20])
    """
    folder = None if root is None else Path(root).expanduser()
    path = Path(name) if name.endswith(".npz") else find_npz(name, folder)
    if path is None and name in EVENTS:
        return Events.from_pyg(downloaded(name, folder, dataset_of)[0], name=name)
    if path is None:
        raise not_found(name, folder, f"put {name}.npz into a folder and name that as root or in $HOPTRAIN_DATA")
    try:
        arrays = read_npz(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({one_line(error)}): it must be a .npz file without pickles; fetch it again") from None
    missing = {"src", "dst", "t"} - arrays.keys()
    if missing:
        raise InputError(f"{path} has no {', '.join(sorted(missing))}: events need src, dst and t; choose another file")
    for key, shapes in (("num_nodes", ((), (1,))), ("ends", ((2,),))):
        if key in arrays and (arrays[key].shape not in shapes or arrays[key].dtype.kind not in "iu"):
            number = "two integers" if key == "ends" else "an integer"
            raise InputError(
                f"{path}: {key} is {arrays[key].dtype} of shape {arrays[key].shape}: it must be {number}; convert it or leave it out"
            )
    return Events(
        src=arrays["src"],
        dst=arrays["dst"],
        t=arrays["t"],
        messages=arrays.get("messages", arrays.get("msg")),
        num_nodes=arrays["num_nodes"].item() if "num_nodes" in arrays else 0,
        destinations=arrays.get("destinations", _NONE),
        ends=tuple(arrays["ends"].tolist()) if "ends" in arrays else None,
        name=path.stem,
    )
