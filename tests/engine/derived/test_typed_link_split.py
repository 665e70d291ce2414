"""Links held out of a relation: all copies go, those turned round too, and no later edge stays; beside sets of pairs in plain Python."""

from dataclasses import replace

import numpy as np
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine import HeteroDataset
from hoptrain.engine.derived.typed_link_split import given_typed_links, hold_out_typed_links
from hoptrain.engine.hetero_graph import HeteroGraph

NUM = {"user": 30, "item": 20}
BUYS, BOUGHT, KNOWS, SEES = ("user", "buys", "item"), ("item", "bought", "user"), ("user", "knows", "user"), ("user", "sees", "item")
RNG = np.random.default_rng(2)
PAIRS = RNG.integers(0, [[12], [9]], (2, 160))  # many copies
EDGES = {BUYS: tuple(PAIRS), BOUGHT: tuple(PAIRS[::-1]), KNOWS: tuple(RNG.integers(0, 30, (2, 60))), SEES: tuple(PAIRS[:, :50])}
TIMES = {relation: RNG.integers(0, 100, len(ends[0])) for relation, ends in EDGES.items()} | {BUYS: np.arange(160), BOUGHT: np.arange(160)}
GRAPH = HeteroGraph.from_edges(NUM, EDGES, times=TIMES)
SHARES = {"val": 0.2, "test": 0.3}


def pairs(columns):
    return set(zip(columns.indices.tolist(), columns.destinations().tolist(), strict=True))


def held(split, first=NUM["user"]):
    return {name: {(u, v - first) for u, v in own.T.tolist()} for name, own in split.links.items()}


def test_a_share_goes_with_copies_and_reverses():
    split = hold_out_typed_links(GRAPH, {BUYS: BOUGHT}, SHARES, seed=3)
    links, all_pairs = held(split), pairs(GRAPH.relations[BUYS])
    assert [len(links[name]) for name in SHARES] == [int(share * len(all_pairs)) for share in SHARES.values()]
    assert not links["val"] & links["test"]
    gone = links["val"] | links["test"]
    assert pairs(split.graph.relations[BUYS]) == all_pairs - gone
    assert pairs(split.graph.relations[BOUGHT]) == {(v, u) for u, v in all_pairs - gone}
    for relation in (KNOWS, SEES):
        assert split.graph.relations[relation] is GRAPH.relations[relation]
    assert list(split.graph.relations) == list(GRAPH.relations)
    assert pairs(split.known) == {(u, 30 + v) for u, v in all_pairs} | {(30 + v, u) for u, v in all_pairs}
    assert pairs(split.passed) == {end for u, v in all_pairs - gone for end in ((u, 30 + v), (30 + v, u))}
    other = hold_out_typed_links(GRAPH, {BUYS: BOUGHT}, SHARES, seed=4)
    assert held(other) != links


def test_edges_keep_ids_and_times():
    columns, whole = hold_out_typed_links(GRAPH, {BUYS: BOUGHT}, SHARES).graph.relations[BUYS], GRAPH.relations[BUYS]
    ids = columns.ids_of(np.arange(columns.num_edges))
    assert PAIRS[:, ids].tolist() == [columns.indices.tolist(), columns.destinations().tolist()]
    assert columns.times.tolist() == whole.times[whole.places_of(ids)].tolist()


def test_the_latest_go_and_nothing_later_stays():
    split = hold_out_typed_links(GRAPH, {BUYS: BOUGHT}, SHARES, by_time=True)
    first = {}
    for (u, v), time in zip(PAIRS.T.tolist(), range(160), strict=True):
        first.setdefault((u, v), time)
    links = held(split)
    begin = min(first[pair] for pair in links["val"] | links["test"])
    assert max(first[pair] for pair in links["val"]) < min(first[pair] for pair in links["test"])
    assert {pair for pair, time in first.items() if time >= begin} == links["val"] | links["test"]
    for relation, columns in split.graph.relations.items():
        whole = GRAPH.relations[relation]
        assert columns.times.max() < begin
        assert columns.num_edges == (whole.times < begin).sum()


def test_a_relation_that_is_its_own_reverse_loses_both_directions():
    src, dst = EDGES[KNOWS]
    graph = HeteroGraph.from_edges(NUM, {KNOWS: (np.r_[src, dst], np.r_[dst, src])})
    split = hold_out_typed_links(graph, {KNOWS: KNOWS}, SHARES)
    gone = {pair for own in held(split).values() for pair in own}
    left = pairs(split.graph.relations[KNOWS])
    assert gone
    assert not (gone | {(v, u) for u, v in gone}) & left
    one_way = hold_out_typed_links(HeteroGraph.from_edges(NUM, {KNOWS: (src, dst)}), {KNOWS: None}, SHARES)
    assert {pair for own in held(one_way).values() for pair in own} <= pairs(GRAPH.relations[KNOWS])


