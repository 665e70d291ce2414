"""Sampling programs on the CPU: their inputs, their restrictions, and invalid programs."""

import random as python_random
from random import random as uniform

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from numpy.random import randint as numpy_randint
from program_case import ADDRESS, Beyond, Counting, Distinct, Even, Heaviest, Layer, Sage

from hoptrain.engine import Graph
from hoptrain.samplers import STOP, NeighborSampler, SampleLoader, SamplingProgram, Workspace, compile_program, has_edge, randint


def equal(a, b):
    a, b = a.arrays(), b.arrays()
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


SEEDS = np.array([3, 100, 199, 0, 42, 77])


def test_the_same_draws_as_the_built_in_sampler(graph):
    assert equal(Sage([3, 4]).sample(graph, SEEDS, **ADDRESS), NeighborSampler([3, 4], replace=True).sample(graph, SEEDS, **ADDRESS))


def test_unique_leaves_repeated_edges_out(graph):
    drawn, distinct = Sage([6]).sample(graph, SEEDS, **ADDRESS).blocks[0], Distinct([6]).sample(graph, SEEDS, **ADDRESS).blocks[0]
    assert distinct.num_edges < drawn.num_edges
    for v in range(len(SEEDS)):
        edges = drawn.edge_ids[drawn.indptr[v] : drawn.indptr[v + 1]].tolist()
        assert distinct.edge_ids[distinct.indptr[v] : distinct.indptr[v + 1]].tolist() == list(dict.fromkeys(edges))


def test_a_draw_may_give_no_edge(graph):
    all_draws, block = Sage([6]).sample(graph, SEEDS, **ADDRESS).blocks[0], Even([6]).sample(graph, SEEDS, **ADDRESS).blocks[0]
    assert block.edge_ids.tolist() == [e for e in all_draws.edge_ids if graph.indices[e] % 2 == 0]
    assert 0 < block.num_edges < all_draws.num_edges


def test_weights_are_seen():
    graph = Graph.from_edges(np.array([1, 2, 3, 0]), np.array([0, 0, 0, 1]), 4, weights=np.array([1.0, 5.0, 2.0, 1.0]))
    assert Heaviest().sample(graph, np.array([0, 3])).node_ids.tolist() == [0, 3, 2]


def test_a_state_for_each_walk(graph):
    """Each walk has its own state; walks equal those of the same program in plain Python."""
    walks = Counting().walks(graph, SEEDS, **ADDRESS)
    assert walks.shape == (2 * len(SEEDS), 7)
    for walk, root in zip(walks, np.repeat(SEEDS, 2), strict=True):
        expected, count = [root], [0, 0]
        while len(expected) < 7:
            v = expected[-1]
            column = graph.indices[graph.indptr[v] : graph.indptr[v + 1]]
            count[v % 2] += 1
            if not len(column):
                break
            expected.append(column[count[v % 2] % len(column)])
        assert walk.tolist() == expected + [-1] * (7 - len(expected))


def test_a_layer_draws_together(graph):
    batch = Layer().sample(graph, SEEDS, **ADDRESS)
    block = batch.blocks[1]
    edges = [e for v in SEEDS for e in range(graph.indptr[v], graph.indptr[v + 1])]
    sources, counts = np.unique(graph.indices[edges], return_counts=True)
    allowed = set(sources[counts >= 2].tolist())
    chosen = set(graph.indices[block.edge_ids].tolist())
    assert chosen <= allowed
    assert len(chosen) > 20
    assert block.edge_ids.tolist() == [e for e in edges if graph.indices[e] in chosen]
    assert batch.node_ids[block.indices].tolist() == graph.indices[block.edge_ids].tolist()


def test_walks_as_a_mini_batch(graph):
    batch = Counting().sample(graph, SEEDS, **ADDRESS)
    walks, local = Counting().walks(graph, SEEDS, **ADDRESS), batch.extra["walks"]
    assert np.array_equal(np.where(local < 0, -1, batch.node_ids[local]), walks)
    assert sorted(batch.node_ids.tolist()) == sorted(set(walks[walks >= 0].tolist()))
    assert (batch.seeds.tolist(), batch.blocks) == (SEEDS.tolist(), ())


