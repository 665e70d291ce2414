"""Distributions of walks equal enumerated transition matrices and personalised PageRank."""

from itertools import pairwise

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused
from scipy.stats import chi2

from hoptrain.engine import Graph
from hoptrain.samplers import MetapathWalk, Node2Vec, RandomWalk, Workspace


@pytest.fixture(scope="module")
def ring():
    """Return an undirected ring of eight nodes with chords, so that second neighbours may or may not be neighbours."""
    pairs = [(i, (i + 1) % 8) for i in range(8)] + [(0, 2), (1, 4), (3, 6), (0, 5)]
    src, dst = np.array(pairs + [(b, a) for a, b in pairs]).T
    return Graph.from_edges(src, dst, 8)


def column(graph, v):
    return graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()


def fits(observed, probabilities):
    """Return whether counts fit the probabilities, by a chi-square test with p = 1e-6, since there are many tests."""
    observed, expected = np.asarray(observed, float), observed.sum() * np.asarray(probabilities)
    if observed[expected == 0].any():
        return False
    observed, expected = observed[expected > 0], expected[expected > 0]
    statistic = ((observed - expected) ** 2 / expected).sum()
    return statistic < chi2.ppf(1 - 1e-6, max(1, len(expected) - 1))


def second_order(graph, p, q, before, v):
    """Return node2vec's transition probabilities, as defined in the paper."""
    bias = [1 / p if x == before else 1.0 if x in column(graph, before) else 1 / q for x in column(graph, v)]
    distribution = np.zeros(graph.num_nodes)
    distribution[column(graph, v)] = np.array(bias) / sum(bias)
    return distribution


def transitions(walks, num_nodes):
    """Return how often node x followed the pair (t, v), with shape (V, V, V)."""
    counts = np.zeros((num_nodes, num_nodes, num_nodes))
    np.add.at(counts, (walks[:, :-2].ravel(), walks[:, 1:-1].ravel(), walks[:, 2:].ravel()), 1)
    return counts


@pytest.mark.parametrize(("p", "q"), [(0.25, 4.0), (4.0, 0.25), (1.0, 2.0), (1.0, 1.0)])
def test_node2vec(ring, p, q):
    walks = Node2Vec(30, num_walks=400, p=p, q=q).walks(ring, np.arange(8), seed=5)
    counts = transitions(walks, 8)
    pairs = [(t, v) for v in range(8) for t in column(ring, v)]
    assert all(fits(counts[t, v], second_order(ring, p, q, t, v)) for t, v in pairs)
    if p != q:  # swapped parameters must not fit
        assert not all(fits(counts[t, v], second_order(ring, 1 / p, 1 / q, t, v)) for t, v in pairs)


def test_steps_are_uniform_and_independent_of_the_one_before(ring):
    counts = transitions(RandomWalk(30, num_walks=300).walks(ring, np.arange(8), seed=1), 8)
    assert all(fits(counts[t, v], second_order(ring, 1, 1, t, v)) for v in range(8) for t in column(ring, v))


def test_walks_end_where_no_edge_enters():
    graph = Graph.from_edges(np.array([1, 2]), np.array([0, 1]), 3)
    assert RandomWalk(4).walks(graph, np.array([0, 2])).tolist() == [[0, 1, 2, -1, -1], [2, -1, -1, -1, -1]]


def test_several_walks_from_a_root_have_numbers(ring):
    """Repeated roots are rejected, since they would repeat their walks; the message names the option for several walks per root."""
    with refused("seed 3", "given twice", "RandomWalk(num_walks=...)"):
        RandomWalk(20).walks(ring, np.array([3, 1, 3]))
    walks = RandomWalk(20, num_walks=3).walks(ring, np.array([3, 1]))
    assert walks[:, 0].tolist() == [3, 3, 3, 1, 1, 1]
    assert len(np.unique(walks, axis=0)) == 6


@pytest.mark.parametrize("restart", [0.15, 0.6])
def test_visits_of_walks_with_restart_follow_pagerank(ring, restart):
    step = np.zeros((8, 8))
    for v in range(8):
        step[column(ring, v), v] = 1 / len(column(ring, v))
    root = np.eye(8)[3]
    rank = np.linalg.solve(np.eye(8) - (1 - restart) * step, restart * root)
    visits = RandomWalk(60, num_walks=4000, restart=restart).walks(ring, np.array([3]), seed=2)[:, 1:]
    assert visits[0].tolist() != visits[1].tolist()
    # Steps of one walk are dependent, but the last steps of many walks are independent.
    assert fits(np.bincount(visits[:, -1], minlength=8), step @ rank)
    assert not fits(np.bincount(visits[:, -1], minlength=8), rank)