def test_several_relations_lose_links_of_their_own():
    """Ends of the second relation are numbered behind those of the first, and no edge of either tells of a link of the other."""
    relations = {BUYS: BOUGHT, BOUGHT: BUYS, KNOWS: None}
    split = hold_out_typed_links(GRAPH, relations, SHARES, seed=3)
    begin, gone = 0, {}
    for relation in relations:
        kind, _, other = relation
        first = begin + NUM[kind]
        own = {name: links[:, (links[0] >= begin) & (links[0] < first)] - [[begin], [first]] for name, links in split.links.items()}
        alone = held(hold_out_typed_links(GRAPH, {relation: relations[relation]}, SHARES, seed=3), NUM[kind])
        assert {name: set(map(tuple, links.T.tolist())) for name, links in own.items()} == alone
        gone[relation] = alone["val"] | alone["test"]
        both = {(begin + u, first + v) for u, v in pairs(GRAPH.relations[relation])}
        assert {(u, v) for u, v in pairs(split.known) if begin <= u < first} == both
        begin = first + NUM[other]
    assert sum(len(own[0]) for own in split.links.values()) == sum(map(len, gone.values()))
    bought = gone[BUYS] | {(v, u) for u, v in gone[BOUGHT]}
    assert pairs(split.graph.relations[BUYS]) == pairs(GRAPH.relations[BUYS]) - bought
    assert pairs(split.graph.relations[BOUGHT]) == pairs(GRAPH.relations[BOUGHT]) - {(v, u) for u, v in bought}
    assert pairs(split.graph.relations[KNOWS]) == pairs(GRAPH.relations[KNOWS]) - gone[KNOWS]


def test_given_links_are_held_out():
    """Of edges that have no copies: those of train alone stay, and of the reverse relation those of the same links."""
    own = np.unique(PAIRS, axis=1)
    graph = HeteroGraph.from_edges(NUM, {BUYS: tuple(own), BOUGHT: tuple(own[::-1]), KNOWS: EDGES[KNOWS]})
    ids = np.split(np.random.default_rng(3).permutation(own.shape[1]), [10, 30, own.shape[1] - 5])  # of no split are the last five
    splits = dict(zip(("val", "test", "train"), ids, strict=False))
    split = given_typed_links(HeteroDataset(graph=graph, seed_type="item", edge_splits={BUYS: splits}), {BUYS: BOUGHT})
    for name in ("val", "test"):
        assert split.links[name].tolist() == (own[:, splits[name]] + [[0], [NUM["user"]]]).tolist()
    train = set(map(tuple, own[:, splits["train"]].T.tolist()))
    assert pairs(split.graph.relations[BUYS]) == train
    assert {(u, v) for v, u in pairs(split.graph.relations[BOUGHT])} == train
    assert split.graph.relations[KNOWS] is graph.relations[KNOWS]


def test_given_links_that_edges_tell_of():
    edges = {BUYS: ([0, 0, 1, 2], [3, 3, 4, 5]), BOUGHT: ([3, 3, 4, 5], [0, 0, 1, 2])}
    data = HeteroDataset(
        name="shop", graph=HeteroGraph.from_edges(NUM, edges), seed_type="item", edge_splits={BUYS: {"train": [0, 3], "test": [1, 2]}}
    )
    with refused("(1, that from 0 to 3", "user:buys:item shop copies reverses", "data.shared_links drop keep"):
        given_typed_links(data, {BUYS: BOUGHT})
    for choice, left in (("drop", {(2, 5)}), ("keep", {(0, 3), (2, 5)})):
        split = given_typed_links(data, {BUYS: BOUGHT}, choice)
        assert pairs(split.graph.relations[BUYS]) == left
        assert pairs(split.graph.relations[BOUGHT]) == {(v, u) for u, v in left}
    with refused("user:knows:user", "relation not graph", "user:buys:item, item:bought:user choose"):
        given_typed_links(data, {KNOWS: None})
    with refused("edge_splits", "item:bought:user split given shop", "Dataset share"):
        given_typed_links(data, {BOUGHT: BUYS})
    apart = replace(data, edge_splits={BUYS: {"val": [1], "test": [1, 2]}})
    with refused("from 0 to 3", "user:buys:item splits val test shop", "leave out one"):
        given_typed_links(apart, {BUYS: BOUGHT})


NOT_TIMED = HeteroGraph.from_edges(NUM, {BUYS: EDGES[BUYS]})
WITHOUT_EDGES = HeteroGraph.from_edges(NUM, {BUYS: (np.zeros(0, np.int64),) * 2})

MISTAKES = {
    "a reverse relation that is not named": Mistake(
        lambda: hold_out_typed_links(GRAPH, {BUYS: None}, SHARES),
        value="item:bought:user",
        rule="relation edges user:buys:item turned",
        remedy="exclude reverse reverse_relation ['item', 'bought', 'user']",
    ),
    "an unknown relation": Mistake(
        lambda: hold_out_typed_links(GRAPH, {("user", "owns", "item"): None}, SHARES),
        value="user:owns:item",
        rule="relation not graph",
        remedy="user:buys:item choose",
    ),
    "a share of all links": Mistake(
        lambda: hold_out_typed_links(GRAPH, {BUYS: BOUGHT}, {"val": 1.0}),
        value="{'val': 1.0}",
        rule="user:buys:item shares 0 below 1",
        remedy="correct",
    ),
    "links by time without times": Mistake(
        lambda: hold_out_typed_links(NOT_TIMED, {BUYS: None}, SHARES, by_time=True),
        value="time",
        rule="user:buys:item split edges no times",
        remedy="HeteroGraph.from_edges share",
    ),
    "a relation without edges": Mistake(
        lambda: hold_out_typed_links(WITHOUT_EDGES, {BUYS: None}, SHARES),
        value="user:buys:item",
        rule="relation no edges learnt",
        remedy="choose",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
