"""Held-out links are random, the latest or given ones, of a graph or of relations, as sets in plain Python are; and negative pairs."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine import Dataset, Graph, HeteroDataset
from hoptrain.engine.dataset import ONLY
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.engine.transforms.link_split import both_ways, given_links, hold_out_links, pairs_without_link

NUM = {"user": 30, "item": 20}
BUYS, BOUGHT, KNOWS, SEES = ("user", "buys", "item"), ("item", "bought", "user"), ("user", "knows", "user"), ("user", "sees", "item")
RNG = np.random.default_rng(2)
PAIRS = RNG.integers(0, [[12], [9]], (2, 160))  # many parallel edges
EDGES = {BUYS: tuple(PAIRS), BOUGHT: tuple(PAIRS[::-1]), KNOWS: tuple(RNG.integers(0, 30, (2, 60))), SEES: tuple(PAIRS[:, :50])}
TIMES = {relation: RNG.integers(0, 100, len(ends[0])) for relation, ends in EDGES.items()} | {BUYS: np.arange(160), BOUGHT: np.arange(160)}
GRAPH = HeteroGraph.from_edges(NUM, EDGES, times=TIMES)
SHARES = {"val": 0.2, "test": 0.3}


def held_out_of(graph, shares, **options):
    split = hold_out_links({ONLY: graph}, {ONLY: ONLY}, shares, **options)
    return graph.with_edges(split.is_kept[ONLY]), split.links


def given_of(data, leaked_edges=None):
    split = given_links(data, {ONLY: ONLY}, leaked_edges)
    return data.graph.with_edges(split.is_kept[ONLY]), split.links


def hetero_split(graph, *args, **options):
    split = hold_out_links(graph.relations, *args, **options)
    return graph.with_edges(split.is_kept), split


def hetero_given(data, *args):
    split = given_links(data, *args)
    return data.graph.with_edges(split.is_kept), split


def edges_of(graph):
    return list(zip(graph.indices.tolist(), np.repeat(np.arange(graph.num_nodes), graph.in_degrees()).tolist(), strict=True))


def links_in(graph):
    return {frozenset(edge) for edge in edges_of(graph)} - {frozenset([v]) for v in range(graph.num_nodes)}


@pytest.fixture
def graph():
    """Return a graph with parallel edges, edges without a reverse, self loops, weights and times."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 30, (2, 200))
    src, dst = np.r_[src, dst[:80]], np.r_[dst, src[:80]]
    return Graph.from_edges(src, dst, 30, weights=np.arange(280.0), times=rng.permutation(280) // 4)


def test_links_go_with_all_their_edges(graph):
    pairs = links_in(graph)
    train, held = held_out_of(graph, {"val": 0.1, "test": 0.2}, seed=3)
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
    again, _ = held_out_of(graph, {"val": 0.1, "test": 0.2}, seed=3)
    assert (again.indices == train.indices).all()
    other, _ = held_out_of(graph, {"val": 0.1, "test": 0.2}, seed=4)
    assert edges_of(other) != edges_of(train)


def test_the_latest_links_are_held_out(graph):
    """With ``by_time``, the latest links are held out; a link's time is that of its first edge, and training edges end before held-out links."""
    first = {}
    for edge, time in zip(map(frozenset, edges_of(graph)), graph.times.tolist(), strict=True):
        first[edge] = min(time, first.get(edge, time))
    times = sorted(first[link] for link in links_in(graph))
    train, held = held_out_of(graph, {"val": 0.1, "test": 0.2}, by_time=True)
    of_test = times[len(times) - int(0.2 * len(times))]
    before = [time for time in times if time < of_test]
    of_val = before[len(before) - int(0.1 * len(times))]
    for name, begin, end in (("val", of_val, of_test), ("test", of_test, 10**9)):
        assert {frozenset(pair) for pair in held[name].T.tolist()} == {link for link in links_in(graph) if begin <= first[link] < end}
    expected = [edge for edge, time in zip(edges_of(graph), graph.times.tolist(), strict=True) if time < of_val]
    assert edges_of(train) == expected
    assert list(held) == ["val", "test"]


def test_nothing_is_held_out_of_no_share(graph):
    train, held = held_out_of(graph, {"val": 0.0, "test": 0.0}, by_time=True)
    assert edges_of(train) == edges_of(graph)
    assert held["test"].shape == (2, 0)


@pytest.mark.parametrize("with_train", [True, False])
def test_given_links_are_those_of_the_splits(with_train):
    edge_index = np.array([[0, 1, 2, 3, 4, 5], [1, 0, 1, 2, 0, 3]])
    splits = {"val": np.array([2]), "test": np.array([5, 3])} | ({"train": np.array([0, 1])} if with_train else {})
    train, held = given_of(Dataset(edge_index=edge_index, edge_splits=splits))
    assert held["val"].tolist() == [[2], [1]]
    assert held["test"].tolist() == [[5, 3], [3, 2]]
    assert sorted(edges_of(train)) == [(0, 1), (1, 0)] + ([] if with_train else [(4, 0)])


@pytest.mark.parametrize("with_train", [True, False])
def test_copies_and_reverses_of_links_that_are_held_out(with_train):
    """Training edges that copy or reverse held-out links are rejected, dropped or kept.

    Edges 0 and 3 are parallel, 1 is their reverse, and 5 is a self loop.
    """
    edge_index = np.array([[0, 1, 2, 0, 3, 4], [1, 0, 1, 1, 2, 4]])
    splits = {"test": np.array([3]), "val": np.array([5])} | ({"train": np.array([0, 1, 2, 4])} if with_train else {})
    data = Dataset(edge_index=edge_index, edge_splits=splits)
    with refused("2 training edges, such as that from 1 to 0", "data edges copies reverses", "data.leaked_edges drop keep"):
        given_of(data)
    assert sorted(edges_of(given_of(data, "drop")[0])) == [(2, 1), (3, 2)]
    assert len(edges_of(given_of(data, "keep")[0])) == 4
    published = Dataset(edge_index=edge_index, edge_splits=splits, meta={"shared_links": "keep"})
    assert len(edges_of(given_of(published)[0])) == 4
    with refused("2 training edges, such as that from 1 to 0", "data edges copies reverses", "data.leaked_edges drop keep"):
        given_of(published, "error")


def test_pairs_have_no_link_and_are_as_likely(graph):
    """Each of the 150 possible negatives is drawn with the same frequency over many seeds."""
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
    with refused(f"{number + 1} negative pairs", f"without link {number} found", "fewer links sparser graph"):
        draw(number + 1, 5, 0)


# Links of relations


def pairs(columns):
    return set(zip(columns.indices.tolist(), columns.destinations().tolist(), strict=True))


def held(split, first=NUM["user"]):
    return {name: {(u, v - first) for u, v in own.T.tolist()} for name, own in split.links.items()}


def test_a_share_goes_with_copies_and_reverses():
    left, split = hetero_split(GRAPH, {BUYS: BOUGHT}, SHARES, seed=3)
    links, all_pairs = held(split), pairs(GRAPH.relations[BUYS])
    assert [len(links[name]) for name in SHARES] == [int(share * len(all_pairs)) for share in SHARES.values()]
    assert not links["val"] & links["test"]
    gone = links["val"] | links["test"]
    assert pairs(left.relations[BUYS]) == all_pairs - gone
    assert pairs(left.relations[BOUGHT]) == {(v, u) for u, v in all_pairs - gone}
    for relation in (KNOWS, SEES):
        assert left.relations[relation] is GRAPH.relations[relation]
    assert list(left.relations) == list(GRAPH.relations)
    assert pairs(both_ways(GRAPH.relations, [BUYS])) == {(u, 30 + v) for u, v in all_pairs} | {(30 + v, u) for u, v in all_pairs}
    assert pairs(both_ways(left.relations, [BUYS])) == {end for u, v in all_pairs - gone for end in ((u, 30 + v), (30 + v, u))}
    _, other = hetero_split(GRAPH, {BUYS: BOUGHT}, SHARES, seed=4)
    assert held(other) != links


def test_edges_keep_ids_and_times():
    columns, whole = hetero_split(GRAPH, {BUYS: BOUGHT}, SHARES)[0].relations[BUYS], GRAPH.relations[BUYS]
    ids = columns.ids_of(np.arange(columns.num_edges))
    assert PAIRS[:, ids].tolist() == [columns.indices.tolist(), columns.destinations().tolist()]
    assert columns.times.tolist() == whole.times[whole.csc_positions(ids)].tolist()


def test_the_latest_go_and_nothing_later_stays():
    left, split = hetero_split(GRAPH, {BUYS: BOUGHT}, SHARES, by_time=True)
    first = {}
    for (u, v), time in zip(PAIRS.T.tolist(), range(160), strict=True):
        first.setdefault((u, v), time)
    links = held(split)
    begin = min(first[pair] for pair in links["val"] | links["test"])
    assert max(first[pair] for pair in links["val"]) < min(first[pair] for pair in links["test"])
    assert {pair for pair, time in first.items() if time >= begin} == links["val"] | links["test"]
    for relation, columns in left.relations.items():
        whole = GRAPH.relations[relation]
        assert columns.times.max() < begin
        assert columns.num_edges == (whole.times < begin).sum()


def test_a_relation_that_is_its_own_reverse_loses_both_directions():
    src, dst = EDGES[KNOWS]
    graph = HeteroGraph.from_edges(NUM, {KNOWS: (np.r_[src, dst], np.r_[dst, src])})
    left, split = hetero_split(graph, {KNOWS: KNOWS}, SHARES)
    gone = {pair for own in held(split).values() for pair in own}
    stays = pairs(left.relations[KNOWS])
    assert gone
    assert not (gone | {(v, u) for u, v in gone}) & stays
    _, one_way = hetero_split(HeteroGraph.from_edges(NUM, {KNOWS: (src, dst)}), {KNOWS: None}, SHARES)
    assert {pair for own in held(one_way).values() for pair in own} <= pairs(GRAPH.relations[KNOWS])


def test_several_relations_lose_links_of_their_own():
    """Each relation loses its own held-out links, and no edge of one relation reveals a link of the other."""
    relations = {BUYS: BOUGHT, BOUGHT: BUYS, KNOWS: None}
    left, split = hetero_split(GRAPH, relations, SHARES, seed=3)
    begin, gone = 0, {}
    for relation in relations:
        kind, _, other = relation
        first = begin + NUM[kind]
        own = {name: links[:, (links[0] >= begin) & (links[0] < first)] - [[begin], [first]] for name, links in split.links.items()}
        alone = held(hetero_split(GRAPH, {relation: relations[relation]}, SHARES, seed=3)[1], NUM[kind])
        assert {name: set(map(tuple, links.T.tolist())) for name, links in own.items()} == alone
        gone[relation] = alone["val"] | alone["test"]
        both = {(begin + u, first + v) for u, v in pairs(GRAPH.relations[relation])}
        assert {(u, v) for u, v in pairs(both_ways(GRAPH.relations, relations)) if begin <= u < first} == both
        begin = first + NUM[other]
    assert sum(len(own[0]) for own in split.links.values()) == sum(map(len, gone.values()))
    bought = gone[BUYS] | {(v, u) for u, v in gone[BOUGHT]}
    assert pairs(left.relations[BUYS]) == pairs(GRAPH.relations[BUYS]) - bought
    assert pairs(left.relations[BOUGHT]) == pairs(GRAPH.relations[BOUGHT]) - {(v, u) for u, v in bought}
    assert pairs(left.relations[KNOWS]) == pairs(GRAPH.relations[KNOWS]) - gone[KNOWS]


def test_given_links_are_held_out():
    """The given validation and test links are held out. Only the training edges and their reverses stay."""
    own = np.unique(PAIRS, axis=1)
    graph = HeteroGraph.from_edges(NUM, {BUYS: tuple(own), BOUGHT: tuple(own[::-1]), KNOWS: EDGES[KNOWS]})
    ids = np.split(np.random.default_rng(3).permutation(own.shape[1]), [10, 30, own.shape[1] - 5])  # the last five edges are in no split
    splits = dict(zip(("val", "test", "train"), ids, strict=False))
    left, split = hetero_given(HeteroDataset(graph=graph, seed_type="item", edge_splits={BUYS: splits}), {BUYS: BOUGHT})
    for name in ("val", "test"):
        assert split.links[name].tolist() == (own[:, splits[name]] + [[0], [NUM["user"]]]).tolist()
    train = set(map(tuple, own[:, splits["train"]].T.tolist()))
    assert pairs(left.relations[BUYS]) == train
    assert {(u, v) for v, u in pairs(left.relations[BOUGHT])} == train
    assert left.relations[KNOWS] is graph.relations[KNOWS]


def test_given_links_that_are_edges():
    edges = {BUYS: ([0, 0, 1, 2], [3, 3, 4, 5]), BOUGHT: ([3, 3, 4, 5], [0, 0, 1, 2])}
    data = HeteroDataset(
        name="shop", graph=HeteroGraph.from_edges(NUM, edges), seed_type="item", edge_splits={BUYS: {"train": [0, 3], "test": [1, 2]}}
    )
    with refused("1 training edges, such as that from 0 to 3", "user:buys:item shop copies reverses", "data.leaked_edges drop keep"):
        hetero_given(data, {BUYS: BOUGHT})
    for choice, kept in (("drop", {(2, 5)}), ("keep", {(0, 3), (2, 5)})):
        left, _ = hetero_given(data, {BUYS: BOUGHT}, choice)
        assert pairs(left.relations[BUYS]) == kept
        assert pairs(left.relations[BOUGHT]) == {(v, u) for u, v in kept}
    with refused("user:knows:user", "relation not graph", "user:buys:item, item:bought:user choose"):
        hetero_given(data, {KNOWS: None})
    with refused("edge_splits", "item:bought:user split predefined shop", "add links random"):
        hetero_given(data, {BOUGHT: BUYS})
    apart = replace(data, edge_splits={BUYS: {"val": [1], "test": [1, 2]}})
    with refused("from 0 to 3", "user:buys:item splits val test shop share", "remove one"):
        hetero_given(apart, {BUYS: BOUGHT})


@pytest.mark.parametrize("by_time", [False, True])
def test_a_homogeneous_graph_is_a_relation_that_is_its_own_reverse(graph, by_time):
    hetero = HeteroGraph({"user": 30}, {KNOWS: (graph.indptr, graph.indices)}, times={KNOWS: graph.times}, edge_ids={KNOWS: graph.edge_ids})
    train, links = held_out_of(graph, SHARES, by_time=by_time)
    left, split = hetero_split(hetero, {KNOWS: KNOWS}, SHARES, by_time=by_time)
    for name, array in left.relations[KNOWS].arrays().items():
        assert (array == train.arrays()[name]).all()
    assert {name: (own - [[0], [30]]).tolist() for name, own in split.links.items()} == {name: own.tolist() for name, own in links.items()}


def held_out_of_a_ring(by_time, shares):
    held_out_of(Graph.from_edges([0, 1, 2], [1, 2, 0], times=[0, 1, 2]), shares, by_time=by_time)


def given_with(**splits):
    edge_index = np.array([[0, 1, 0, 3], [1, 0, 1, 2]])
    given_of(Dataset(edge_index=edge_index, edge_splits={name: np.array(ids) for name, ids in splits.items()}))


ALL_LINKS = np.divmod(np.arange(25), 5)
NOT_TIMED = HeteroGraph.from_edges(NUM, {BUYS: EDGES[BUYS]})
WITHOUT_EDGES = HeteroGraph.from_edges(NUM, {BUYS: (np.zeros(0, np.int64),) * 2})

MISTAKES = {
    **{
        f"an edge in {first} and {second}": Mistake(
            lambda splits=splits: given_with(**splits),
            value="from 1 to 0",
            rule=f"edge splits {first} {second} data",
            remedy="one",
        )
        for first, second, splits in (
            ("train", "test", {"train": [0, 1], "test": [2, 1]}),
            ("val", "test", {"val": [3, 1], "test": [1]}),
        )
    },
    **{
        f"shares {shares} {way}": Mistake(
            lambda by_time=by_time, shares=shares: held_out_of_a_ring(by_time, shares),
            value=str(shares),
            rule="shares each more 0 below 1",
            remedy="lower",
        )
        for way, by_time in (("at random", False), ("by time", True))
        for shares in ({"val": 0.5, "test": 0.5}, {"val": -0.1})
    },
    **{
        f"a share of no link {way}": Mistake(
            lambda by_time=by_time: held_out_of_a_ring(by_time, {"val": 1e-9}),
            value="1e-09",
            rule="share 3 links",
            remedy="larger 0",
        )
        for way, by_time in (("at random", False), ("by time", True))
    },
    "a graph without edges": Mistake(
        lambda: held_out_of(Graph(np.zeros(6, int), np.zeros(0, int)), SHARES),
        value="no edges",
        rule="graph no edges link",
        remedy="choose",
    ),
    "pairs without a link where all are linked": Mistake(
        lambda: pairs_without_link(Graph.from_edges(*ALL_LINKS, 5))(4, 0, 0),
        value="4 negative pairs",
        rule="without link 0 found",
        remedy="fewer links sparser graph",
    ),
    "links by time without times": Mistake(
        lambda: held_out_of(Graph.from_edges(*ALL_LINKS, 5), {"val": 0.1}, by_time=True),
        value="time",
        rule="split graph no times",
        remedy="Graph.from_edges random",
    ),
    "links that are all of one time": Mistake(
        lambda: held_out_of(Graph.from_edges(*ALL_LINKS, 5, times=np.zeros(25, int)), {"val": 0.1}, by_time=True),
        value="{'val': 0.1}",
        rule="training no earlier link left",
        remedy="hold out less",
    ),
    "given links of a data set without splits": Mistake(
        lambda: given_of(Dataset(graph=Graph.from_edges(*ALL_LINKS, 5))),
        value="edge_splits",
        rule="split predefined data no",
        remedy="add random",
    ),
    "a reverse relation that is not named": Mistake(
        lambda: hetero_split(GRAPH, {BUYS: None}, SHARES),
        value="item:bought:user",
        rule="relation edges user:buys:item item",
        remedy="exclude reverse reverse_relation ['item', 'bought', 'user']",
    ),
    "an unknown relation": Mistake(
        lambda: hetero_split(GRAPH, {("user", "owns", "item"): None}, SHARES),
        value="user:owns:item",
        rule="relation not graph",
        remedy="user:buys:item choose",
    ),
    "a share of all links": Mistake(
        lambda: hetero_split(GRAPH, {BUYS: BOUGHT}, {"val": 1.0}),
        value="{'val': 1.0}",
        rule="user:buys:item shares 0 below 1",
        remedy="lower",
    ),
    "links of a relation by time without times": Mistake(
        lambda: hetero_split(NOT_TIMED, {BUYS: None}, SHARES, by_time=True),
        value="time",
        rule="user:buys:item split edges no times",
        remedy="HeteroGraph.from_edges random",
    ),
    "a relation without edges": Mistake(
        lambda: hetero_split(WITHOUT_EDGES, {BUYS: None}, SHARES),
        value="user:buys:item",
        rule="relation no edges link",
        remedy="choose",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
