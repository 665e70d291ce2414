"""The optimiser states of the stages are merged into the state of the whole model, and split again."""

import copy

import torch
from cases.mistakes import refused
from torch import nn

from hoptrain.trainers.pipeline.optimizers import named_state, own_state, whole_state


def stepped(module):
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    module(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return optimizer


def test_parts_make_the_whole_and_the_whole_gives_the_parts():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    whole = stepped(module)
    names = [name for name, _ in module.named_parameters()]
    by_name = named_state(whole, module)
    together = whole_state(whole, by_name, names)
    assert str(together) == str(whole.state_dict())

    for kept in (0, 2):
        stage = copy.deepcopy(module)
        stage[2 - kept] = nn.Module()
        optimizer = torch.optim.Adam(stage.parameters(), lr=0.7)
        optimizer.load_state_dict(own_state(together, names, stage))
        assert optimizer.param_groups[0]["lr"] == 0.1
        found = named_state(optimizer, stage)
        assert list(found) == [f"{kept}.weight", f"{kept}.bias"]
        for name, state in found.items():
            assert str(state) == str(by_name[name])


def test_one_group_of_parameters():
    module = nn.Linear(2, 2)
    optimizer = torch.optim.SGD([{"params": [module.weight]}, {"params": [module.bias]}])
    with refused("2 parameter groups", "pipeline stages one", "single group"):
        named_state(optimizer, module)
