"""The feed for given items: the sampler's batches at their addresses, by processes that stay as long as their work does."""

import numpy as np
import pytest

from hoptrain.engine import Graph
from hoptrain.samplers import NeighborSampler
from hoptrain.samplers.feed.given_feed import GivenFeed, Place, Work

ITEMS = [np.array([3, 1, 4]), np.array([1, 5])]


@pytest.fixture(scope="module")
def work():
    generator = np.random.default_rng(2)
    graph = Graph.from_edges(*generator.integers(0, 40, (2, 300)), 40)
    return Work(graph, NeighborSampler([2, 2]), generator.random((40, 3), np.float32))


def listed(batches):
    return [
        (batch.node_ids.tolist(), batch.blocks[0].edge_ids.tolist(), None if batch.x is None else batch.x.tolist()) for batch in batches
    ]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_are_those_of_their_addresses(work, num_workers):
    feed = GivenFeed(num_workers, prefetch=3, timeout=60)
    loaders = []
    for epoch in (4, 9):
        place = Place(7, epoch, 1, 2, len(ITEMS))
        wanted = [work.sampler.sample(work.graph, seeds, seed=7, epoch=epoch, batch=2 + step) for step, seeds in enumerate(ITEMS)]
        expected = [(batch.node_ids.tolist(), batch.blocks[0].edge_ids.tolist(), work.rows[batch.node_ids].tolist()) for batch in wanted]
        assert listed(feed.batches(work, place, ITEMS)) == expected
        assert feed.items(1).tolist() == [1, 5]
        loaders.append(feed._loader)
    assert loaders[0] is loaders[1]
    feed.close()


def test_other_work_is_started_anew(work):
    feed, place = GivenFeed(0), Place(7, 0, 0, 1, len(ITEMS))
    with_rows = listed(feed.batches(work, place, ITEMS))
    without = listed(feed.batches(work._replace(rows=None), place, ITEMS))
    assert [batch[:2] for batch in with_rows] == [batch[:2] for batch in without]
    assert all(x is None for _, _, x in without)
    other = feed.batches(work._replace(sampler=NeighborSampler([1])), place, ITEMS)
    assert {len(batch.blocks) for batch in other} == {1}


def test_a_few_more_items_start_nothing_anew(work, monkeypatch):
    monkeypatch.setattr("hoptrain.samplers.feed.given.SHARE_FROM_BYTES", 0)  # else there is room for thousands
    feed, place = GivenFeed(0), Place(7, 0, 0, 1, 1)
    loaders = []
    for number in (16, 20, 10, 40):
        (batch,) = feed.batches(work, place, [np.arange(number)])
        assert batch.seeds.tolist() == list(range(number))
        loaders.append(feed._loader)
    assert loaders[0] is loaders[1] is loaders[2] is not loaders[3]


def test_an_epoch_without_steps_has_no_batch(work):
    assert list(GivenFeed(1).batches(work, Place(7, 0, 0, 1, 0), [])) == []


def test_places_have_states_of_their_own():
    states = {Place(7, epoch, rank, 2, 3).state(step) for epoch in range(2) for rank in range(2) for step in range(3)}
    assert len(states) == 12
