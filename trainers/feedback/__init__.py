"""What training tells a sampler, or keeps for it: gradient norms, histories of activations. A sampler asks by ``Sampler.feedback``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from pytorch_lightning import Trainer
from torch import Tensor, nn

from hoptrain.engine import Dataset, InputError
from hoptrain.samplers import MiniBatch, Sampler

Apply: TypeAlias = Callable[[Tensor, MiniBatch, Tensor], Tensor]
"""(x (S, F), mini-batch as tensors, degrees (S,)) to what the model returns for the seeds."""
FEEDBACK = {"gradient-norms": "gradient_norms", "history": "variance_reduction"}
"""The names that a sampler may ask for, and the modules here that have them: each has a function ``make``, with the arguments of ``feedback_for``."""


class Feedback(nn.Module):
    """A part of a task's training that a sampler asks for; each method does nothing by default. Its buffers are each rank's own, and no weights."""

    def wrap(self, apply: Apply) -> Apply:
        """Return how the model is applied in training: ``apply``, or something else that may see what it returns."""
        return apply

    def commit(self) -> None:
        """Keep what the batch that is done changes."""

    def begin_epoch(self, trainer: Trainer) -> None:
        """Begin an epoch; every rank calls it."""

    def tables(self) -> dict[str, Tensor]:
        """Return what a checkpoint has of it, for each rank its own, by name: tensors that are written to when it is read."""
        return {}


def feedback_for(sampler: Sampler, model: nn.Module, data: Dataset, *, normalize: bool) -> dict[str, Feedback]:
    """Return what ``sampler`` asks for, by name.

    Args:
        sampler: that of the training.
        model: what is trained.
        data: what it is trained on.
        normalize: divide each node's features by their sum.

    Raises:
        InputError: it asks for an unknown name, or for something that this model cannot give.
    """
    if unknown := [name for name in sampler.feedback if name not in FEEDBACK]:
        raise InputError(f"{type(sampler).__name__} asks for {unknown[0]!r}: training gives {', '.join(FEEDBACK)}; correct its feedback")
    modules: dict[str, Any] = {name: import_module(f"{__name__}.{FEEDBACK[name]}") for name in sampler.feedback}
    return {name: module.make(sampler, model, data, normalize) for name, module in modules.items()}
