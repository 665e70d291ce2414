"""GraphSAINT gives the same batches on CUDA as on the CPU, including weights."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused
from conftest import make_graph
from cuda_case import needs_cuda
from work_cuda_case import check_bulk_of_16, check_bulks, check_loader, start_with_capacity_1, workspace

import hoptrain.samplers.cuda.subgraphs.saint as saint_cuda
import hoptrain.samplers.subgraphs.saint as saint
from hoptrain.engine import Graph
from hoptrain.samplers import SaintEdgeSampler, SaintNodeSampler, SaintWalkSampler

pytestmark = needs_cuda
ONE = np.array([0])
SAMPLERS = {
    "node": SaintNodeSampler(9, num_layers=1),
    "edge": SaintEdgeSampler(5, normalise=False),
    "walk": SaintWalkSampler(3, 4, num_layers=3),
}


@pytest.fixture(scope="module")
def small():
    return make_graph(40, 200)


@pytest.mark.parametrize("name", SAMPLERS)
def test_equal_to_the_cpu(small, name):
    sampler = SAMPLERS[name].prepare(small, np.arange(0, 40, 3))
    batches = check_bulks(sampler, small, [[ONE], [ONE] * 3])
    assert batches[0] != batches[1]


@pytest.mark.parametrize("sampler", [SaintNodeSampler(2), SaintEdgeSampler(1), SaintWalkSampler(1, 1)])
def test_a_bulk_of_16(small, sampler):
    check_bulk_of_16(sampler.prepare(small, np.arange(40)), small, [ONE])


def test_too_small_capacities(small, monkeypatch):
    start_with_capacity_1(monkeypatch)
    check_bulks(SAMPLERS["node"].prepare(small, np.arange(9)), small, [[ONE] * 2])


def test_subgraphs_without_a_seed_are_drawn_again(small):
    check_bulks(SaintNodeSampler(4).prepare(small, np.array([3, 4])), small, [[ONE] * 2])


def test_through_the_loader(small):
    check_loader(small, SaintWalkSampler(2, 2, num_subgraphs=3), 1)


def test_a_split_that_cannot_be_met(monkeypatch):
    for module in (saint, saint_cuda):
        monkeypatch.setattr(module, "MAX_ATTEMPTS", 3)
    graph = Graph.from_edges([0, 1], [1, 0], 3)
    sampler = SaintWalkSampler(2, normalise=False, num_subgraphs=1).prepare(graph, np.array([2]))
    assert sampler.sample(graph, ONE, workspace=workspace()).seeds.tolist() == [2]
    sampler._split = sampler.split._replace(is_seed=np.zeros(3, np.bool_))  # no walk from the split can have this result
    with refused("1 nodes", "3 subgraphs none train", "SaintWalkSampler draw more"):
        sampler.sample(graph, ONE, workspace=workspace())


@pytest.fixture
def prepared(small):
    return SaintNodeSampler(4).prepare(small, np.arange(9))


MISTAKES = {
    "a sampler that was not prepared": Mistake(
        lambda small: SaintNodeSampler(4).sample(small, ONE, workspace=workspace()),
        value="SaintNodeSampler",
        rule="not know nodes train",
        remedy="sampler.prepare(graph, seeds) SampleLoader",
    ),
    "two subgraphs in a batch": Mistake(
        lambda small, prepared: prepared.sample(small, np.arange(2), workspace=workspace()),
        value="batch_size is 2",
        rule="batch SaintNodeSampler one",
        remedy="batch_size 1",
    ),
    "another graph than it was prepared for": Mistake(
        lambda prepared: prepared.sample(make_graph(30, 70), ONE, workspace=workspace()),
        value="num_nodes=30",
        rule="not graph SaintNodeSampler prepared",
        remedy="prepare(graph, seeds)",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
