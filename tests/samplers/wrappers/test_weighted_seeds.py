"""WeightedSeedSampler: draws equal a slow reference for any batch size, and losses are means over the draws."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from reference.hetero_data import hetero_classifier, hetero_data, hetero_graph, hetero_module
from reference.neighbor import words

from hoptrain.kernels.shared.philox import HOP_SEEDS
from hoptrain.samplers import HeteroSampler, LinkSampler, NeighborSampler, SampleLoader, WeightedSeedSampler
from hoptrain.samplers.wrappers.weighted import class_shares
from hoptrain.trainers import NodeClassifier, NodeDataModule

SPLIT = np.array([7, 3, 11, 0, 5, 190, 4])
WEIGHTS = np.zeros(200)
WEIGHTS[SPLIT] = [8, 4, 0, 1, 1, 2, 0.5]


@pytest.fixture
def sampler(graph):
    return WeightedSeedSampler(NeighborSampler([2]), WEIGHTS).prepare(graph, SPLIT)


def drawn(number, seed, epoch):
    """Compute the ``number``-th draw exactly from 64 random bits."""
    high, low = words((seed, epoch, 0, int(HOP_SEEDS)), number, 2)
    place = Fraction(high << 32 | low, 2**64) * Fraction(WEIGHTS[SPLIT].sum())
    for node in SPLIT:
        place -= Fraction(WEIGHTS[node])
        if place < 0:
            return node
    raise AssertionError


def test_equal_to_a_plain_program(graph, sampler):
    draws = np.array([5, 0, 70, 2, 9, 33, 1, 4])
    batch = sampler.sample(graph, draws, seed=2**64 - 3, epoch=9, batch=4)
    counts = Counter(drawn(int(number), 2**64 - 3, 9) for number in draws)
    assert batch.seeds.tolist() == list(counts)
    np.testing.assert_allclose(batch.seed_weights, [len(counts) * times / 8 for times in counts.values()], rtol=1e-6)


def test_the_distribution(graph, sampler):
    number, counts = 20_000, np.zeros(200)
    batch = sampler.sample(graph, np.arange(number))
    counts[batch.seeds] = batch.seed_weights * number / batch.num_seeds
    share = WEIGHTS / WEIGHTS.sum()
    assert counts[share == 0].sum() == 0
    z = (counts - number * share)[share > 0] / np.sqrt(number * share * (1 - share))[share > 0]
    assert np.abs(z).max() < 4


def test_draws_do_not_depend_on_batches(dataset, sampler):
    """An epoch has the same draws on one rank and on two, with and without workers; another epoch has different draws."""

    def epoch(workers=0, **options):
        with SampleLoader(dataset, sampler, split=np.arange(120), num_workers=workers, seed=3, **options) as loader:
            return [(batch.seeds.tolist(), batch.seed_weights.tolist(), batch.num_step_seeds) for batch in loader]

    dataset = type(dataset)(graph=dataset.graph, x=dataset.x, y=dataset.y)
    sampler = WeightedSeedSampler(NeighborSampler([2]), np.arange(200) % 5)

    def times(batches, size):
        counts = Counter()
        for seeds, weights, _ in batches:
            for node, weight in zip(seeds, weights, strict=True):
                counts[node] += round(weight * size / len(seeds))
        return counts

    whole = epoch(batch_size=40)
    assert epoch(2, batch_size=40) == whole
    assert len(whole) == 3
    halves = [epoch(batch_size=20, rank=rank, world_size=2) for rank in range(2)]
    assert times(whole, 40) == times(halves[0] + halves[1], 20)
    with SampleLoader(dataset, sampler, split=np.arange(120), num_workers=0, seed=3, batch_size=40) as loader:
        assert [batch.seeds.tolist() for batch in loader] == [seeds for seeds, _, _ in whole]
        assert [batch.seeds.tolist() for batch in loader] != [seeds for seeds, _, _ in whole]


def test_heterogeneous_graphs():
    graph = hetero_graph()
    made = WeightedSeedSampler(HeteroSampler([2], "paper"), np.arange(90)).prepare(graph, np.arange(90))
    batch = made.sample(graph, np.arange(30))
    inner = HeteroSampler([2], "paper").sample(graph, batch.seeds)
    assert made.seed_type == "paper"
    assert all(np.array_equal(batch.node_ids[kind], ids) for kind, ids in inner.node_ids.items())
    assert batch.extra["seed_weights"].sum() == pytest.approx(batch.num_seeds)


def test_classes_share_an_epoch_alike():
    y = np.r_[np.zeros(80, int), np.ones(15, int), -1, np.full(4, 2)]
    shares = class_shares(y, np.r_[np.arange(0, 95, 2), 96, 97])
    assert [shares[y == kind].sum() for kind in range(-1, 3)] == pytest.approx([0, 1, 1, 1])
    assert (shares[1:95:2] == 0).all()


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_a_step_is_the_mean_over_its_draws(dataset, monkeypatch):
    y = np.where(np.arange(90) % 9 == 0, 2, np.arange(90) % 2)
    hetero = hetero_module(hetero_data(y=y), class_balanced_sampling=True)
    plain = NodeDataModule(dataset, NeighborSampler([2, 2]), batch_size=16, num_workers=0, class_balanced_sampling=True)
    for module, model in (
        (hetero, hetero_classifier(hetero, dropout=0.0)),
        (plain, NodeClassifier(plain.num_features, plain.num_classes, 2, hidden_channels=8, dropout=0.0)),
    ):
        monkeypatch.setattr(model, "log", lambda *arguments, **options: None)
        monkeypatch.setattr(type(model), "trainer", type("Alone", (), {"world_size": 1, "datamodule": module}), raising=False)
        model.degrees = torch.from_numpy(plain.data.graph.in_degrees()).float()
        loader = module.train_dataloader()
        batch = next(batch for batch in loader if batch.num_seeds < 16 and batch.batch < len(loader) - 1).to("cpu")
        weights = batch.extra["seed_weights"] if module is hetero else batch.seed_weights
        times = weights * 16 / batch.num_seeds
        torch.testing.assert_close(times, times.round())
        losses = torch.nn.functional.cross_entropy(model(batch), batch.y, reduction="none")
        torch.testing.assert_close(model.training_step(batch, 0), (losses * times).sum() / 16)


def seeds_by(weights):
    return WeightedSeedSampler(NeighborSampler([2]), weights)


MISTAKES = {
    "weights in a matrix": Mistake(lambda: seeds_by(np.ones((2, 1))), value="(2, 1)", rule="weights one each node", remedy="vector"),
    "a negative weight": Mistake(
        lambda: seeds_by(np.array([1, -1])), value="-1.0", rule="weight node 1 finite not negative", remedy="0 more"
    ),
    "a sampler that chooses its seeds": Mistake(
        lambda: WeightedSeedSampler(LinkSampler(NeighborSampler([2])), np.ones(200)),
        value="LinkSampler",
        rule="WeightedSeedSampler sampler chooses seeds",
        remedy="node-wise sampler",
    ),
    "too few weights": Mistake(
        lambda dataset: SampleLoader(dataset, seeds_by(np.ones(3))), value="3 weights", rule="200 nodes random", remedy="one each"
    ),
    "a split all of whose weights are 0": Mistake(
        lambda graph, sampler: sampler.prepare(graph, np.array([11])), value="1 seeds", rule="all weight 0 drawn", remedy="above 0"
    ),
    "no split": Mistake(
        lambda graph: seeds_by(WEIGHTS).sample(graph, np.arange(3)),
        value="WeightedSeedSampler",
        rule="without split",
        remedy="prepare(graph, seeds) SampleLoader",
    ),
    "a negative draw": Mistake(lambda graph, sampler: sampler.sample(graph, np.array([-1])), value="[-1]", rule="draws one more numbered"),
    "labels that are no classes": Mistake(
        lambda: hetero_module(hetero_data(y=np.random.default_rng(0).random(90)), class_balanced_sampling=True),
        value="labels",
        rule="class_balanced_sampling no classes",
        remedy="leave out",
    ),
    "balanced batches of links": Mistake(
        lambda dataset: NodeDataModule(dataset, LinkSampler(NeighborSampler([2])), class_balanced_sampling=True),
        value="LinkSampler",
        rule="class_balanced_sampling seeds nodes class",
        remedy="leave out",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
