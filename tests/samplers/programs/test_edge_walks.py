"""Walks that return their edges: steps follow the weights, walks end with the given probabilities, and -1 fills the rest."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from scipy.stats import chisquare

from hoptrain.engine import Graph
from hoptrain.engine.columns import RelationColumns
from hoptrain.samplers import Workspace
from hoptrain.samplers.buffers.alias import build_alias_tables
from hoptrain.samplers.programs.edge_walks import Steps
from hoptrain.samplers.programs.edge_walks import edge_walks as walks_along


@pytest.fixture(scope="module")
def graph():
    """Return 20 nodes; the first has no in-edges, and the in-edges of the second have weight 0."""
    generator = np.random.default_rng(2)
    src, dst = generator.integers(0, 20, 160), generator.integers(1, 20, 160)
    return Graph.from_edges(src, dst, 20, weights=np.where(dst == 1, 0, generator.random(160)))


def edge_walks(graph, roots, length, ends=0.0, *tables, **options):
    """Return the edge walks of a homogeneous graph."""
    return walks_along([Steps(graph, length, *tables)], roots, ends, **options)


ROOTS = np.tile(np.arange(20), 400)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_every_step_is_an_edge(graph, is_weighted):
    tables = (build_alias_tables(graph),) if is_weighted else ()
    walks, places = edge_walks(graph, ROOTS, 5, 0.2, *tables, seed=3)
    assert (walks[:, 0] == ROOTS).all()
    taken = places >= 0
    assert (walks[:, 1:][taken] == graph.indices[places[taken]]).all()
    assert (walks[:, :-1][taken] == graph.destinations()[places[taken]]).all()
    assert (walks[:, 1:][~taken] == -1).all()
    assert not (taken[:, 1:] & ~taken[:, :-1]).any(), "after an end there is nothing"
    assert not taken[walks[:, :-1] == 0].any()
    assert taken[walks[:, :-1] == 1].any() != is_weighted


@pytest.mark.parametrize("is_weighted", [False, True])
def test_edges_follow_their_distribution(graph, is_weighted):
    tables = (build_alias_tables(graph),) if is_weighted else ()
    _, places = edge_walks(graph, np.full(20_000, 7), 2, 0.0, *tables, seed=3)
    column = slice(*graph.indptr[7:9])
    distribution = graph.weights[column] if is_weighted else np.ones(column.stop - column.start)
    counts = np.bincount(places[:, 0], minlength=graph.num_edges)[column]
    assert counts.sum() == 20_000
    assert chisquare(counts, 20_000 * distribution / distribution.sum()).pvalue > 1e-4


def test_steps_may_be_along_edges_of_several_kinds(graph):
    """Steps may use different relations: each step of a metapath uses its own, and a path is the same if split into several calls."""
    whole = edge_walks(graph, ROOTS, 4, seed=3)
    pieces = walks_along([Steps(graph), Steps(graph, 2), Steps(graph)], ROOTS, seed=3)
    assert all(np.array_equal(*both) for both in zip(whole, pieces, strict=True))
    there, back = (RelationColumns(np.arange(6), np.array(to), 5) for to in ([2, 0, 4, 3, 1], [1, 1, 0, 2, 4]))
    walks, places = walks_along([Steps(there), Steps(back)], np.arange(5))
    assert walks.tolist() == [[v, there.indices[v], back.indices[there.indices[v]]] for v in range(5)]
    assert places.tolist() == [[v, there.indices[v]] for v in range(5)]


def test_walks_end_before_a_step_with_its_probability():
    ring = Graph.from_edges(np.arange(9), (np.arange(9) + 1) % 9, 9)
    ends = np.array([0.0, 0.5, 1 / 3])
    _, places = edge_walks(ring, np.zeros(9000, np.int64), 3, ends, seed=1)
    lengths = np.bincount((places >= 0).sum(1), minlength=4)
    assert chisquare(lengths[1:], [4500, 1500, 3000]).pvalue > 1e-4
    assert lengths[0] == 0
    assert (edge_walks(ring, np.arange(9), 3, 1.0).places == -1).all()


def test_threads_change_nothing_and_addresses_everything(graph):
    one = edge_walks(graph, ROOTS, 4, seed=5, workspace=Workspace(1))
    assert all(np.array_equal(*both) for both in zip(one, edge_walks(graph, ROOTS, 4, seed=5, workspace=Workspace(3)), strict=True))
    for address in ({"seed": 6}, {"seed": 5, "epoch": 1}, {"seed": 5, "batch": 1}):
        assert not np.array_equal(one.places, edge_walks(graph, ROOTS, 4, **address).places)


MISTAKES = {
    "walks of no steps": Mistake(lambda graph: edge_walks(graph, [0], 0), value="0", rule="length walk 1 16,777,215 steps"),
    "a seed that the graph has not": Mistake(lambda graph: edge_walks(graph, [20], 2), value="seed 20", rule="not graph", remedy="0 19"),
    **{
        f"ends of {wrong}": Mistake(
            lambda graph, wrong=wrong: edge_walks(graph, [0], 2, wrong),
            value=str(wrong),
            rule="ends walk 2 steps one probability",
            remedy="0 1",
        )
        for wrong in (1.5, [0.1])
    },
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
