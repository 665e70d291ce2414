"""The feed for seeds that the consumer supplies: batches equal the sampler's, and processes are kept while their task is the same."""

import multiprocessing
import threading
import time
from itertools import count, islice

import numpy as np
import pytest
import torch
from cases.mistakes import refused

from hoptrain.engine import Graph, WorkerError
from hoptrain.samplers import NeighborSampler
from hoptrain.samplers.loader.external_seed_loader import ExternalSeedLoader
from hoptrain.samplers.loader.external_seeds import LoaderSpec, RngContext

ITEMS = [np.array([3, 1, 4]), np.array([1, 5])]


@pytest.fixture(scope="module")
def work():
    generator = np.random.default_rng(2)
    graph = Graph.from_edges(*generator.integers(0, 40, (2, 300)), 40)
    return LoaderSpec(graph, NeighborSampler([2, 2]), {"x": generator.random((40, 3), np.float32)})


def contents(batch):
    return batch.node_ids.tolist(), batch.blocks[0].edge_ids.tolist()


def made(step, items, source):
    """Return the contents of a batch."""
    return *contents(source(items)), {name: rows.tolist() for name, rows in source.rows().items()}


@pytest.fixture
def feed():
    feeds = []

    def make(*arguments, **options):
        feeds.append(ExternalSeedLoader(*arguments, **options))
        return feeds[-1]

    yield make
    for each in feeds:
        each.close()


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_batches_are_those_of_their_addresses(work, feed, num_workers):
    one, pids = feed(num_workers, prefetch_factor=3, timeout=60), []
    for epoch in (4, 9):
        wanted = [work.sampler.sample(work.graph, seeds, seed=7, epoch=epoch, batch=2 + step) for step, seeds in enumerate(ITEMS)]
        expected = [(*contents(batch), {"x": work.stores["x"][batch.node_ids].tolist()}) for batch in wanted]
        assert list(one.epoch(work, RngContext(7, epoch, 1, 2, len(ITEMS)), ITEMS, made)) == expected
        pids.append(one.pids())
    assert pids[0] == pids[1]
    assert len(pids[0]) == num_workers


def test_rows_that_nobody_waits_for_are_there_before_the_next_batch(feed, monkeypatch):
    """All rows are gathered before the next batch is sampled, even if the consumer does not wait for them.

    The ids that they are gathered by are valid only until then.
    """
    monkeypatch.setattr("hoptrain.samplers.loader.gather.WORTH_SHARING", 1)
    monkeypatch.setattr("hoptrain.samplers.loader.external_seed_loader.threads_for", lambda *_: 3)
    wide = Graph.from_edges(np.arange(50_000), np.roll(np.arange(50_000), 1), 50_000)
    x, kept = np.random.default_rng(0).random((50_000, 9)), []

    def careless(step, items, source):
        kept.append((source(items).node_ids.copy(), source))

    items = [np.arange(first, 50_000, 3) for first in (0, 1, 2)]
    assert len(list(feed(0).epoch(LoaderSpec(wide, NeighborSampler([1]), {"x": x}), RngContext.of(7, 0, 3), items, careless))) == 3
    for nodes, source in kept:
        np.testing.assert_array_equal(source.rows()["x"], x[nodes])


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_an_epoch_without_an_end(work, feed, num_workers):
    """In an endless epoch, the feed requests items only a few steps ahead."""
    asked = []

    def endless():
        for step in count():
            asked.append(step)
            yield np.arange(step % 40 + 1)

    ahead = max(1, num_workers * 3)
    batches = feed(num_workers).epoch(work, RngContext.of(7, 0, None), endless(), made)
    for step, batch in enumerate(islice(batches, 60)):
        expected = work.sampler.sample(work.graph, np.arange(step % 40 + 1), seed=7, batch=step)
        assert batch[:2] == contents(expected)
        assert asked == list(range(step + ahead))


def test_a_thread_changes_no_batch(work, feed):
    items = [np.arange(size) for size in (3, 40, 1, 20)]
    place = RngContext(7, 3, 1, 2, len(items))
    wanted = list(feed(0).epoch(work, place, items, made))
    ahead = feed(0)
    for _ in range(2):
        assert list(ahead.epoch(work, place, items, made, is_ahead=True)) == wanted


def test_a_batch_stays_as_it_is_while_the_next_is_made(work, feed):
    """A batch keeps its contents while a thread makes the next one, since the workspace holds the arrays of two batches."""
    sizes = (3, 40, 1, 20, 38, 7)

    def late(step, items, source):
        batch = source(items)
        time.sleep(0.05)  # meanwhile the thread makes the next batch
        return contents(batch)

    found = list(feed(0).epoch(work, RngContext.of(7, 0, len(sizes)), [np.arange(size) for size in sizes], late, is_ahead=True))
    assert found == [contents(work.sampler.sample(work.graph, np.arange(size), seed=7, batch=step)) for step, size in enumerate(sizes)]


