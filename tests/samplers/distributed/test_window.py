"""Sampling on a partitioned graph gives bit-identical batches to the whole graph, in two rounds a hop. Machines are threads here."""

from functools import partial

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import in_threads

from hoptrain import Graph, LaborSampler, NeighborSampler, Node2Vec, PinSAGESampler, RandomWalk
from hoptrain.engine import Address
from hoptrain.engine.partition.exchange import LocalExchange
from hoptrain.engine.partition.topology.columns import own_columns
from hoptrain.engine.partition.topology.graph import PartitionedGraph
from hoptrain.engine.queue.message_slot import size_of
from hoptrain.samplers.distributed.window import check_alone, sample_window

NUMBER = 90


@pytest.fixture(scope="module")
def graph():
    """Return a graph with parallel edges, self loops, isolated nodes, a hub, and edges of weight 0."""
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, NUMBER, 900), rng.integers(0, NUMBER - 10, 900)
    dst[:200] = 5
    weights = rng.integers(0, 4, 900).astype(np.float32)
    return Graph.from_edges(src, dst, NUMBER, weights=weights)


def parts_of(graph, labels, number):
    """Return the columns that each machine has, if node v belongs to partition ``labels[v]``."""
    order = np.argsort(labels, kind="stable")
    place = np.empty(len(order), np.uint32)
    place[order] = np.arange(len(order))
    bounds = np.searchsorted(labels[order], np.arange(number + 1))
    return [own_columns(graph, place, bounds, part) for part in range(number)]


def labels_of(how, number):
    nodes = np.arange(NUMBER)
    if how == "range":
        return nodes * number // NUMBER
    return nodes % number if how == "stripes" else np.random.default_rng(7).integers(0, number, NUMBER)


class Counted(LocalExchange):
    """An exchange that counts rounds and bytes."""

    rounds = num_sent = 0

    def exchange(self, to):
        self.rounds += 1
        self.num_sent += sum(map(size_of, to))
        return super().exchange(to)


def sampled(sampler, graph, how, number, asked):
    """Return the batches and the exchange of each machine; machine m samples the entries m, m + ``number``, ... of ``asked``."""
    exchanges = Counted.among(number)

    def run(machine):
        columns = parts_of(graph, labels_of(how, number), number)[machine]
        try:
            return sample_window(sampler, columns, asked[machine::number], exchanges[machine])
        except Exception:
            exchanges[machine].abort()
            raise

    return in_threads([partial(run, machine) for machine in range(number)]), exchanges


def facts(batch):
    arrays = {name: (array.dtype, array.shape, array.tobytes()) for name, array in batch.arrays().items()}
    return arrays, [block.num_src for block in batch.blocks], batch.nested, batch.num_seeds, (batch.seed, batch.epoch, batch.batch)


class Own(NeighborSampler):
    """A subclass that overrides sampling."""

    def sample_on_cpu(self, graph, seeds, address, workspace):
        return NeighborSampler([3]).sample_on_cpu(graph, seeds, address, workspace)


class Named(NeighborSampler):
    """A subclass that samples as its parent does."""


SAMPLERS = {
    "uniform": NeighborSampler([3, 2, 4]),
    "new": NeighborSampler([3, 2, 2], expand="new"),
    "all": NeighborSampler([-1, 2]),
    "replace": NeighborSampler([4, 3], replace=True),
    "share": NeighborSampler([0.5, 0.2]),
    "weighted": NeighborSampler([3, 2], weighted=True),
    "weighted, all": NeighborSampler([2, -1], weighted=True, expand="new"),
    "weighted, replace": NeighborSampler([3, 2], weighted=True, replace=True),
    "labor": LaborSampler([3, 2, 2]),
    "labor, share": LaborSampler([0.5, -1]),
    "labor, weighted": LaborSampler([3, 2], weighted=True),
    "walks": RandomWalk(length=5, num_walks=3),
    "walks, restart": RandomWalk(length=4, num_walks=2, restart=0.4),
}
BATCHES = st.lists(
    st.tuples(st.lists(st.integers(0, NUMBER - 1), min_size=1, max_size=12, unique=True), st.integers(0, 2**32 - 1)), min_size=1, max_size=7
)


