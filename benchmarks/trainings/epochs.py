"""Code that the scripts share: timing of epochs while a script runs them, and the accuracy at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from hoptrain.benchmarks.common.processes import cpu_seconds, family, memory


class Epochs:
    """A timer of a training's epochs: ``for _ in epochs`` runs one warm-up epoch, which starts workers and compiles, and then the timed epochs.

    Attributes:
        number: number of epochs, including the first one.
        first_s: seconds of the first epoch.
        wall_s: seconds of each timed epoch.
        cpu_s: CPU seconds of the process and its workers in each timed epoch.
        used: bytes after the last epoch: ``peak_rss``, ``pss`` and ``shared`` of all processes, and ``gpu``, the used memory of the GPU.
    """

    def __init__(self, counted: int, device: str) -> None:
        """Prepare ``counted`` timed epochs and the warm-up epoch, on ``device``."""
        self.number = counted + 1
        self.first_s = 0.0
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []
        self.used: dict[str, int] = {}
        self._on_gpu = device == "cuda"
        self._begin_s = self._begin_cpu_s = 0.0
        self._done = 0

    def __iter__(self) -> Iterator[int]:
        """Run the epochs: yield the index of each, and time the body of the loop."""
        for number in range(self.number):
            self.begin()
            yield number
            self.end()

    def begin(self) -> None:
        """Start the clocks of an epoch. Finding the workers takes milliseconds, which are not counted."""
        self._begin_cpu_s = _of_workers() + time.process_time()
        self._begin_s = time.perf_counter()

    def end(self) -> None:
        """Wait for the GPU and stop the clocks. After the last epoch also measure the memory, while the workers are alive."""
        if self._on_gpu:
            torch.cuda.synchronize()
        wall_s = time.perf_counter() - self._begin_s
        cpu_s = time.process_time() + _of_workers() - self._begin_cpu_s
        if self._done:
            self.wall_s.append(wall_s)
            self.cpu_s.append(cpu_s)
        else:
            self.first_s = wall_s
        self._done += 1
        if self._done == self.number:
            self.used = memory(family()) | {"gpu": _gpu_bytes() if self._on_gpu else 0}


def _of_workers() -> float:
    """Return the CPU seconds of this process's children."""
    return cpu_seconds(family()[1:])


def _gpu_bytes() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free


def accuracy(batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return the fraction of correct predictions over batches of logits (B, C) and labels (B,)."""
    right = [logits.argmax(1) == labels for logits, labels in batches]
    return float(torch.cat(right).float().mean())
