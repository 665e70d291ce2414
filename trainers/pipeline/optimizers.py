"""The state of an optimiser whose parameters are divided among processes, as that of one process with all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import nn
from torch.optim import Optimizer

from hoptrain.engine import InputError


def named_state(optimizer: Optimizer, module: nn.Module) -> dict[str, Any]:
    """The state of each parameter of ``module`` by its name; none for those that the optimiser has not stepped yet.

    Raises:
        InputError: the optimiser has several groups of parameters.
    """
    optimizer = _plain(optimizer)
    if len(optimizer.param_groups) != 1:
        raise InputError(
            f"{len(optimizer.param_groups)} groups of parameters in a pipeline: stages keep the state of one; use a single group"
        )
    return {name: optimizer.state[parameter] for name, parameter in module.named_parameters() if parameter in optimizer.state}


def whole_state(optimizer: Optimizer, state: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The ``state_dict`` of an optimiser of all parameters, from the states by name.

    Args:
        optimizer: has the options.
        state: of each parameter.
        names: of all parameters, in the order in which an optimiser of the whole module would have them.
    """
    options = {key: value for key, value in _plain(optimizer).param_groups[0].items() if key != "params"}
    numbered = {number: state[name] for number, name in enumerate(names) if name in state}
    return {"state": numbered, "param_groups": [{**options, "params": list(range(len(names)))}]}


def own_state(state: Mapping[str, Any], names: Sequence[str], module: nn.Module) -> dict[str, Any]:
    """The part of a whole ``state_dict`` that is of the parameters which ``module`` has, in its order."""
    number = {name: i for i, name in enumerate(names)}
    own = [number[name] for name, _ in module.named_parameters()]
    group = state["param_groups"][0]
    return {
        "state": {i: state["state"][old] for i, old in enumerate(own) if old in state["state"]},
        "param_groups": [{**group, "params": list(range(len(own)))}],
    }


def _plain(optimizer: Optimizer) -> Optimizer:
    return optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