def test_a_thread_asks_for_one_step_ahead_and_all_in_the_consumer_s_thread(work, feed):
    asked = []

    def indices():
        for step in count():
            asked.append(step)
            yield np.arange(step % 40 + 1)

    def checked(step, items, source):
        assert threading.current_thread() is threading.main_thread()
        return made(step, items, source)

    for step, batch in enumerate(islice(feed(0).epoch(work, RngContext.of(7, 0, None), indices(), checked, is_ahead=True), 30)):
        assert batch[:2] == contents(work.sampler.sample(work.graph, np.arange(step % 40 + 1), seed=7, batch=step))
        assert asked == list(range(step + 2))


def test_a_new_epoch_ends_the_thread_of_the_one_before(work, feed):
    one, place = feed(0), RngContext(7, 0, 0, 1, 4)
    before = one.epoch(work, place, ITEMS * 2, made, is_ahead=True)
    next(before)
    wanted = list(feed(0).epoch(work, place, ITEMS * 2, made))
    assert list(one.epoch(work, place, ITEMS * 2, made, is_ahead=True)) == wanted
    with refused("batch 1", "iterator loader iterated again", "another loader"):
        next(before)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("hoptrain-ahead")]


def test_rows_that_are_written_during_an_epoch_are_seen_as_without_the_thread(work, feed):
    x = torch.zeros(40, 2)
    rows = work._replace(stores={"x": x.numpy()}, state=lambda: x._version)

    def seen(step, items, source):
        source(items)
        return source.rows()["x"][0, 0].item()

    found = []
    for value in feed(0).epoch(rows, RngContext.of(7, 0, 4), ITEMS * 2, seen, is_ahead=True):
        found.append(value)
        x += 1
    assert found == [0, 1, 2, 3]


def of_child(feed, batches, place, work, wanted):
    """Check in a forked child that the parent's iterator raises WorkerError, and that a new iterator has the ``wanted`` batches."""
    with refused("iterator", "batch process fork", "new iterator", WorkerError):
        next(batches)
    assert list(feed.epoch(work, place, ITEMS * 3, made, is_ahead=True)) == wanted


def test_a_fork_iterates_from_scratch(work, feed):
    one, place = feed(0), RngContext(7, 0, 0, 1, 6)
    wanted = list(feed(0).epoch(work, place, ITEMS * 3, made))
    batches = one.epoch(work, place, ITEMS * 3, made, is_ahead=True)
    assert next(batches) == wanted[0]
    child = multiprocessing.get_context("fork").Process(target=of_child, args=(one, batches, place, work, wanted))
    child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
    assert child.exitcode == 0
    assert list(batches) == wanted[1:]


def test_large_items_get_more_space(work, feed):
    wide = Graph.from_edges(np.arange(50_000), np.roll(np.arange(50_000), 1), 50_000)
    items = [np.arange(size) for size in (3, 40_000, 5, 50_000, 6)]
    batches = feed(1).epoch(
        LoaderSpec(wide, work.sampler, {}), RngContext.of(7, 0, 5), items, lambda step, items, source: len(source(items).seeds)
    )
    assert list(batches) == [3, 40_000, 5, 50_000, 6]


def test_ranks_have_batches_of_their_own_in_an_epoch_of_unknown_length(monkeypatch):
    numbers = set()
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        place = RngContext.of(7, 0, None)
        numbers |= {place.rank * place.num_steps + step for step in (0, 1, 10**9)}
    assert len(numbers) == 9
    assert max(numbers) < 1 << 32


def test_other_work_restarts_the_feed(work, feed):
    one, place = feed(1), RngContext(7, 0, 0, 1, len(ITEMS))
    with_rows = list(one.epoch(work, place, ITEMS, made))
    without = list(one.epoch(work._replace(stores={}), place, ITEMS, made))
    assert [batch[:2] for batch in with_rows] == [batch[:2] for batch in without]
    assert all(rows == {} for _, _, rows in without)
    other = one.epoch(work._replace(sampler=NeighborSampler([1])), place, ITEMS, lambda step, items, source: len(source(items).blocks))
    assert set(other) == {1}


def test_an_epoch_without_steps_has_no_batch(work, feed):
    one = feed(1)
    assert list(one.epoch(work, RngContext(7, 0, 0, 1, 0), [], made)) == []
    assert one.pids() == []


@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_a_loader_may_not_do(work, feed, num_workers):
    one, place = feed(num_workers), RngContext(7, 0, 0, 1, 2)
    with refused("batch", "without hoptrain's sampler", "custom call once batch"):
        next(one.epoch(work, place, ITEMS, lambda step, items, source: items))
    with refused("seeds", "sampler asked other second", "negative sampler torch's generator"):
        next(one.epoch(work, place, ITEMS, lambda step, items, source: [source(items), source(items + 1)]))
    before = one.epoch(work, place, ITEMS, made)
    next(before)
    assert len(list(one.epoch(work, place, ITEMS, made))) == 2
    with refused("batch 1", "iterator loader iterated again", "another loader"):
        next(before)


def test_places_have_states_of_their_own():
    states = {RngContext(7, epoch, rank, 2, 3).state(step) for epoch in range(2) for rank in range(2) for step in range(3)}
    assert len(states) == 12
