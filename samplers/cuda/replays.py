"""``Replays``, the captured bulks of a driver, each of which is queued by a single call of a CUDA graph instead of launch by launch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable

from hoptrain.engine.errors import one_line
from hoptrain.engine.gpu_memory.device_stream import DeviceStream

MOST_SHAPES = 8
"""Maximum number of bulk shapes whose CUDA graphs are kept. Training and validation need two shapes each, that of most bulks and that of the last bulk
of an epoch; the others are spare."""


class Replays:
    """The captured bulks of one driver, by shape. The host's work for a bulk depends only on its shape.

    A bulk is captured if one of its shape was queued launch by launch before, since a capture may neither allocate memory nor compile.
    """

    def __init__(self, stream: DeviceStream, is_on: bool) -> None:
        """Begin without captured bulks; with ``is_on`` False no bulk is ever captured."""
        self._stream, self._is_on = stream, is_on
        self._by_shape: dict[Hashable, Callable[[], None] | None] = {}

    def double_buffer(self) -> Replays:
        """Return an empty ``Replays`` for bulks in other buffers."""
        return Replays(self._stream, self._is_on)

    def of(self, shape: Hashable, work: Callable[[], None]) -> Callable[[], None] | None:
        """Return a function that queues a bulk of this shape by one call, as ``work`` would; None if it was not captured."""
        if not self._is_on or shape not in self._by_shape:
            return None
        replay = self._by_shape.pop(shape) or self._captured(work)
        self._by_shape[shape] = replay
        return replay

    def note(self, shape: Hashable) -> None:
        """Note that a bulk of this shape was queued launch by launch. Beyond ``MOST_SHAPES`` the least recently used shape is discarded."""
        self._by_shape[shape] = None
        if len(self._by_shape) > MOST_SHAPES:
            del self._by_shape[next(iter(self._by_shape))]

    def clear(self) -> None:
        """Discard all captured bulks, since a buffer or value that they contain has changed."""
        self._by_shape.clear()

    def _captured(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """Capture ``work`` and return a function that queues it; None, with one warning, if the device cannot capture."""
        try:
            return self._stream.capture(work)
        except Exception as error:  # errors of the CUDA driver have no common class
            self._is_on = False
            warnings.warn(
                f"CUDA graphs: bulks are queued launch by launch, which is slower, since they cannot be captured: {one_line(error)}; set cuda_graphs=False",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
