"""``WorkerOptions``: options of worker processes and of the queue between them and the trainer."""

from __future__ import annotations

from dataclasses import dataclass

from hoptrain.engine.errors import InputError
from hoptrain.engine.queue.preflight import free_space

START_S = 120.0
"""Minimum timeout in seconds for the start of a worker process. A longer ``timeout`` takes precedence."""
_LEAST = {"prefetch_factor": 1, "timeout": 0.1, "max_restarts": 0}


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Options of worker processes and their queue.

    Attributes:
        prefetch_factor: batches that each worker may have ready in addition to the one in use, at least 1.
        timeout: seconds to wait for a batch before its worker is replaced, at least 0.1. A worker process that is still starting has at least 120 s.
        max_restarts: number of replacements of a worker without a batch in between. After that number, an error ends the run.
        buffer_dir: folder on a disk for the queue's unnamed files if shared memory is short; by default the queue is in shared memory.

    Raises:
        InputError: a number is too small; the folder cannot hold files.

    Examples:
        >>> from hoptrain import NeighborSampler, WorkerOptions, SampleLoader, load_dataset
        >>> options = WorkerOptions(prefetch_factor=4, timeout=30.0)  # batches that each worker may have ready; seconds after which it is replaced
        >>> loader = SampleLoader(load_dataset("digits-knn"), NeighborSampler([5]), num_workers=2, worker_options=options)
        >>> len(loader)
        2
    """

    prefetch_factor: int = 2
    timeout: float = 120.0
    max_restarts: int = 3
    buffer_dir: str | None = None

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}: must be at least {least}; give {least} or more")
        if self.buffer_dir is not None:
            free_space(self.buffer_dir)


DEFAULTS = WorkerOptions()
