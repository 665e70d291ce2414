"""Batches of seeds that the consumer supplies: equal with and without workers in each epoch, in memory that does not grow."""

import os

import numpy as np
import pytest

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.queue.shared_memory import dumps
from hoptrain.engine.schedule import Address
from hoptrain.samplers import NeighborSampler, SampleLoader
from hoptrain.samplers.loader.external_seeds import ExternalBatchSampler

EPOCHS = [[np.array([3, 1, 4]), np.array([1, 5]), np.array([9])], [np.array([2, 6])], [np.array([5, 3, 5 + 3]), np.array([9, 7])]]


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(2)
    return Dataset(graph=Graph.from_edges(*generator.integers(0, 40, (2, 300)), 40), x=generator.random((40, 3), np.float32))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_every_step_has_the_items_given_for_it(data, num_workers):
    given, sampler = ExternalBatchSampler(3), NeighborSampler([2, 2])
    with SampleLoader(data, sampler, schedule=given, num_workers=num_workers) as loader:
        for epoch, items in enumerate(EPOCHS):
            given.begin((1 << 64) - 1 - epoch, len(items))
            for step, seeds in enumerate(items):
                given.give(step, seeds)
            batches = [(batch.seeds.tolist(), batch.node_ids.tolist(), batch.x.tolist()) for batch in loader]
            wanted = [
                sampler.sample(data.graph, seeds, seed=(1 << 64) - 1 - epoch, epoch=epoch, batch=step) for step, seeds in enumerate(items)
            ]
            assert batches == [
                (seeds.tolist(), one.node_ids.tolist(), data.x[one.node_ids].tolist()) for seeds, one in zip(items, wanted, strict=True)
            ]


def test_steps_take_the_places_of_those_before():
    given = ExternalBatchSampler(3)
    given.begin(1, 1000)
    copy = ExternalBatchSampler.__new__(ExternalBatchSampler)
    copy.__dict__.update(given.__dict__)  # as in a worker, which gets no notice of changes
    sizes = [5, 0, 3, 9000, 1, 7, 20_000, 9000, 5] + [2] * 900
    for step, size in enumerate(sizes):
        given.give(step, np.arange(size) + step)
        for seen in range(max(0, step - 2), step + 1):
            for who in (given, copy):
                assert np.array_equal(who.batch_items(0, seen), np.arange(sizes[seen]) + seen)
                assert who.num_step_items(seen) == sizes[seen]
    job, files = dumps(given)
    assert len(job) < 1000, "workers get it by reference"
    for file in files:
        assert os.fstat(file).st_size // 8 < 2 * (20_000 + 9000 + 9000) * 5 // 4 + 2 * 9000 * 5 // 4
        os.close(file)


def test_ranks_have_addresses_of_their_own():
    given = ExternalBatchSampler(2, rank=1, world_size=2)
    given.begin(3, 2)
    for step, items in enumerate([np.array([1, 2]), np.array([0])]):
        given.give(step, items)
    assert [given.address(0, step) for step in range(2)] == [Address(3, 0, 2), Address(3, 0, 3)]
    assert [given.num_step_items(step) for step in range(2)] == [2, 1]
