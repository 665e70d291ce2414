"""Feedback from training to a sampler: gradient norms, or histories of activations. ``Sampler.feedback`` lists what a sampler needs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from pytorch_lightning import Trainer
from torch import Tensor, nn

from hoptrain.engine import Dataset, InputError
from hoptrain.samplers import MiniBatch, Sampler

Apply: TypeAlias = Callable[[Tensor, MiniBatch, Tensor], Tensor]
"""A function that maps x (S, F), a mini-batch of tensors and degrees (S,) to the model's outputs for the seeds."""
FEEDBACK = {"gradient-norms": "gradient_norms", "history": "variance_reduction"}
"""Names that a sampler may list in ``feedback``, and the submodules that implement them. Each has a function ``make`` with the arguments of
``feedback_for``."""


class Feedback(nn.Module):
    """A base class of training hooks that a sampler needs. By default, methods do nothing. Each rank has its own buffers, which are not weights."""

    def wrap(self, apply: Apply) -> Apply:
        """Return the function that applies the model in training: ``apply`` itself, or a function that replaces or observes it."""
        return apply

    def commit(self) -> None:
        """Apply the changes of the batch that has been trained on."""

    def begin_epoch(self, trainer: Trainer) -> None:
        """Prepare a new epoch; every rank calls it."""

    def tables(self) -> dict[str, Tensor]:
        """Return the tensors that this rank adds to a checkpoint, by name. Loading a checkpoint overwrites their values."""
        return {}


def feedback_for(sampler: Sampler, model: nn.Module, data: Dataset, *, normalize: bool) -> dict[str, Feedback]:
    """Return the feedback that ``sampler`` needs, by name.

    Args:
        sampler: sampler of the training.
        model: model that is trained.
        data: data set that it is trained on.
        normalize: divide each node's features by their sum.

    Raises:
        InputError: the sampler lists an unknown name, or the model does not support the feedback.
    """
    if unknown := [name for name in sampler.feedback if name not in FEEDBACK]:
        raise InputError(
            f"{type(sampler).__name__} has feedback {unknown[0]!r}: it must be one of {', '.join(FEEDBACK)}; change the sampler's feedback"
        )
    modules: dict[str, Any] = {name: import_module(f"{__name__}.{FEEDBACK[name]}") for name in sampler.feedback}
    return {name: module.make(sampler, model, data, normalize) for name, module in modules.items()}
