"""Bulks that are queued by one call, a CUDA graph, in place of one for each launch and copy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable

from hoptrain.engine.errors import one_line
from hoptrain.engine.gpu_memory.device_stream import DeviceStream

MOST_SHAPES = 8
"""Shapes of which graphs are kept: an epoch has that of its bulks and of the last one, a training those of validation as well."""


class Replays:
    """Of one driver's bulks, by shape, which is all that the host's part of queueing one depends on.

    A bulk is captured if one of its shape was queued launch by launch before, since a capture may neither make memory nor compile.
    """

    def __init__(self, stream: DeviceStream, is_on: bool) -> None:
        """Start with none; if it is not on, none comes."""
        self._stream, self._is_on = stream, is_on
        self._by_shape: dict[Hashable, Callable[[], None] | None] = {}

    def twin(self) -> Replays:
        """For bulks in other buffers."""
        return Replays(self._stream, self._is_on)

    def of(self, shape: Hashable, work: Callable[[], None]) -> Callable[[], None] | None:
        """What queues a bulk of this shape in one call, as ``work`` would; None if that has to be done launch by launch."""
        if not self._is_on or shape not in self._by_shape:
            return None
        replay = self._by_shape.pop(shape) or self._captured(work)
        self._by_shape[shape] = replay
        return replay

    def note(self, shape: Hashable) -> None:
        """A bulk of this shape was queued launch by launch. Of too many shapes the one is forgotten that was longest not asked for."""
        self._by_shape[shape] = None
        if len(self._by_shape) > MOST_SHAPES:
            del self._by_shape[next(iter(self._by_shape))]

    def clear(self) -> None:
        """Forget all, since something has changed or moved that they hold."""
        self._by_shape.clear()

    def _captured(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """What queues ``work``; None where a device cannot, which is said once."""
        try:
            return self._stream.capture(work)
        except Exception as error:  # the driver's own errors have no common class
            self._is_on = False
            warnings.warn(
                f"bulks are queued launch by launch, since they cannot be captured: {one_line(error)}", RuntimeWarning, stacklevel=2
            )
            return None
