"""All-gather of small JSON values among all ranks of a training, over torch's store, so that all ranks make the same decisions."""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any

from hoptrain.engine.deadline import Deadline

PATIENCE_S = 300.0
"""Maximum time in seconds that a rank waits for the other ranks. It is long, since some ranks may have more data to read."""
_LOOK_S = 0.005
_numbers = itertools.count()  # numbers the all-gather objects, which every rank creates in the same order


class Meeting:
    """An all-gather among ranks over torch's store. Values are sent as JSON, so nothing is unpickled.

    Attributes:
        rank: rank of this process.
        world_size: number of ranks.
    """

    def __init__(self, store: Any, rank: int, world_size: int, patience_s: float = PATIENCE_S, name: str | None = None) -> None:
        """Create an all-gather; nothing is sent yet.

        Args:
            store: torch's store, or an object with the methods ``set``, ``check`` and ``get``.
            rank: rank of this process.
            world_size: number of ranks.
            patience_s: maximum number of seconds that a rank waits for the other ranks.
            name: key that distinguishes this meeting from others in the store, equal on all ranks. By default a counter, for which all ranks must create
                their meetings in the same order.
        """
        self.rank: int = rank
        self.world_size: int = world_size
        self._store, self._patience_s = store, patience_s
        self._name, self._number = f"hoptrain meeting {next(_numbers) if name is None else name}", 0

    def exchange(self, what: str, mine: Any, more_s: float = 0.0) -> list[Any]:
        """Return the values of all ranks, by rank. All ranks must call this at the same point of the program.

        Args:
            what: description of the value, for the error message.
            mine: value of this rank, of types that JSON supports.
            more_s: number of seconds to wait in addition to ``patience_s``.

        Raises:
            RuntimeError: a rank did not send its value in time.
            RuntimeError: a rank has not answered in time.
        """
        place = f"{self._name}.{self._number}"
        self._number += 1
        self._store.set(f"{place}.{self.rank}", json.dumps(mine))
        patience = Deadline(self._patience_s + more_s)
        missing = set(range(self.world_size))
        while missing := {rank for rank in missing if not self._store.check([f"{place}.{rank}"])}:
            if patience.is_over():
                raise RuntimeError(
                    f"rank {min(missing)} has not reported {what} within {self._patience_s + more_s:.0f} s: all ranks must iterate their loaders alike"
                )
            time.sleep(_LOOK_S)
        return [json.loads(self._store.get(f"{place}.{rank}")) for rank in range(self.world_size)]


def meeting_of(world_size: int) -> Meeting | None:
    """Return a new all-gather among the ranks of torch's process group; None without a group, or if the group does not have ``world_size`` ranks."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    group = torch.distributed.group.WORLD
    if world_size == 1 or group.size() != world_size:
        return None
    return Meeting(group.get_group_store(), group.rank(), world_size)
