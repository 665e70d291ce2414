"""The ranks of a run meet: each says something, and each hears what all have said. So they decide alike."""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any

from hoptrain.engine.deadline import Deadline

PATIENCE_S = 300.0
"""How long a rank waits for the others: they come from the same place in the program, but may have had more to read."""
_LOOK_S = 0.005
_numbers = itertools.count()  # of meetings; every rank makes the same ones, in the same order


class Meeting:
    """What ranks tell one another, over the store by which they met. What is said is JSON, so nothing is unpickled.

    Attributes:
        rank: this process's.
        world_size: how many there are.
    """

    def __init__(self, store: Any, rank: int, world_size: int, patience_s: float = PATIENCE_S, name: str | None = None) -> None:
        """Prepare to exchange answers.

        Args:
            store: torch's store, or an object with its ``set``, ``check`` and ``get``.
            rank: of this process.
            world_size: number of ranks.
            patience_s: seconds that a rank waits for the others.
            name: tells this meeting from the others in the store, the same on all ranks; by default its number in this process, for which every rank has to
                make its meetings in the same order.
        """
        self.rank: int = rank
        self.world_size: int = world_size
        self._store, self._patience_s = store, patience_s
        self._name, self._number = f"hoptrain meeting {next(_numbers) if name is None else name}", 0

    def exchange(self, what: str, mine: Any, more_s: float = 0.0) -> list[Any]:
        """What all ranks say, by rank; all of them have to ask, at the same place of their program.

        Args:
            what: the question, for whoever waits in vain.
            mine: this rank's answer, of what JSON has.
            more_s: seconds that the others may need beyond the usual.

        Raises:
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
                    f"rank {min(missing)} has not said {what} within {self._patience_s + more_s:.0f} s: all ranks have to iterate their loaders alike"
                )
            time.sleep(_LOOK_S)
        return [json.loads(self._store.get(f"{place}.{rank}")) for rank in range(self.world_size)]


def meeting_of(world_size: int) -> Meeting | None:
    """A new meeting of all ranks of torch's process group; None if there is none, or if it has another number of ranks."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    group = torch.distributed.group.WORLD
    if world_size == 1 or group.size() != world_size:
        return None
    return Meeting(group.get_group_store(), group.rank(), world_size)