def test_a_metapath_takes_its_relations_in_turn(ring):
    kinds = np.arange(ring.num_edges) % 3
    walks = MetapathWalk(kinds, [0, 2], length=5, num_walks=50).walks(ring, np.arange(8), seed=4)
    kind_of = {}
    for v in range(8):
        for edge in range(ring.indptr[v], ring.indptr[v + 1]):
            kind_of[v, int(ring.indices[edge])] = kinds[edge]
    taken = [(step, kind_of[a, b]) for walk in walks for step, (a, b) in enumerate(pairwise(walk)) if b >= 0]
    assert all(kind == [0, 2][step % 2] for step, kind in taken)
    ends = {(int(walk[step]), step) for walk in walks for step in range(5) if walk[step] >= 0 > walk[step + 1]}
    assert all([0, 2][step % 2] not in [kind_of[v, u] for u in column(ring, v)] for v, step in ends)
    first = walks[: 50 * 1][:, 1]
    choices = [u for u in column(ring, 0) if kind_of[0, u] == 0]
    assert set(first.tolist()) == set(choices)


class SlowWalk(RandomWalk):
    """A RandomWalk without fast path, which runs the loop compiled from the program."""


class SlowNode2Vec(Node2Vec):
    """A Node2Vec without fast path, which runs the loop compiled from the program."""


@pytest.mark.parametrize("threads", [1, 2])
def test_fast_walks_are_those_of_the_program(threads):
    """Fast walks equal the program's, for hubs, isolated nodes, parallel edges and self loops, and for more walks than a chunk holds."""
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(rng.integers(0, 60, 700) ** 2 // 60, rng.integers(0, 55, 700), 60)
    seeds = rng.permutation(60)
    cases = [(RandomWalk, SlowWalk, (9, copies, restart)) for copies in (1, 6) for restart in (0.0, 0.3)]
    for p, q in ((0.5, 2.0), (4.0, 0.25), (3.0, 1.0), (0.1, 0.2)):
        cases += [(Node2Vec, SlowNode2Vec, (9, copies, p, q)) for copies in (1, 6)]
    for kind, slow_kind, arguments in cases:
        fast, slow = kind(*arguments), slow_kind(*arguments)
        assert (fast.cpu_walks(graph) is None, slow.cpu_walks(graph) is None) == (False, True)
        address = {"seed": 2**64 - 5, "epoch": 3, "batch": 2**32 - 1, "workspace": Workspace(threads)}
        walks = fast.sample(graph, seeds, **address).extra["walks"].copy()
        assert (walks == slow.sample(graph, seeds, **address).extra["walks"]).all()
    assert (walks < 0).any()  # some walks end


def test_walks_show_their_options():
    assert repr(RandomWalk(7, 2, 0.5)) == "RandomWalk(length=7, num_walks=2, restart=0.5)"
    assert repr(Node2Vec(7, 2, p=0.5, q=2.0)) == "Node2Vec(length=7, num_walks=2, p=0.5, q=2.0)"


MISTAKES = {
    "p of 0": Mistake(lambda: Node2Vec(p=0.0), value="p is 0.0", rule="q 1.0 node2vec divides positive"),
    "q below 0": Mistake(lambda: Node2Vec(q=-1.0), value="-1.0", rule="p 1.0 q node2vec divides positive"),
    "walks that always restart": Mistake(lambda: RandomWalk(restart=1.0), value="1.0", rule="restart probability 0 below 1"),
    "walks of no steps": Mistake(lambda: RandomWalk(0), value="0", rule="length num_walks 1 least 1"),
    "no walks": Mistake(lambda: RandomWalk(3, num_walks=0), value="num_walks 0", rule="length 3 least 1"),
    "an unknown relation": Mistake(
        lambda: MetapathWalk(np.array([0, 1]), [0, 5]), value="relation 5", rule="metapath [0, 5] edges", remedy="[0, 1]"
    ),
    "a path of no relations": Mistake(lambda: MetapathWalk(np.array([0, 1]), []), value="0", rule="length num_walks 1 least 1"),
    "relations of another graph": Mistake(
        lambda ring: MetapathWalk(np.array([0, 1]), [0]).walks(ring, np.arange(3)),
        value="2 entries",
        rule="edge_types 24 edges",
        remedy="one each",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
