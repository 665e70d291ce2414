"""The layer-wise samplers on CUDA give what they give on the CPU, weights and descriptions included."""

import numpy as np
import pytest
from conftest import make_graph
from cuda_case import _quick_simulator, needs_cuda  # noqa: F401
from work_cuda_case import check_bulk_of_16, check_bulks, check_loader, start_without_room, workspace

from hoptrain.engine import InputError
from hoptrain.samplers import ASGCNSampler, FastGCNSampler, LadiesSampler

pytestmark = needs_cuda
SAMPLERS = {
    "fastgcn": FastGCNSampler([6, 3]), "ladies": LadiesSampler([5, 4]), "ladies-gcn": LadiesSampler([6], "gcn", normalize=True),
    "asgcn": ASGCNSampler([3, 5]),
}  # fmt: skip


@pytest.fixture(scope="module")
def small():
    return make_graph(40, 200)


@pytest.mark.parametrize("name", SAMPLERS)
def test_equal_to_the_cpu(small, name):
    """Batches of several sizes; one without an in-edge, whose candidates are none."""
    check_bulks(SAMPLERS[name], small, [[[3, 0, 35], [38]], [[5]]])


@pytest.mark.long
@pytest.mark.parametrize("sampler", [FastGCNSampler([2]), LadiesSampler([2]), ASGCNSampler([2])])
def test_a_bulk_of_16(small, sampler):
    check_bulk_of_16(sampler, small, [[i] for i in range(16)])


def test_too_little_room(small, monkeypatch):
    """Of in-edges and of edges."""
    start_without_room(monkeypatch)
    check_bulks(LadiesSampler([4]), small, [[[0, 2]]])


def test_through_the_loader(small):
    check_loader(small, ASGCNSampler([3]), 3)


def test_scores(small):
    """New ones reach the device."""
    sampler, space = ASGCNSampler([7]), workspace()
    for scores in (None, np.arange(40) / 7):
        sampler.set_scores(scores)
        check_bulks(sampler, small, [[[0, 2]]], space)
    sampler.set_scores(np.ones(3))
    with pytest.raises(InputError, match="3 scores for a graph of 40 vertices"):
        sampler.sample(small, np.array([1]), workspace=space)


def test_wrong_use(small):
    with pytest.raises(InputError, match="seed 3 is given twice"):
        LadiesSampler([2]).sample(small, np.array([3, 5, 3]), workspace=workspace())