@pytest.mark.parametrize("name", SAMPLERS)
@given(data=st.data(), batches=BATCHES, seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 2**20 - 1))
@settings(max_examples=12)
def test_the_bits_of_the_whole_graph(graph, name, data, batches, seed, epoch):
    sampler = SAMPLERS[name]
    how, number = data.draw(st.sampled_from(["range", "stripes", "chance"])), data.draw(st.sampled_from([1, 2, 4]))
    asked = [(np.array(seeds), Address(seed, epoch, batch)) for seeds, batch in batches]
    found, exchanges = sampled(sampler, graph, how, number, asked)
    for machine, own in enumerate(found):
        whole = [sampler.sample(graph, seeds, **address._asdict()) for seeds, address in asked[machine::number]]
        assert list(map(facts, own)) == list(map(facts, whole))
    assert [exchange.rounds for exchange in exchanges] == [2 * (sampler.num_hops or sampler.steps)] * number


@pytest.mark.parametrize("replace", [False, True])
def test_a_part_all_of_whose_weights_are_0(graph, replace):
    """Batches equal the whole graph's if all weights of a partition are 0, so that its nodes have no edges to draw."""
    weights = np.where(graph.destinations() < NUMBER // 2, 0, graph.weights)
    half = Graph(graph.indptr, graph.indices, weights=weights)
    sampler = NeighborSampler([3, 2], weighted=True, replace=replace)
    asked = [(np.arange(batch, NUMBER, 7), Address(1, 0, batch)) for batch in range(4)]
    found, _ = sampled(sampler, half, "range", 2, asked)
    for machine, own in enumerate(found):
        assert list(map(facts, own)) == [facts(sampler.sample(half, seeds, **address._asdict())) for seeds, address in asked[machine::2]]
    assert sum(batch.num_edges for own in found for batch in own) > 0


def test_a_graph_all_of_whose_weights_are_0_is_refused(graph):
    known, sampler = PartitionedGraph(graph.indptr, True, "parts", has_weight=False), NeighborSampler([3], weighted=True)
    with refused("weighted=True", "weights all 900 edges 0 drawn", "above 0"):
        check_alone(sampler, known)
    check_alone(NeighborSampler([3]), known)
    check_alone(sampler, PartitionedGraph(graph.indptr, True, "parts"))


def test_subclasses_that_sample_as_their_parents(graph):
    asked = [(np.arange(batch, NUMBER, 7), Address(1, 0, batch)) for batch in range(4)]
    found, _ = sampled(Named([3, 2]), graph, "range", 2, asked)
    for machine, own in enumerate(found):
        whole = [NeighborSampler([3, 2]).sample(graph, seeds, **address._asdict()) for seeds, address in asked[machine::2]]
        assert list(map(facts, own)) == list(map(facts, whole))


@pytest.mark.parametrize("name", ["uniform", "weighted", "labor"])
def test_bytes_are_the_fewest(graph, name):
    """The sent bytes are the least possible: one id per remote node, its number of draws, and each draw's source, position and weight."""
    sampler, number, num_batches = SAMPLERS[name], 3, 6
    asked = [(np.arange(k, NUMBER, 9), Address(1, 2, k)) for k in range(num_batches)]
    _, exchanges = sampled(sampler, graph, "stripes", number, asked)
    fewest = 0
    for k, (seeds, address) in enumerate(asked):
        batch = sampler.sample(graph, seeds, **address._asdict())
        for block in batch.blocks:
            is_elsewhere = batch.node_ids[: block.num_dst] % number != k % number
            fewest += 8 * is_elsewhere.sum() + (8 if block.weights is None else 12) * np.diff(block.indptr)[is_elsewhere].sum()
    of_question, of_batch, of_answer = 16, 32, 32
    heads = sampler.num_hops * (number - 1) * (number * (of_question + of_answer) + num_batches * of_batch)
    assert sum(exchange.num_sent for exchange in exchanges) == fewest + heads


def sampled_in_parts(graph, sampler):
    sample_window(sampler, parts_of(graph, labels_of("range", 1), 1)[0], [], LocalExchange.among(1)[0])


MISTAKES = {
    **{
        f"{type(sampler).__name__} on a graph in parts": Mistake(
            lambda graph, sampler=sampler: sampled_in_parts(graph, sampler),
            value=type(sampler).__name__,
            rule="partitioned graph node draw own edges",
            remedy="LaborSampler, NeighborSampler, RandomWalk part features",
        )
        for sampler in (PinSAGESampler([3]), Node2Vec(length=3), Own([2]))
    },
    "rounds on a graph in parts": Mistake(
        lambda graph: sampled_in_parts(graph, LaborSampler([3], importance_rounds=1)),
        value="1",
        rule="importance_rounds partitioned graph importances edges hop",
        remedy="0 partition only features",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
