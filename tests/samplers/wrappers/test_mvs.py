"""MVSSampler: seeds drawn by their gradient norms, with weights that make losses unbiased."""

import gc
from pathlib import Path

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of

from hoptrain.samplers import MVSSampler, NeighborSampler, SampleLoader


@pytest.fixture
def sampler(graph):
    """Return a prepared sampler with the norms of ten nodes: a hundredfold range and a zero."""
    sampler = MVSSampler(NeighborSampler([1]), 6, uniform_mix=0.2).prepare(graph, np.arange(graph.num_nodes))
    sampler.update(np.arange(10), NORMS)
    return sampler


NORMS = np.array([100, 50, 20, 20, 10, 5, 5, 1, 1, 0.0])
LARGE = np.arange(10)
EXPECTED = 0.8 * NORMS / NORMS.sum() + 0.2 / 10


def test_seeds_come_as_often_as_their_norms_say(graph, sampler):
    """A node whose share of the norms is p is among the m seeds with probability 1 - (1 - p)**m."""
    counts, batches = np.zeros(10), 3000
    for i in range(batches):
        batch = sampler.sample(graph, LARGE, batch=i)
        assert len(set(batch.seeds.tolist())) == batch.num_seeds <= 6
        counts[batch.seeds] += 1
    share = 1 - (1 - EXPECTED) ** 6
    z = (counts - batches * share) / np.sqrt(batches * share * (1 - share))
    assert np.abs(z).max() < 4


def test_the_weighted_mean_loss_is_unbiased(graph, sampler):
    """The weighted mean loss is unbiased; if losses are nearly proportional to the norms, its variance is below that of uniform draws."""
    losses = NORMS * 3 + np.arange(10)
    even = MVSSampler(NeighborSampler([1]), 6, uniform_mix=1.0)

    def estimates(sampler):
        batches = [sampler.sample(graph, LARGE, batch=i) for i in range(3000)]
        return np.array([losses[batch.seeds] @ batch.seed_weights / batch.num_seeds for batch in batches])

    for own in (sampler, even):
        values = estimates(own)
        assert abs(values.mean() - losses.mean()) < 4 * values.std() / np.sqrt(3000)
    assert estimates(sampler).std() < 0.5 * estimates(even).std()


def test_norms_of_zero_are_uniform(graph, sampler):
    sampler.update(LARGE, np.zeros(10))
    counts = sum(np.bincount(sampler.sample(graph, LARGE, batch=i).seeds, minlength=10) for i in range(1000))
    share = 1 - 0.9**6
    assert np.abs(counts - 1000 * share).max() < 4 * np.sqrt(1000 * share * (1 - share))


def facts(batch):
    return [(name, a.tobytes()) for name, a in batch.arrays().items()]


def test_workers_follow_updates_between_epochs(dataset):
    """If the norms change between two epochs, the second epoch uses the new norms, with 0 workers and with 2."""
    epochs = {}
    for num_workers, updates in ((0, True), (2, True), (0, False)):
        sampler = MVSSampler(NeighborSampler([3]), 10)
        loader = SampleLoader(dataset, sampler, batch_size=60, num_workers=num_workers, seed=5)
        assert len(loader) == 2
        taken = [facts(batch) for batch in loader]
        if updates:
            sampler.update(dataset.split("train"), np.arange(120.0) ** 2)
        taken += [facts(batch) for batch in loader]
        assert all(batch.num_step_seeds == batch.num_seeds for batch in loader)
        epochs[num_workers, updates] = taken
        loader.close()
    assert epochs[0, True] == epochs[2, True]
    assert epochs[0, True][:2] == epochs[0, False][:2]
    assert epochs[0, True][2:] != epochs[0, False][2:]


def test_the_file_goes_with_the_sampler(graph):
    sampler = MVSSampler(NeighborSampler([1]), 6).prepare(graph, np.arange(3))
    file = Path(sampler.norms.filename)
    assert file.exists()
    del sampler
    gc.collect()
    assert not file.exists()


MISTAKES = {
    "no draws": Mistake(lambda: MVSSampler(NeighborSampler([1]), 0), value="0", rule="num_draws mini-batch least one seed"),
    "no share of uniform seeds": Mistake(
        lambda: MVSSampler(NeighborSampler([1]), 5, uniform_mix=0), value="uniform_mix is 0", rule="share (0, 1]"
    ),
    "a sampler that chooses its seeds": Mistake(
        lambda sampler: MVSSampler(sampler, 5), value="MVSSampler", rule="sampler chooses seeds", remedy="node-wise sampler"
    ),
    "norms before the first batch": Mistake(
        lambda: MVSSampler(NeighborSampler([1]), 5).update(LARGE, NORMS),
        value="norms",
        rule="before allocates",
        remedy="prepare(graph, seeds) SampleLoader",
    ),
    "fewer norms than nodes": Mistake(
        lambda sampler: sampler.update(LARGE, NORMS[:3]), value="(3,) norms", rule="(10,) nodes one", remedy="arrays equal length"
    ),
    "a node that the graph has not": Mistake(
        lambda sampler: sampler.update(np.array([0, 200]), np.ones(2)), value="200", rule="node 0 graph", remedy="199"
    ),
    "a negative norm": Mistake(
        lambda sampler: sampler.update(np.array([0, 1]), np.array([1.0, -1])), value="-1.0", rule="norm finite not negative"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
