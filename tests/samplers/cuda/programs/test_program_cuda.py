"""Sampling programs give the same batches on CUDA as on the CPU, with both schedules and any number of batches per bulk."""

from dataclasses import replace

import numpy as np
import pytest
from cases.mistakes import refused
from conftest import make_graph
from cuda_case import TESTED, needs_cuda, to_host
from program_case import Beyond, Counting, Distinct, Even, Heaviest, Layer, Sage
from work_cuda_case import check_bulk_of_16, check_bulks

from hoptrain.engine import Graph, InputError
from hoptrain.samplers import MetapathWalk, Node2Vec, RandomWalk, Workspace
from hoptrain.samplers.cuda.tables import FIRST_SHARE

pytestmark = needs_cuda
KIND = {"edge_types": np.arange(200) % 3, "metapath": [0, 1]}
PROGRAMS = {
    "sage": Sage([2, 3]), "distinct": Distinct([4, 2]), "even": Even([3]), "state": Counting(), "walk": RandomWalk(4, restart=0.3),
    "node2vec": Node2Vec(3, num_walks=2, p=0.5, q=2), "metapath": MetapathWalk(**KIND),
}  # fmt: skip


@pytest.fixture(scope="module")
def small():
    return make_graph(40, 200)


class BeyondAtTheEnd(Beyond):
    def next(self, transit, step, rng):
        return len(transit.neighbors) if step == 1 and transit.node % 2 else 0


class BeyondWalk(RandomWalk):
    def __init__(self):
        super().__init__(3, num_walks=2)

    def next(self, transit, step, rng):
        return len(transit.neighbors) if step == 2 else 0


def workspace(kernel, **thresholds):
    made = Workspace(device="cuda", kernel=kernel)
    made.on_device.thresholds = replace(TESTED, **thresholds)
    return made


def equal(a, b):
    a, b = a.arrays(), b.arrays()
    return a.keys() == b.keys() and all(np.array_equal(to_host(a[name]), b[name]) for name in a)


@pytest.mark.parametrize("kernel", ["sample", "transit"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_to_the_cpu(small, name, kernel):
    program, space = PROGRAMS[name], workspace(kernel)
    for bulk in ([np.array([1, 5, 7]), np.array([39, 0])], [np.array([2, 35])]):
        address = {"seed": 3, "epoch": 1, "first_batch": 2}
        found = program.sample_bulk(small, bulk, workspace=space, **address)
        assert all(equal(a, b) for a, b in zip(found, program.sample_bulk(small, bulk, **address), strict=True))
        assert [batch.batch for batch in found] == list(range(2, 2 + len(bulk)))


def test_walks_for_which_a_packed_table_is_too_small(graph):
    """If a packed table is too small for the walks, they are repeated with a larger table and equal the CPU's."""
    program, space = RandomWalk(60, num_walks=8), workspace("sample", cache_bytes=0)
    seeds = [np.array([3, 8])]
    assert equal(program.sample_bulk(graph, seeds, workspace=space)[0], program.sample_bulk(graph, seeds)[0])
    assert space.on_device.driver.tables.share < FIRST_SHARE


def test_a_graph_without_weights_in_pinned_memory(small):
    """A graph without weights can be in pinned memory, although its weight tables are empty and empty arrays have no device address."""
    space = Workspace(device="cuda", kernel="sample", placement="pinned")
    space.on_device.thresholds = TESTED
    seeds = [np.array([1, 5, 7])]
    assert equal(PROGRAMS["node2vec"].sample_bulk(small, seeds, workspace=space)[0], PROGRAMS["node2vec"].sample_bulk(small, seeds)[0])
    assert set(space.on_device.driver.graph.placement.values()) == {"pinned"}


def test_weights_are_seen():
    graph = Graph.from_edges(np.array([1, 2, 3, 0]), np.array([0, 0, 0, 1]), 4, weights=np.array([1.0, 5.0, 2.0, 1.0]))
    assert to_host(Heaviest().sample(graph, np.array([0, 3]), workspace=workspace("sample")).node_ids).tolist() == [0, 3, 2]


@pytest.mark.parametrize("kernel", ["sample", "transit"])
@pytest.mark.parametrize("program", [Beyond([2]), BeyondAtTheEnd([2, 2]), BeyondWalk()], ids=lambda program: type(program).__name__)
def test_an_edge_that_is_none_of_the_transit(small, program, kernel):
    """If a program returns an edge that is not the transit node's, the message is that of the CPU: it names the first wrong draw."""
    bulk = [np.array([39, 38]), np.array([7, 3, 0])]
    with pytest.raises(InputError) as on_cpu:
        program.sample_bulk(small, bulk)
    with pytest.raises(InputError) as refused:
        program.sample_bulk(small, bulk, workspace=workspace(kernel))
    assert str(refused.value) == str(on_cpu.value)


def test_collective(small):
    check_bulks(Layer(), small, [[[3, 0, 35], [38]], [[5]]])
    with refused("draw 0", "BeyondLayer.next no edge transit step 0", "len(transit.neighbors) STOP"):
        BeyondLayer().sample(small, np.array([0, 3]), workspace=workspace("sample"))


def test_a_bulk_of_16(small):
    check_bulk_of_16(NarrowLayer(), small, [[i] for i in range(16)])


class NarrowLayer(Layer):
    steps = 1

    def sample_size(self, step):
        return 2


class BeyondLayer(Layer):
    def sample_size(self, step):
        return 2

    def next(self, transit, step, rng):
        return len(transit.neighbors)
