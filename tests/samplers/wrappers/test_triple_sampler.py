"""Triples as seeds: the contents of a batch, the distribution of negatives, and edges excluded from messages."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from scipy.stats import chisquare

from hoptrain.engine.datasets.triples import Triples
from hoptrain.samplers import LaborSampler, NeighborSampler
from hoptrain.samplers.wrappers.triples import TripleSampler


def drawn(number=300, num_nodes=40, num_relations=3):
    """Return distinct triples, with several between the same two entities and some from an entity to itself."""
    rng = np.random.default_rng(0)
    rows = np.unique(np.stack([rng.integers(0, high, number) for high in (num_nodes // 2, num_relations, num_nodes // 2)], axis=1), axis=0)
    return Triples(splits={"train": rng.permutation(rows)}, num_nodes=num_nodes, num_relations=num_relations)


def test_a_batch_names_its_triples():
    data = drawn()
    for sampler in (None, NeighborSampler([3]), NeighborSampler([3, 2]), NeighborSampler([3, 2], expand="new")):
        numbers = np.array([7, 0, 30])
        batch = TripleSampler(data, sampler, 5).sample(data.graph(), numbers, seed=3, epoch=1, batch=2)
        heads, relations, tails = batch.extra["triples"]
        assert (
            np.stack([batch.node_ids[heads], relations, batch.node_ids[tails]], axis=1).tolist() == data.splits["train"][numbers].tolist()
        )
        named = np.concatenate([batch.node_ids[heads], batch.node_ids[tails], batch.node_ids[batch.extra["negatives"]]])
        assert batch.seeds.tolist() == list(dict.fromkeys(named.tolist())), "each once, in order of first appearance"
        assert len(batch.blocks) == (0 if sampler is None else sampler.num_hops)


def test_all_entities_as_negatives():
    data = drawn()
    batch = TripleSampler(data).sample(data.graph(), np.arange(4))
    assert sorted(batch.node_ids[batch.extra["negatives"]].tolist()) == list(range(40))
    assert batch.num_seeds == 40


def test_the_distribution_of_the_negatives():
    """Negatives are uniform (p = 0.0001), and depend only on the address: seed, epoch and batch."""
    data, graph = drawn(), drawn().graph()
    sampler = TripleSampler(data, None, 1000)
    found = {}
    for address in [(seed, epoch, batch) for seed in range(3) for epoch in range(3) for batch in range(3)]:
        of = dict(zip(("seed", "epoch", "batch"), address, strict=True))
        one, other = (sampler.sample(graph, np.array(numbers), **of) for numbers in ([1, 2], [5]))
        found[address], again = (batch.node_ids[batch.extra["negatives"]] for batch in (one, other))
        assert np.array_equal(found[address], again), "the address alone decides"
    assert len({values.tobytes() for values in found.values()}) == 27
    assert chisquare(np.bincount(np.concatenate(list(found.values())), minlength=40)).pvalue > 1e-4


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("expand", ["all", "new"])
def test_no_message_along_the_edges_of_the_batch(expand, prepared):
    """Blocks lack the edges of the batch's triples and their reverses, but no other edges, even between the same entities."""
    data, graph = drawn(), drawn().graph()
    total = len(data.splits["train"])
    sampler = TripleSampler(data, NeighborSampler([-1, -1], expand=expand), 3)
    sampler = sampler.prepare(graph, np.arange(40)) if prepared else sampler
    assert sampler.items(graph, np.arange(40)).tolist() == list(range(total))
    numbers = np.arange(5, 25)
    batch = sampler.sample(graph, numbers)
    block = batch.blocks[-1]
    ids = set(graph.ids_of(block.edge_ids).tolist())
    into = {i for v in batch.seeds for i in graph.ids_of(np.arange(graph.indptr[v], graph.indptr[v + 1])).tolist()}
    assert ids == into - set(numbers.tolist()) - set((total + numbers).tolist())
    assert all(not set(graph.ids_of(block.edge_ids).tolist()) & set(numbers.tolist()) for block in batch.blocks)


def triple_beyond_the_last():
    data = drawn()
    TripleSampler(data, None, 2).sample(data.graph(), np.array([999]))


MISTAKES = {
    "no negatives": Mistake(
        lambda: TripleSampler(drawn(), None, 0), value="0", rule="num_negatives batch 1 16777215", remedy="leave out all entities"
    ),
    "a sampler of layers that take no plain means": Mistake(
        lambda: TripleSampler(drawn(), LaborSampler([3])),
        value="LaborSampler",
        rule="sampler layers means neighbours relation",
        remedy="NeighborSampler leave out",
    ),
    "a triple that the graph has not": Mistake(triple_beyond_the_last, value="triple 999", rule="not graph triples", remedy="0 263"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