@pytest.mark.parametrize("program", [Distinct([3, 2]), Counting(), Layer()], ids=lambda program: type(program).__name__)
def test_bulks_and_threads_change_nothing(graph, program):
    bulk = [SEEDS, np.array([9]), np.arange(150, 190)]
    alone = [program.sample(graph, seeds, seed=1, batch=4 + i) for i, seeds in enumerate(bulk)]
    for threads in (1, 2):
        together = program.sample_bulk(graph, bulk, seed=1, first_batch=4, workspace=Workspace(threads))
        assert all(equal(a, b) for a, b in zip(alone, together, strict=True))
        shared = program.sample(graph, SEEDS, seed=1, batch=4, workspace=Workspace(threads))
        assert equal(shared, alone[0])


def test_in_workers(dataset):
    options = {"batch_size": 50, "seed": 3}
    found = SampleLoader(dataset, Counting(), num_workers=2, **options)
    expected = SampleLoader(dataset, Counting(), **options)
    assert all(equal(a, b) and np.array_equal(a.x, b.x) for a, b in zip(found, expected, strict=True))
    found.close()


class Misspelt(Sage):
    def next(self, transit, step, rng):
        some = 1
        return transit.neighbours[some]


class Negative(Sage):
    def next(self, transit, step, rng):
        return -7


class Astray(Counting):
    def transit_of(self, earlier, step, rng):
        return step + 1


class Unsorted(Sage):
    def next(self, transit, step, rng):
        return 0 if has_edge(transit, 0, 1) else STOP


class BeyondLayer(Layer):
    def next(self, transit, step, rng):
        return len(transit.neighbors)


class Endless(Counting):
    steps = 0


class Odd(Sage):
    output = "trees"


class Counted(Counting):
    def __init__(self, name, value):
        setattr(self, name, value)


class Half(Sage):
    def next(self, transit, step, rng):
        return randint(rng, len(transit.neighbors)) / 2


class HalfWalk(Counting):
    def next(self, transit, step, rng):
        return 0.5


class CollectiveWalk(Counting):
    sampling_type = "collective"


class StateOfBlocks(Sage):
    state_size = 1


class OfNumPy(SamplingProgram):
    steps = 1

    def next(self, transit, step, rng):
        return np.random.randint(0, len(transit.neighbors))


class OfPython(OfNumPy):
    def next(self, transit, step, rng):
        return python_random.randrange(len(transit.neighbors))


class OfImports(OfNumPy):
    """Functions that were imported by their names."""

    def next(self, transit, step, rng):
        return int(uniform() * len(transit.neighbors)) if step else numpy_randint(0, len(transit.neighbors))


class Degree(OfNumPy):
    def next(self, transit, step, rng):
        return randint(rng, transit.degree)


def last_of(transit):
    return len(transit.neighbors) - 1


class Helper(OfNumPy):
    def next(self, transit, step, rng):
        return last_of(transit)


places = np.zeros(3, np.int64)  # has the name of an attribute below


def test_an_attribute_may_be_called_as_an_array_of_the_script(graph):
    class First(SamplingProgram):
        steps = 1

        def __init__(self):
            self.places = places

        def next(self, transit, step, rng):
            return self.places[step]

    block = First().sample(graph, SEEDS).blocks[0]
    assert block.edge_ids.tolist() == [graph.indptr[v] for v in SEEDS if graph.indptr[v] < graph.indptr[v + 1]]


def sampled(program, graph):
    return program.sample(graph, SEEDS, **ADDRESS)


def search_in_columns_that_are_not_sorted():
    Unsorted([1]).sample(Graph(np.array([0, 2, 3]), np.array([1, 0, 0])), np.array([0]))


LINE_OF_MISSPELT = Misspelt.next.__code__.co_firstlineno + 2


