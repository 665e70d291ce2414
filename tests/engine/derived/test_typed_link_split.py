"""Links held out of a relation: all copies go, those turned round too, and no later edge stays; beside sets of pairs in plain Python."""

import numpy as np
import pytest

from hoptrain.engine import InputError
from hoptrain.engine.derived.typed_link_split import hold_out_typed_links
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
    split = hold_out_typed_links(GRAPH, BUYS, SHARES, reverse=BOUGHT, seed=3)
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
    other = hold_out_typed_links(GRAPH, BUYS, SHARES, reverse=BOUGHT, seed=4)
    assert held(other) != links


def test_edges_keep_ids_and_times():
    columns, whole = hold_out_typed_links(GRAPH, BUYS, SHARES, reverse=BOUGHT).graph.relations[BUYS], GRAPH.relations[BUYS]
    ids = columns.ids_of(np.arange(columns.num_edges))
    assert PAIRS[:, ids].tolist() == [columns.indices.tolist(), columns.destinations().tolist()]
    assert columns.times.tolist() == whole.times[whole.places_of(ids)].tolist()


def test_the_latest_go_and_nothing_later_stays():
    split = hold_out_typed_links(GRAPH, BUYS, SHARES, reverse=BOUGHT, by_time=True)
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
    split = hold_out_typed_links(graph, KNOWS, SHARES, reverse=KNOWS)
    gone = {pair for own in held(split).values() for pair in own}
    left = pairs(split.graph.relations[KNOWS])
    assert gone
    assert not (gone | {(v, u) for u, v in gone}) & left
    one_way = hold_out_typed_links(HeteroGraph.from_edges(NUM, {KNOWS: (src, dst)}), KNOWS, SHARES)
    assert {pair for own in held(one_way).values() for pair in own} <= pairs(GRAPH.relations[KNOWS])


def test_what_cannot_be_held_out():
    turned = r"relation item:bought:user has the edges of user:buys:item turned round: .* reverse_relation \['item', 'bought', 'user'\]"
    for call, message in (
        (lambda: hold_out_typed_links(GRAPH, BUYS, SHARES), turned),
        (
            lambda: hold_out_typed_links(GRAPH, ("user", "owns", "item"), SHARES),
            "relation user:owns:item is not in the graph: it has user:buys",
        ),
        (lambda: hold_out_typed_links(GRAPH, BUYS, {"val": 1.0}, reverse=BOUGHT), r"shares of the links are {'val': 1.0}"),
        (
            lambda: hold_out_typed_links(HeteroGraph.from_edges(NUM, {BUYS: EDGES[BUYS]}), BUYS, SHARES, by_time=True),
            "split is time and the edges of user:buys:item have no times: give them to HeteroGraph",
        ),
        (
            lambda: hold_out_typed_links(HeteroGraph.from_edges(NUM, {BUYS: (np.zeros(0, np.int64),) * 2}), BUYS, SHARES),
            "relation user:buys:item has no edges",
        ),
    ):
        with pytest.raises(InputError, match=message):
            call()
