"""What the process that fills a cache hands to sampler processes for the steps in flight, beside rows: the sources of the edges that they draw, and their ids.

It is memory without a name, as ``SharedRows``, whose tags say which step is ready and which is taken; so nothing here is locked or waited for. There are places
for as many steps as are in flight at once, and a place is written again only after all trainers have taken its step.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError, WorkerError, see
from hoptrain.engine.queue.ring import Spec, carve, total_bytes
from hoptrain.engine.queue.shared_memory import anonymous_file
from hoptrain.engine.storage.shared_rows import map_shared


class HandedSources:
    """Places for steps; pickled it is where to find them.

    Attributes:
        path: of the memory, for processes of this user on this machine.
        num_steps: steps in flight.
        num_lists: lists of a step, as many for each rank, rank after rank.
        most: entries of a step at most; memory is taken for those that there are.
        dtype: of an entry.
    """

    def __init__(self, path: str, num_steps: int, num_lists: int, most: int, dtype: Any) -> None:
        """State the layout; nothing is mapped yet."""
        self.path: str = path
        self.num_steps: int = num_steps
        self.num_lists: int = num_lists
        self.most: int = most
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._tags = [0] * num_steps

    def __reduce__(self) -> tuple[Any, ...]:
        return HandedSources, (self.path, *self.layout)

    @property
    def layout(self) -> list[Any]:
        """What it is made of, but for the path."""
        return [self.num_steps, self.num_lists, self.most, self.dtype.str]

    @classmethod
    def make(cls, num_steps: int, num_lists: int, most: int, dtype: Any) -> HandedSources:
        """New memory, which lives as long as the object and those who map it."""
        made = cls("", num_steps, num_lists, most, dtype)
        file = anonymous_file("hoptrain-sources")
        weakref.finalize(made, os.close, file)
        os.fchmod(file, 0o600)
        os.ftruncate(file, total_bytes(made._specs()))
        made.path = f"/proc/{os.getpid()}/fd/{file}"
        return made

    def _specs(self) -> list[Spec]:
        return [
            ("steps", np.dtype(np.int64), (self.num_steps, 1 + self.num_lists)),
            ("sources", self.dtype, (self.num_steps, self.most)),
        ]

    @cached_property
    def _arrays(self) -> dict[str, Array]:
        return carve(map_shared(self.path), self._specs())

    def put(self, tag: int, lists: Sequence[Array], landed: int) -> None:
        """The filler's: hand a step's sources over.

        Args:
            tag: of the step, see ``hoptrain.engine.storage.shared_rows``.
            lists: (num_lists,) of (M,) each.
            landed: the tag of the last step that all trainers have taken.

        Raises:
            InputError: there is too little memory.
        """
        place = next(i for i, own in enumerate(self._tags) if own <= landed)
        steps, sources = self._arrays["steps"], self._arrays["sources"]
        self._tags[place] = tag
        steps[place, 0] = 0
        steps[steps[:, 0] == tag, 0] = 0  # a predecessor's, which ended before it could say so
        steps[place, 1:] = [len(own) for own in lists]
        self._reserve(place, int(steps[place, 1:].sum()))
        np.concatenate(lists, out=sources[place, : steps[place, 1:].sum()])
        steps[place, 0] = tag

    def _reserve(self, place: int, number: int) -> None:
        """Lack of memory is an error here, and no SIGBUS when it is written."""
        begin = self._arrays["sources"].ctypes.data - self._arrays["steps"].ctypes.data + place * self.most * self.dtype.itemsize
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(file, begin, max(1, number * self.dtype.itemsize))
        except OSError as error:
            raise InputError(
                f"the sampled edges of a step need {number * self.dtype.itemsize / 2**20:,.1f} MiB of memory ({error.strerror}): give a smaller "
                "memory, batch_size or fanouts"
            ) from error
        finally:
            os.close(file)

    def get(self, tag: int, lists: range) -> list[Array]:
        """A reader's: some of the lists (M,) of a step that is ready.

        Raises:
            WorkerError: the step is of a run that is over.
        """
        steps, sources = self._arrays["steps"], self._arrays["sources"]
        places = np.flatnonzero(steps[:, 0] == tag)
        if not len(places):
            raise WorkerError(
                "the edges of a step are no longer asked for: its loader was iterated anew; take a new iterator" + see("iterator")
            )
        place = places[0]
        ends = np.concatenate([[0], np.cumsum(steps[place, 1:])])
        return [sources[place, ends[i] : ends[i + 1]] for i in lists]
