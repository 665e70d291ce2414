"""The queue between worker processes and the trainer: what can be chosen."""

from __future__ import annotations

from dataclasses import dataclass

from hoptrain.engine.errors import InputError
from hoptrain.engine.queue.preflight import free_space

START_S = 120.0
"""Seconds that a worker process has at least to start, before it makes its first batch."""
_LEAST = {"prefetch": 1, "stall_timeout": 0.1, "max_restarts": 0}


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """How batches come from worker processes.

    Attributes:
        prefetch: batches that each worker may have ready beyond the one in use, at least 1.
        stall_timeout: seconds without a batch that is due, after which its worker is replaced, at least 0.1. A process that starts has 120 s at least.
        max_restarts: replacements of a worker in a row, without a batch from it in between, before an error ends the run.
        slots_dir: folder for the queue where memory is short: files without a name there, mapped; by default the queue lies in memory.

    Raises:
        InputError: numbers that cannot be, a folder that cannot hold files.

    Examples:
        >>> from hoptrain import NeighborSampler, QueueOptions, SampleLoader, load_dataset
        >>> queue = QueueOptions(prefetch=4, stall_timeout=30.0)  # batches that each worker may have ready; seconds after which it is replaced
        >>> loader = SampleLoader(load_dataset("digits-knn"), NeighborSampler([5]), num_workers=2, queue=queue)
        >>> len(loader)
        2
    """

    prefetch: int = 2
    stall_timeout: float = 120.0
    max_restarts: int = 3
    slots_dir: str | None = None

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}: it is at least {least}; correct it")
        if self.slots_dir is not None:
            free_space(self.slots_dir)


DEFAULTS = QueueOptions()
