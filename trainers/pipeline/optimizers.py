"""Conversion between the optimiser states of the stages and the state of an optimiser of the whole model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import nn
from torch.optim import Optimizer

from hoptrain.engine import InputError


def named_state(optimizer: Optimizer, module: nn.Module) -> dict[str, Any]:
    """Return the optimiser's state of each parameter of ``module`` by name, without parameters that no step has updated.

    Raises:
        InputError: the optimiser has several parameter groups.
    """
    optimizer = _plain(optimizer)
    if len(optimizer.param_groups) != 1:
        raise InputError(f"{len(optimizer.param_groups)} parameter groups in a pipeline: stages support one; use a single group")
    return {name: optimizer.state[parameter] for name, parameter in module.named_parameters() if parameter in optimizer.state}


def whole_state(optimizer: Optimizer, state: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the ``state_dict`` of an optimiser of all parameters, given the state of each parameter by name.

    Args:
        optimizer: optimiser whose options, such as the learning rate, the result has.
        state: state of each parameter, by name.
        names: names of all parameters, in the order of an optimiser of the whole model.
    """
    options = {key: value for key, value in _plain(optimizer).param_groups[0].items() if key != "params"}
    numbered = {number: state[name] for number, name in enumerate(names) if name in state}
    return {"state": numbered, "param_groups": [{**options, "params": list(range(len(names)))}]}


def own_state(state: Mapping[str, Any], names: Sequence[str], module: nn.Module) -> dict[str, Any]:
    """Return the part of the whole model's ``state_dict`` that belongs to the parameters of ``module``, in their order."""
    number = {name: i for i, name in enumerate(names)}
    own = [number[name] for name, _ in module.named_parameters()]
    group = state["param_groups"][0]
    return {
        "state": {i: state["state"][old] for i, old in enumerate(own) if old in state["state"]},
        "param_groups": [{**group, "params": list(range(len(own)))}],
    }


def _plain(optimizer: Optimizer) -> Optimizer:
    return optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
