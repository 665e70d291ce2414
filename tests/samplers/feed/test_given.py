"""Batches that the consumer gives: with workers as without, epoch after epoch, at their addresses."""

import numpy as np
import pytest

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.schedule import Address
from hoptrain.samplers import NeighborSampler, SampleLoader
from hoptrain.samplers.feed.given import GivenBatches

EPOCHS = [[np.array([3, 1, 4]), np.array([1, 5]), np.array([9])], [np.array([2, 6])], [np.array([5, 3, 5 + 3]), np.array([9, 7])]]


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(2)
    return Dataset(graph=Graph.from_edges(*generator.integers(0, 40, (2, 300)), 40), x=generator.random((40, 3), np.float32))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_every_step_has_the_items_given_for_it(data, num_workers):
    given, sampler = GivenBatches(3, 6), NeighborSampler([2, 2])
    with SampleLoader(data, sampler, schedule=given, num_workers=num_workers) as loader:
        for epoch, items in enumerate(EPOCHS):
            assert given.give((1 << 64) - 1 - epoch, items)
            batches = [(batch.seeds.tolist(), batch.node_ids.tolist(), batch.x.tolist()) for batch in loader]
            wanted = [
                sampler.sample(data.graph, seeds, seed=(1 << 64) - 1 - epoch, epoch=epoch, batch=step) for step, seeds in enumerate(items)
            ]
            assert batches == [
                (seeds.tolist(), one.node_ids.tolist(), data.x[one.node_ids].tolist()) for seeds, one in zip(items, wanted, strict=True)
            ]


def test_what_has_no_room_is_not_taken():
    given = GivenBatches(2, 3)
    room = len(given._plan)
    assert given.give(1, EPOCHS[1])
    assert not given.give(2, EPOCHS[0])
    assert not given.give(2, [np.zeros(room, np.int64)])
    assert (given.num_steps, given.address(7, 0), given.batch_items(7, 0).tolist()) == (1, Address(1, 7, 0), [2, 6])


def test_ranks_have_addresses_of_their_own():
    given = GivenBatches(2, 4, rank=1, world_size=2)
    given.give(3, [np.array([1, 2]), np.array([0])])
    assert [given.address(0, step) for step in range(2)] == [Address(3, 0, 2), Address(3, 0, 3)]
    assert [given.num_step_items(step) for step in range(2)] == [2, 1]
