"""Links held out of a graph, at random, by time or as given, and pairs without a link."""

from collections import Counter

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.derived.link_split import given_links, hold_out_latest, hold_out_links, pairs_without_link


def edges_of(graph):
    return list(zip(graph.indices.tolist(), np.repeat(np.arange(graph.num_nodes), graph.in_degrees()).tolist(), strict=True))


def links_in(graph):
    return {frozenset(edge) for edge in edges_of(graph)} - {frozenset([v]) for v in range(graph.num_nodes)}


@pytest.fixture
def graph():
    """Multi-edges, single directions, self loops, weights and times."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 30, (2, 200))
    src, dst = np.r_[src, dst[:80]], np.r_[dst, src[:80]]
    return Graph.from_edges(src, dst, 30, weights=np.arange(280.0), times=rng.permutation(280) // 4)


def test_links_go_with_all_their_edges(graph):
    pairs = links_in(graph)
    train, held = hold_out_links(graph, {"val": 0.1, "test": 0.2}, seed=3)
    seen = []
    for name, share in (("val", 0.1), ("test", 0.2)):
        found = [frozenset(pair) for pair in held[name].T.tolist()]
        assert len(found) == int(share * len(pairs))
        assert set(found) <= pairs
        seen += found
    assert len(set(seen)) == len(seen)
    kept = [edge not in seen for edge in map(frozenset, edges_of(graph))]
    assert edges_of(train) == [edge for edge, stays in zip(edges_of(graph), kept, strict=True) if stays]
    assert (train.weights == graph.weights[kept]).all()
    assert (train.times == graph.times[kept]).all()
    again, _ = hold_out_links(graph, {"val": 0.1, "test": 0.2}, seed=3)
    assert (again.indices == train.indices).all()
    other, _ = hold_out_links(graph, {"val": 0.1, "test": 0.2}, seed=4)
    assert edges_of(other) != edges_of(train)


def test_the_latest_links_are_held_out(graph):
    """Against dictionaries: a link is as old as its first edge, and the graph ends before the first link held out."""
    first = {}
    for edge, time in zip(map(frozenset, edges_of(graph)), graph.times.tolist(), strict=True):
        first[edge] = min(time, first.get(edge, time))
    times = sorted(first[link] for link in links_in(graph))
    train, held = hold_out_latest(graph, {"val": 0.1, "test": 0.2})
    of_test = times[len(times) - int(0.2 * len(times))]
    before = [time for time in times if time < of_test]
    of_val = before[len(before) - int(0.1 * len(times))]
    for name, begin, end in (("val", of_val, of_test), ("test", of_test, 10**9)):
        assert {frozenset(pair) for pair in held[name].T.tolist()} == {link for link in links_in(graph) if begin <= first[link] < end}
    expected = [edge for edge, time in zip(edges_of(graph), graph.times.tolist(), strict=True) if time < of_val]
    assert edges_of(train) == expected
    assert list(held) == ["val", "test"]


def test_nothing_is_held_out_of_no_share(graph):
    train, held = hold_out_latest(graph, {"val": 0.0, "test": 0.0})
    assert edges_of(train) == edges_of(graph)
    assert held["test"].shape == (2, 0)


@pytest.mark.parametrize("with_train", [True, False])
def test_given_links_are_those_of_the_splits(with_train):
    edge_index = np.array([[0, 1, 2, 3, 4, 5], [1, 0, 1, 2, 0, 3]])
    splits = {"val": np.array([2]), "test": np.array([5, 3])} | ({"train": np.array([0, 1])} if with_train else {})
    train, held = given_links(Dataset(edge_index=edge_index, edge_splits=splits))
    assert held["val"].tolist() == [[2], [1]]
    assert held["test"].tolist() == [[5, 3], [3, 2]]
    assert sorted(edges_of(train)) == [(0, 1), (1, 0)] + ([] if with_train else [(4, 0)])


@pytest.mark.parametrize("with_train", [True, False])
def test_copies_and_reverses_of_links_that_are_held_out(with_train):
    """Edges 0 and 3 are the same, 1 is their reverse, 5 is a self loop."""
    edge_index = np.array([[0, 1, 2, 0, 3, 4], [1, 0, 1, 1, 2, 4]])
    splits = {"test": np.array([3]), "val": np.array([5])} | ({"train": np.array([0, 1, 2, 4])} if with_train else {})
    data = Dataset(edge_index=edge_index, edge_splits=splits)
    with refused("(2, that from 1 to 0", "data edges copies reverses", "data.shared_links drop keep"):
        given_links(data)
    assert sorted(edges_of(given_links(data, "drop")[0])) == [(2, 1), (3, 2)]
    assert len(edges_of(given_links(data, "keep")[0])) == 4
    published = Dataset(edge_index=edge_index, edge_splits=splits, meta={"shared_links": "keep"})
    assert len(edges_of(given_links(published)[0])) == 4
    with refused("(2, that from 1 to 0", "data edges copies reverses", "data.shared_links drop keep"):
        given_links(published, "refuse")


def test_pairs_have_no_link_and_are_as_likely(graph):
    """Of 150 of all pairs, drawn by many seeds, each has its share."""
    draw, links = pairs_without_link(graph), links_in(graph)
    number, counts = 30 * 29 // 2 - len(links), Counter()
    for seed in range(400):
        pairs = draw(150, seed, 1)
        found = [frozenset(pair) for pair in pairs.T.tolist()]
        assert not set(found) & links
        assert len(set(found)) == 150, "each once, in one of its directions"
        assert (pairs[0] != pairs[1]).all()
        counts.update(map(tuple, pairs.T.tolist()))
    assert len(counts) == 2 * number
    expected = 400 * 150 / (2 * number)
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 2 * number + 5 * (4 * number) ** 0.5


def test_pairs_of_two_splits_are_apart(graph):
    draw = pairs_without_link(graph)
    first = draw(100, 5, 0)
    second = draw(100, 5, 1, first)
    pairs = [frozenset(pair) for pair in np.concatenate([first, second], axis=1).T.tolist()]
    assert len(set(pairs)) == 200
    assert (draw(100, 5, 1, first) == second).all()
    number = 30 * 29 // 2 - len(links_in(graph))
    assert draw(number, 5, 0).shape == (2, number), "all there are"
    with refused(f"{number + 1} pairs", f"without link {number} found", "fewer links another graph"):
        draw(number + 1, 5, 0)


def held_out_of_a_ring(hold_out, shares):
    hold_out(Graph.from_edges([0, 1, 2], [1, 2, 0], times=[0, 1, 2]), shares)


def given_with(**splits):
    edge_index = np.array([[0, 1, 0, 3], [1, 0, 1, 2]])
    given_links(Dataset(edge_index=edge_index, edge_splits={name: np.array(ids) for name, ids in splits.items()}))


ALL_LINKS = np.divmod(np.arange(25), 5)
HOLD_OUT = (hold_out_links, hold_out_latest)

MISTAKES = {
    **{
        f"an edge in {first} and {second}": Mistake(
            lambda splits=splits: given_with(**splits),
            value="from 1 to 0",
            rule=f"edge splits {first} {second} data",
            remedy="leave out one",
        )
        for first, second, splits in (
            ("train", "test", {"train": [0, 1], "test": [2, 1]}),
            ("val", "test", {"val": [3, 1], "test": [1]}),
        )
    },
    **{
        f"shares {shares} to {hold_out.__name__}": Mistake(
            lambda hold_out=hold_out, shares=shares: held_out_of_a_ring(hold_out, shares),
            value=str(shares),
            rule="shares at least 0 below 1",
            remedy="correct",
        )
        for hold_out in HOLD_OUT
        for shares in ({"val": 0.5, "test": 0.5}, {"val": -0.1})
    },
    **{
        f"a share of no link to {hold_out.__name__}": Mistake(
            lambda hold_out=hold_out: held_out_of_a_ring(hold_out, {"val": 1e-9}),
            value="1e-09",
            rule="share 3 links none",
            remedy="hold out more nothing",
        )
        for hold_out in HOLD_OUT
    },
    "pairs without a link where all are linked": Mistake(
        lambda: pairs_without_link(Graph.from_edges(*ALL_LINKS, 5))(4, 0, 0),
        value="4 pairs",
        rule="without link 0 found",
        remedy="fewer links another graph",
    ),
    "links by time without times": Mistake(
        lambda: hold_out_latest(Graph.from_edges(*ALL_LINKS, 5), {"val": 0.1}),
        value="time",
        rule="split graph no times",
        remedy="Graph.from_edges share",
    ),
    "links that are all of one time": Mistake(
        lambda: hold_out_latest(Graph.from_edges(*ALL_LINKS, 5, times=np.zeros(25, int)), {"val": 0.1}),
        value="{'val': 0.1}",
        rule="time no earlier link left",
        remedy="hold out less",
    ),
    "given links of a data set without splits": Mistake(
        lambda: given_links(Dataset(graph=Graph.from_edges(*ALL_LINKS, 5))),
        value="edge_splits",
        rule="split given data no",
        remedy="Dataset share",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
