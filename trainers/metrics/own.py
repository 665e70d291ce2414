"""Custom losses and metrics: functions, losses of torch, and metrics of torchmetrics and PyG."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.nn.modules.loss import _Loss
from torchmetrics import Metric, MetricCollection

from hoptrain.engine import InputError

AnyMetric: TypeAlias = Metric | MetricCollection | str
"""A metric or a MetricCollection of torchmetrics, or the name of a metric of the task. The command line tries these types in this order."""
AnyLoss: TypeAlias = nn.Module | Callable[[Tensor, Tensor], Tensor]
"""A function of outputs (N, ...) and targets (N, ...) that returns the loss of each row, (N,) or (N, ...), or their mean, a scalar."""


def name_of(own: object) -> str:
    """Return the name of a function or a class, or of an object's class."""
    return str(getattr(own, "__name__", type(own).__name__))


def check_loss(loss: object) -> Any:
    """Return a custom loss. A loss of torch is returned as a copy with reduction "none", which returns the loss of each row.

    With losses of rows, the loss of a step is the same for any number of ranks and chunks.

    Raises:
        InputError: the loss cannot be called with outputs and targets, or is a loss of torch with another reduction than a mean.
    """
    if not callable(loss) or isinstance(loss, type):
        example = f"{loss.__name__}()" if isinstance(loss, type) else "torch.nn.CrossEntropyLoss()"
        where = ", also as load_from_checkpoint(path, loss=...), since a checkpoint has only its name" if isinstance(loss, str) else ""
        raise InputError(f"loss is {loss!r}: it must be a function of outputs and targets, or an object such as {example}; give one{where}")
    if not isinstance(loss, _Loss):
        return loss
    if loss.reduction not in ("mean", "none"):
        raise InputError(
            f"loss is {name_of(loss)} with reduction {loss.reduction}: the loss of a step is the mean over its rows; set reduction to mean, or none"
        )
    own = copy(loss)
    own.reduction = "none"
    return own


def row_losses(loss: Any, outputs: Tensor, y: Tensor, *, rows_needed: bool = False) -> Tensor:
    """Return the losses (N,) or (N, ...) of rows by a custom ``loss``. If it returns a mean, each row gets the mean.

    Args:
        loss: what ``check_loss`` returned.
        outputs: outputs (N, ...).
        y: targets (N, ...).
        rows_needed: whether rows have weights, so that their mean does not suffice.

    Raises:
        InputError: the loss returns another shape, or is a loss of torch that rejects these outputs and targets.
    """
    given = f"outputs {tuple(outputs.shape)} and targets {tuple(y.shape)} of {y.dtype}"
    try:
        losses = loss(outputs, y)
    except (ValueError, RuntimeError) as error:
        if not isinstance(loss, _Loss):
            raise
        raise InputError(f"loss is {name_of(loss)}: it rejects {given} ({_first_line(error)}); give a loss for these") from error
    if isinstance(losses, Tensor) and losses.is_floating_point():
        if losses.ndim == 0 and not rows_needed:
            return losses.expand(len(y))
        if losses.ndim and len(losses) == len(y):
            return losses
    found = f"{losses.dtype} of shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
    mean = " (no mean, since the sampler weights rows)" if rows_needed else ", or their mean"
    raise InputError(f"loss {name_of(loss)} returned {found} for {given}: it must return the loss of each row{mean}; change it")


def collect(metric: object) -> MetricCollection:
    """Return reset copies of custom metrics, which share no state with the originals.

    Raises:
        InputError: ``metric`` is neither a metric nor a collection of metrics.
    """
    if isinstance(metric, Metric):
        made = MetricCollection([metric.clone()], compute_groups=False)
    elif isinstance(metric, nn.ModuleDict) and len(metric) and all(isinstance(each, Metric) for each in metric.children()):
        # getattr, since PyG's collections have neither prefix nor postfix
        names = {name: getattr(metric, name, None) for name in ("prefix", "postfix")}
        made = MetricCollection([], **names, compute_groups=False)
        for name, each in metric.named_children():  # in the given order; MetricCollection would sort a dictionary
            made[name] = each.clone()  # type: ignore[operator]
    else:
        example = f"{metric.__name__}(...)" if isinstance(metric, type) else "torchmetrics.F1Score(...)"
        raise InputError(
            f"metric is {metric!r}: it must be a name, a metric of torchmetrics such as {example}, or a MetricCollection; give one of them"
        )
    made.reset()
    return made


def collect_named(name: str, metric: Metric) -> MetricCollection:
    """Return a collection of one metric, which is logged under the task's name for this metric."""
    return MetricCollection({name: metric}, compute_groups=False)


def metrics_in(metrics: nn.Module) -> dict[str, Metric]:
    """Return all metrics inside a module by their path, including metrics inside wrapper metrics."""
    return {name: each for name, each in metrics.named_modules() if isinstance(each, Metric)}


def keeps_outputs(metrics: MetricCollection) -> bool:
    """Return whether a metric stores all outputs until it is computed, such as ROC AUC."""
    return any(isinstance(state, list) for each in metrics_in(metrics).values() for state in each.metric_state.values())


def update_metrics(metrics: MetricCollection, *found: Tensor) -> None:
    """Update custom metrics.

    Raises:
        InputError: a metric rejects these tensors.
    """
    try:
        metrics.update(*found)
    except (ValueError, RuntimeError, TypeError, IndexError) as error:
        names = ", ".join(map(str, metrics.keys()))
        shapes = " and ".join(f"{each.dtype} of shape {tuple(each.shape)}" for each in found)
        raise InputError(
            f"metric is {names}: it rejects {shapes} ({_first_line(error)}); give a metric for such outputs and targets"
        ) from error


def compute_metrics(metrics: MetricCollection) -> dict[str, Tensor]:
    """Return the values of metrics by name.

    Raises:
        InputError: the value of a metric is not a scalar.
    """
    values = metrics.compute()
    for name, value in values.items():
        if isinstance(value, Tensor) and value.numel() == 1:
            continue
        found = f"{value.numel()} values" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InputError(f"metric {name} has {found}: it must be one number; set its average, or wrap it in torchmetrics' ClasswiseWrapper")
    return values


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
