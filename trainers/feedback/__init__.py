"""What training tells a sampler, or keeps for it: gradient norms, histories of activations. A sampler asks by ``Sampler.feedback``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hoptrain.engine import Dataset, InputError
from hoptrain.samplers import Sampler

if TYPE_CHECKING:
    from torch import nn

    from hoptrain.trainers.feedback.feedback import Feedback


def _gradient_norms(sampler: Any, model: nn.Module, data: Dataset, normalize: bool) -> Feedback:
    from hoptrain.trainers.feedback.gradient_norms import GradientNorms

    return GradientNorms(sampler, data.graph.num_nodes)


def _history(sampler: Any, model: nn.Module, data: Dataset, normalize: bool) -> Feedback:
    from hoptrain.trainers.feedback.variance_reduction import VarianceReduction

    return VarianceReduction(model, data, normalize=normalize)


FEEDBACK: dict[str, Callable[[Any, nn.Module, Dataset, bool], Feedback]] = {"gradient-norms": _gradient_norms, "history": _history}
"""What a sampler may ask for."""


def feedback_for(sampler: Sampler, model: nn.Module, data: Dataset, *, normalize: bool) -> dict[str, Feedback]:
    """What ``sampler`` asks for, by name.

    Args:
        sampler: that of the training.
        model: what is trained.
        data: what it is trained on.
        normalize: divide each vertex's features by their sum.

    Raises:
        InputError: it asks for something that there is not, or that this model cannot give.
    """
    if unknown := [name for name in sampler.feedback if name not in FEEDBACK]:
        raise InputError(f"{type(sampler).__name__} asks for {unknown[0]!r}: training gives {', '.join(FEEDBACK)}; correct its feedback")
    return {name: FEEDBACK[name](sampler, model, data, normalize) for name in sampler.feedback}
