"""TGN's memory in plain tensors equals PyG's after each step, and evaluation does not change it."""

import numpy as np
import pytest
import torch
from cases.mistakes import refused
from torch_geometric.nn.models.tgn import IdentityMessage, TGNMemory

from hoptrain.trainers.models.tgn import EventMemory, EventTensors

SIZES = 3, 8, 4  # messages, memory, time


class Last(torch.nn.Module):
    """A slow ``LastAggregator``: it returns each node's latest message, and zeros for nodes without messages."""

    def forward(self, messages, index, t, size):
        rows = [torch.zeros(messages.shape[1])] * size
        for row, node in enumerate(index.tolist()):
            before = [t[i] for i in range(row) if index[i] == node]
            if all(t[row] >= time for time in before):
                rows[node] = messages[row]
        return torch.stack(rows)


def tensors(num_nodes=12, number=150):
    """Return events between any two nodes, with self loops and distinct times, since PyG's choice among equal times is undefined."""
    rng = np.random.default_rng(0)
    src, dst = torch.from_numpy(rng.integers(0, num_nodes, (2, number)))
    return EventTensors(src, dst, torch.from_numpy(np.cumsum(rng.integers(1, 9, number))), torch.randn(number, SIZES[0]))


@pytest.fixture
def memories():
    """Return hoptrain's and PyG's memory with the same weights."""
    torch.manual_seed(0)
    ours, theirs = EventMemory(12, *SIZES), TGNMemory(12, *SIZES, IdentityMessage(*SIZES), Last())
    theirs.load_state_dict(dict(ours.named_parameters()), strict=False)
    ours.events = tensors()
    return ours, theirs


def same(ours, theirs):
    """Check that two memories have the same nodes and values."""
    some = torch.tensor([0, 3, 4, 9, 11])
    for own, other in zip((*ours(some), ours.memory, ours.last_update), (*theirs(some), theirs.memory, theirs.last_update), strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-6)


@torch.no_grad()
def go(ours, theirs, steps):
    for begin, end in steps:
        same(ours, theirs)
        ours.update(begin, end)
        theirs.update_state(*(column[begin:end] for column in ours.events))
    same(ours, theirs)


def test_training_and_evaluation_are_those_of_pyg(memories):
    ours, theirs = memories
    go(ours, theirs, [(k, k + 20) for k in range(0, 100, 20)])
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    theirs.eval()
    with torch.no_grad():
        settled = ours.settled()
    go(settled, theirs, [(100, 130), (130, 150)])
    assert settled.num_taken == 150
    assert ours.state_dict().keys() == before.keys() >= {"memory", "last_update", "msg_s_store", "msg_d_store", "num_taken"}
    assert all(torch.equal(value, before[name]) for name, value in ours.state_dict().items()), "the copy alone has gone on"
    ours.eval()
    assert all(torch.equal(value, before[name]) for name, value in ours.state_dict().items()), "a mode changes nothing"
    assert settled.events.messages is ours.events.messages


def test_gradients_are_those_of_pyg(memories):
    ours, theirs = memories
    go(ours, theirs, [(0, 30), (30, 60)])
    for memory in memories:
        memory(torch.arange(12))[0].square().sum().backward()
    others = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, others[name].grad, rtol=1e-5, atol=1e-5)
    assert ours.gru.weight_ih.grad.abs().sum() > 0


@torch.no_grad()
def test_a_loaded_state_resumes(memories):
    """A memory with a loaded state dict, which includes pending messages, has the same values after further events."""
    ours, _ = memories
    ours.update(0, 40)
    other = EventMemory(12, *SIZES)
    other.load_state_dict(ours.state_dict())
    other.events = ours.events
    for memory in (ours, other):
        memory.update(40, 90)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in ours.state_dict().items())
    ours.reset_state()
    assert not ours.memory.any()
    assert (ours.num_taken, int(ours.msg_s_store.max())) == (0, -1)
    with refused("events 50 to 59", "memory read 90 order", "events split trained"):
        other.update(50, 60)