MISTAKES = {
    "an edge beyond the last of its transit": Mistake(
        lambda graph: sampled(Beyond([2]), graph),
        value="node 3",
        rule="Beyond.next no edge transit step 0",
        remedy="0 len(transit.neighbors) STOP",
    ),
    "a negative edge": Mistake(
        lambda graph: sampled(Negative([2]), graph),
        value="node 3",
        rule="Negative.next no edge transit step 0",
        remedy="0 len(transit.neighbors) STOP",
    ),
    "a walk along no edge": Mistake(
        lambda graph: sampled(Astray(), graph),
        value="node 3",
        rule="Astray.next no edge transit walk",
        remedy="0 len(transit.neighbors) STOP transit_of earlier",
    ),
    "a draw of a layer beyond its last edge": Mistake(
        lambda graph: sampled(BeyondLayer(), graph),
        value="draw 0",
        rule="BeyondLayer.next no edge transit step 0",
        remedy="0 len(transit.neighbors) STOP",
    ),
    "an edge that is a real": Mistake(
        lambda graph: sampled(Half([2]), graph),
        value="float64",
        rule="Half.next compiled edge integer number",
        remedy="use numbers arrays functions",
    ),
    "a walk along an edge that is a real": Mistake(
        lambda graph: sampled(HalfWalk(), graph),
        value="float64",
        rule="HalfWalk.next compiled edge integer number",
        remedy="use numbers arrays functions",
    ),
    "no draws in a step": Mistake(lambda graph: sampled(Sage([2, 0]), graph), value="0", rule="sample_size(1) Sage least one draw whole"),
    "a number of draws that is a real": Mistake(
        lambda graph: sampled(Sage([2, 2.5]), graph), value="2.5", rule="sample_size(1) Sage least one draw whole"
    ),
    "no steps": Mistake(lambda graph: sampled(Endless(), graph), value="0", rule="steps Endless whole number 1 2040"),
    "a number of steps that is a real": Mistake(
        lambda graph: sampled(Counted("steps", 2.0), graph), value="2.0", rule="steps Counted whole number 1 2040"
    ),
    "no walks": Mistake(
        lambda graph: sampled(Counted("num_walks", 0), graph), value="0", rule="num_walks Counted whole number 1 2147483647"
    ),
    "a size of the state that is no number": Mistake(
        lambda graph: sampled(Counted("state_size", True), graph), value="True", rule="state_size Counted whole number 0 2147483647"
    ),
    "an unknown output": Mistake(lambda graph: sampled(Odd([1]), graph), value="'trees'", rule="output Odd", remedy="blocks walks"),
    "walks that are collective": Mistake(
        lambda graph: sampled(CollectiveWalk(), graph),
        value="'collective'",
        rule="sampling_type output 'walks' CollectiveWalk",
        remedy='"individual" blocks',
    ),
    "blocks with a state": Mistake(
        lambda graph: sampled(StateOfBlocks([1]), graph),
        value="1",
        rule="state_size StateOfBlocks walk keeps state",
        remedy='output = "walks"',
    ),
    "a misspelt name": Mistake(
        lambda: compile_program(Misspelt([2])),
        value="'neighbours'",
        rule=f"Misspelt.next test_program.py:{LINE_OF_MISSPELT} compiled attribute",
        remedy="transit node, neighbors weights, first_edge, earlier state use",
    ),
    "the degree of a transit": Mistake(
        lambda: compile_program(Degree()), value="'degree'", rule="Degree.next compiled attribute", remedy="neighbors in-degree use"
    ),
    "a function of the script": Mistake(
        lambda: compile_program(Helper()), value="'last_of'", rule="Helper.next compiled", remedy="decorate last_of numba.njit"
    ),
    "edges searched in columns that are not sorted": Mistake(
        search_in_columns_that_are_not_sorted, value="columns", rule="has_edge graph not sorted search", remedy="Graph.from_edges"
    ),
    "walks of a program with blocks": Mistake(
        lambda graph: Sage([1]).walks(graph, SEEDS), value="Sage", rule="blocks no walks", remedy='sample output = "walks"'
    ),
    **{
        f"a generator in {program.__name__}": Mistake(
            lambda graph, program=program: program().sample(graph, np.arange(3)),
            value=f"{program.__name__}.next",
            rule="random generator own repeated",
            remedy="randint(rng, n) bernoulli(rng, p)",
        )
        for program in (OfNumPy, OfPython, OfImports)
    },
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
