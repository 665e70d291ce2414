"""HeteroPinSAGESampler: bit-identical to a slow reference, visits as by walks along the metapath, and plain batches."""

from itertools import pairwise

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from reference import pinsage as reference
from reference.hetero_data import hetero_data, hetero_graph, hetero_module

from hoptrain.engine import HeteroGraph
from hoptrain.samplers import HeteroPinSAGESampler, PinSAGESampler, SampleLoader, Workspace

PATHS = {
    "types": ["paper", "author", "paper"],
    "relations": ["paper:on:subject", "subject:of:paper"],
    "long": ["author", "paper", "subject", "paper", "author"],
}
GRAPH = hetero_graph()


def columns_along(path, graph=GRAPH):
    """Return the columns of each step of a walk from a destination; the last relation comes first."""
    if ":" in path[0]:
        relations = [tuple(step.split(":")) for step in path]
    else:
        relations = [next(r for r in graph.relations if (r[0], r[2]) == step) for step in pairwise(path)]
    return [reference.columns_of(graph.relations[relation]) for relation in reversed(relations)]


def as_lists(batch):
    """Return a mini-batch in the form of the reference."""
    hops = [(b.indptr.tolist(), b.indices.tolist(), b.num_src, b.weights.tolist()) for b in reversed(batch.blocks)]
    return hops, batch.node_ids.tolist()


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("options", [(50, 4, 0.5), (1, 1, 0.0), (3, 7, 0.2), (300, 2, 0.0)], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_equal_to_the_reference(name, options, threads):
    rng, along = np.random.default_rng(0), columns_along(PATHS[name])
    sampler, scratch = HeteroPinSAGESampler([4, 3], PATHS[name], *options), Workspace(threads)
    number = GRAPH.num_nodes[sampler.seed_type]
    bulk = [rng.choice(number, 1 + 3 * i, replace=False) for i in range(3)]
    expected = [reference.batch(along, seeds.tolist(), [4, 3], *options, 2**64 - 3, 9, 70 + i) for i, seeds in enumerate(bulk)]
    for _ in range(2):  # the second time with used scratch buffers
        sampled = sampler.sample_bulk(GRAPH, bulk, seed=2**64 - 3, epoch=9, first_batch=70, workspace=scratch)
        assert [as_lists(batch) for batch in sampled] == expected
    assert as_lists(sampler.sample(GRAPH, bulk[0], seed=2**64 - 3, epoch=9, batch=70)) == expected[0]


@pytest.mark.parametrize("restart", [0.2, 0.6])
def test_weights_are_shares_of_the_visits_that_a_chain_tells(restart):
    """Mean weights over many batches equal visit rates computed from powers of the paper-author-paper transition matrix."""
    root, length, batches, walks = 3, 3, 300, 400
    chain = np.eye(90)
    for columns in columns_along(PATHS["types"]):
        step = np.zeros((len(columns), 90))
        for vertex, sources in enumerate(columns):
            np.add.at(step[vertex], sources, 1 / max(1, len(sources)))
        chain = chain @ step[:, : {60: 90, 90: 60}[len(columns)]]
    expected, state = np.zeros(90), np.eye(90)[root]
    for visit in range(length):
        state = state @ chain
        expected += (1 - restart) ** visit * state
    visits, scratch = np.zeros((batches, 90)), Workspace()
    sampler = HeteroPinSAGESampler([10_000], PATHS["types"], walks, length, restart)
    for i in range(batches):
        batch = sampler.sample(GRAPH, np.array([root]), batch=i, workspace=scratch)
        visits[i, batch.node_ids[batch.blocks[0].indices]] = batch.blocks[0].weights
    expected[root] = 0
    expected /= expected.sum()
    seen = expected * walks * batches > 200
    assert seen.sum() > 20
    z = (visits.mean(0) - expected)[seen] / (visits.std(0) / np.sqrt(batches))[seen]
    assert np.abs(z).max() < 4.5
    assert visits[:, expected == 0].sum() == 0


def test_the_loader_feeds_rows_of_the_type():
    data = hetero_data()
    epochs = []
    for workers in (0, 2):
        with SampleLoader(data, HeteroPinSAGESampler([4, 3], PATHS["types"]), batch_size=20, num_workers=workers, seed=5) as loader:
            epochs.append([(as_lists(batch), batch.x.tobytes(), batch.y.tolist()) for batch in loader])
            batch = next(iter(loader))
    assert epochs[0] == epochs[1]
    assert np.array_equal(batch.x, data.x["paper"][batch.node_ids])
    assert np.array_equal(batch.y, data.y[batch.seeds])
    sums = np.bincount(np.repeat(np.arange(batch.num_seeds), np.diff(batch.blocks[-1].indptr)), batch.blocks[-1].weights)
    assert sums[sums > 0] == pytest.approx(1)


def test_a_path_of_one_relation(graph):
    typed = HeteroGraph({"a": 200}, {("a", "r", "a"): (graph.indptr, graph.indices)})
    plain = PinSAGESampler([4]).sample(graph, np.arange(9)).blocks[0]
    block = HeteroPinSAGESampler([4], ["a:r:a"], 50, 4).sample(typed, np.arange(9)).blocks[0]
    assert np.array_equal(block.indices, plain.indices)
    degrees = np.repeat(graph.in_degrees()[:9], np.diff(block.indptr))
    np.testing.assert_allclose(block.weights * degrees, plain.weights, rtol=1e-6)


def test_a_chain_without_in_edges_ends():
    graph = HeteroGraph.from_edges({"a": 3, "b": 2}, {("a", "r", "b"): ([0], [1]), ("b", "s", "a"): ([1, 0], [2, 1])})
    batch = HeteroPinSAGESampler([5], ["a", "b", "a"], num_walks=4).sample(graph, np.array([0, 1, 2]))
    assert batch.blocks[0].indptr.tolist() == [0, 0, 0, 1]
    assert batch.node_ids[batch.blocks[0].indices].tolist() == [0]
    assert batch.blocks[0].weights.tolist() == [1.0]


MISTAKES = {
    **{
        f"the path {wrong}": Mistake(
            lambda wrong=wrong: HeteroPinSAGESampler([3], wrong),
            value=str(wrong),
            rule="metapath not lead back type begins",
            remedy="[item, user, item]",
        )
        for wrong in ([], ["item"], ["item", "user"], ["item:r:user"])
    },
    "a path along no relation": Mistake(
        lambda: HeteroPinSAGESampler([3], ["paper", "venue", "paper"]).sample(GRAPH, np.array([0])),
        value="venue",
        rule="metapath paper no relation",
        remedy="author:writes:paper paper:on:subject",
    ),
    "a seed that the graph has not": Mistake(
        lambda: HeteroPinSAGESampler([3], PATHS["types"]).sample(GRAPH, np.array([90])), value="seed 90", rule="not graph", remedy="0 89"
    ),
    "a path that ends at another type than the seeds": Mistake(
        lambda: SampleLoader(hetero_data(), HeteroPinSAGESampler([3], PATHS["long"])),
        value="author",
        rule="metapath ends seeds typed papers",
    ),
    "batches without relations for a typed model": Mistake(
        lambda: hetero_module(hetero_data(), sampler=HeteroPinSAGESampler([3, 3], PATHS["types"])),
        value="HeteroPinSAGESampler",
        rule="batches homogeneous relations",
        remedy="task hetero HeteroSampler",
    ),
    "paths on a GPU": Mistake(
        lambda: HeteroPinSAGESampler([3], PATHS["types"]).sample(GRAPH, np.array([0]), device="cuda"),
        value='device="cuda"',
        rule="HeteroPinSAGESampler no kernels",
        remedy='device="cpu"',
    ),
    "a plain data set": Mistake(
        lambda dataset: SampleLoader(dataset, HeteroPinSAGESampler([3], PATHS["types"])),
        value="HeteroPinSAGESampler",
        rule="random homogeneous HeteroDataset",
        remedy="make PinSAGESampler",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
