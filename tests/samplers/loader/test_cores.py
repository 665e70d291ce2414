"""A thread prepares the next batch only if a core is free, and never runs custom code a step early."""

from functools import partial

import pytest
import torch

from hoptrain.samplers import NeighborSampler
from hoptrain.samplers.loader.cores import cores_are_free, is_known, runs_ahead


class Users(torch.utils.data.RandomSampler):
    """A custom sampler class."""


ORDER = torch.utils.data.RandomSampler(range(9))
SAMPLERS = {
    "torch's": (True, ORDER),
    "in torch's batches": (True, torch.utils.data.BatchSampler(ORDER, 3, False)),
    "hoptrain's": (True, NeighborSampler([2])),
    "a user's class": (False, Users(range(9))),
    "a user's class in torch's batches": (False, torch.utils.data.BatchSampler(Users(range(9)), 3, False)),
    "a user's generator": (False, torch.utils.data.RandomSampler(range(9), generator=torch.Generator())),
    "a function": (False, partial(print)),
    "a list": (False, [[1], [2]]),
}


@pytest.mark.parametrize(("is_so", "sampler"), SAMPLERS.values(), ids=SAMPLERS)
def test_what_is_asked_a_step_early_is_known(is_so, sampler):
    assert is_known(sampler) is is_so
    assert is_known(ORDER, sampler) is is_so


@pytest.mark.parametrize(("cores", "has_gpu", "is_so"), [(1, False, False), (4, False, False), (5, False, True), (1, True, True)])
def test_a_thread_is_of_use_where_the_training_leaves_a_core(monkeypatch, cores, has_gpu, is_so):
    """A thread prepares the next batch if the training leaves a core free or uses a GPU, but not for a custom sampler.

    The training uses 4 torch threads.
    """
    monkeypatch.setattr("hoptrain.samplers.loader.cores.usable_cores", lambda: cores)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: has_gpu)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert cores_are_free() is is_so
    assert runs_ahead(ORDER) is is_so
    assert not runs_ahead(Users(range(9)))
