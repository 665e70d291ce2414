"""What training does for a sampler that asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pytorch_lightning import Trainer
from torch import Tensor, nn

from hoptrain.samplers import MiniBatch

Apply: TypeAlias = Callable[[Tensor, MiniBatch, Tensor], Tensor]
"""(x (S, F), mini-batch as tensors, degrees (S,)) to what the model returns for the seeds."""


class Feedback(nn.Module):
    """Goes with a task's training, which calls these; each does nothing by default. Its buffers are each rank's own, and no weights."""

    def wrap(self, apply: Apply) -> Apply:
        """How the model is applied in training: ``apply``, or something else in its place."""
        return apply

    def see(self, batch: MiniBatch, outputs: Tensor) -> None:
        """What the model returned for a training batch."""

    def commit(self) -> None:
        """The batch is done: keep what it changes."""

    def begin_epoch(self, trainer: Trainer) -> None:
        """An epoch begins; every rank calls it."""

    def tables(self) -> dict[str, Tensor]:
        """What a checkpoint has of it, for each rank its own, by name: tensors that are written to when it is read."""
        return {}
