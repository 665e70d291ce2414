"""PinSAGESampler and HeteroPinSAGESampler: bit-identical to a slow reference, with visits by random walks, also along a metapath."""

from itertools import pairwise

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from reference import pinsage as reference
from reference.hetero_data import hetero_data, hetero_graph, hetero_module

from hoptrain.engine import Graph, HeteroGraph
from hoptrain.samplers import HeteroPinSAGESampler, PinSAGESampler, SampleLoader, Workspace

PATHS = {
    "types": ["paper", "author", "paper"],
    "relations": ["paper:on:subject", "subject:of:paper"],
    "long": ["author", "paper", "subject", "paper", "author"],
}
HETERO = hetero_graph()


def columns_along(path):
    """Return the columns of each step of a walk from a destination; the last relation comes first."""
    if ":" in path[0]:
        relations = [tuple(step.split(":")) for step in path]
    else:
        relations = [next(r for r in HETERO.relations if (r[0], r[2]) == step) for step in pairwise(path)]
    return [reference.columns_of(HETERO.relations[relation]) for relation in reversed(relations)]


def as_lists(batch):
    """Return a mini-batch in the form of the reference."""
    hops = [(b.indptr.tolist(), b.indices.tolist(), b.num_src, b.weights.tolist()) for b in reversed(batch.blocks)]
    return hops, batch.node_ids.tolist()


OPTIONS = [(50, 4, 0.5), (1, 1, 0.0), (3, 7, 0.2), (300, 2, 0.0), (7, 3, 0.999)]


@pytest.mark.parametrize(
    ("name", "options"), [*(("plain", given) for given in OPTIONS), *((name, given) for name in PATHS for given in OPTIONS[:4])], ids=str
)
@pytest.mark.parametrize("threads", [1, 2])
def test_equal_to_the_reference(graph, name, options, threads):
    rng, scratch = np.random.default_rng(0), Workspace(threads)
    if name == "plain":
        sampler, along, number = PinSAGESampler([4, 3], *options), [reference.columns_of(graph)], graph.num_nodes
    else:
        graph, sampler, along = HETERO, HeteroPinSAGESampler([4, 3], PATHS[name], *options), columns_along(PATHS[name])
        number = graph.num_nodes[sampler.seed_type]
    bulk = [rng.choice(number, 1 + 3 * i, replace=False) for i in range(3)]
    expected = [reference.batch(along, seeds.tolist(), [4, 3], *options, 2**64 - 3, 9, 70 + i) for i, seeds in enumerate(bulk)]
    for _ in range(2):  # the second time with used scratch buffers
        sampled = sampler.sample_bulk(graph, bulk, seed=2**64 - 3, epoch=9, first_batch=70, workspace=scratch)
        assert [as_lists(batch) for batch in sampled] == expected
    assert as_lists(sampler.sample(graph, bulk[0], seed=2**64 - 3, epoch=9, batch=70)) == expected[0]


def test_small_graphs():
    for edges, num_nodes in (([(0, 0), (0, 0)], 1), ([], 3), ([(1, 0), (2, 1)], 3), ([(1, 0), (1, 0), (2, 0)], 3)):
        graph = Graph.from_edges(*(np.array([edge[i] for edge in edges], np.int64) for i in (0, 1)), num_nodes)
        seeds = np.arange(num_nodes)
        batch = PinSAGESampler([2, 2], 10, 3, 0.3).sample(graph, seeds, seed=1)
        assert as_lists(batch) == reference.batch([reference.columns_of(graph)], seeds.tolist(), [2, 2], 10, 3, 0.3, 1, 0, 0)
    assert batch.blocks[1].edge_ids.tolist() == [-1] * batch.blocks[1].num_edges


def transitions_of(columns, number):
    """Return the matrix of the probabilities of a step from each destination to each of ``number`` sources."""
    step = np.zeros((len(columns), number))
    for node, sources in enumerate(columns):
        np.add.at(step[node], sources, 1 / max(1, len(sources)))
    return step


@pytest.mark.parametrize("restart", [0.2, 0.6])
@pytest.mark.parametrize("is_hetero", [False, True], ids=["plain", "hetero"])
def test_weights_are_shares_of_the_visits_of_a_markov_chain(graph, is_hetero, restart):
    """Mean weights over many batches equal visit rates computed from powers of the transition matrix, here also of paper-author-paper."""
    root, walks, batches = 3, 400, 300
    if is_hetero:
        length, degree, num_likely, graph = 3, 1, 20, HETERO
        sampler = HeteroPinSAGESampler([10_000], PATHS["types"], walks, length, restart)
        first, second = columns_along(PATHS["types"])
        chain = transitions_of(first, 60) @ transitions_of(second, 90)
    else:
        length, degree, num_likely = 5, graph.in_degrees()[root], 50
        sampler = PinSAGESampler([10_000], walks, length, restart)
        chain = transitions_of(reference.columns_of(graph), graph.num_nodes)
    number = len(chain)
    expected, state = np.zeros(number), np.eye(number)[root]
    for visit in range(length):
        state = state @ chain
        expected += (1 - restart) ** visit * state
    visits, scratch = np.zeros((batches, number)), Workspace()
    for i in range(batches):
        batch = sampler.sample(graph, np.array([root]), batch=i, workspace=scratch)
        visits[i, batch.node_ids[batch.blocks[0].indices]] = batch.blocks[0].weights / degree
    expected[root] = 0
    expected /= expected.sum()
    seen = expected * walks * batches > 200
    assert seen.sum() > num_likely
    z = (visits.mean(0) - expected)[seen] / (visits.std(0) / np.sqrt(batches))[seen]
    assert np.abs(z).max() < 4.5
    assert visits[:, expected == 0].sum() == 0


def test_weights_add_up_to_the_degree(graph):
    block = PinSAGESampler([5]).sample(graph, np.arange(100)).blocks[0]
    sums = np.bincount(np.repeat(np.arange(100), np.diff(block.indptr)), block.weights, minlength=100)
    np.testing.assert_allclose(sums, graph.in_degrees()[:100] * (np.diff(block.indptr) > 0), rtol=1e-5)


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
    hetero = HeteroGraph({"a": 200}, {("a", "r", "a"): (graph.indptr, graph.indices)})
    plain = PinSAGESampler([4]).sample(graph, np.arange(9)).blocks[0]
    block = HeteroPinSAGESampler([4], ["a:r:a"], 50, 4).sample(hetero, np.arange(9)).blocks[0]
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
        f"neighbours {given}": Mistake(
            lambda given=given: PinSAGESampler(given), value=str(given), rule="num_neighbors", remedy="whole number each hop [10, 5]"
        )
        for given in ([2.7], [0.5], 0.5)
    },
    "no hops": Mistake(lambda: PinSAGESampler([]), value="[]", rule="num_neighbors", remedy="one number each hop [10, 5]"),
    "no walks": Mistake(lambda: PinSAGESampler([3], num_walks=0), value="0", rule="num_walks walk_length 4 least 1 16777216"),
    "walks that always restart": Mistake(lambda: PinSAGESampler([3], restart=1.0), value="1.0", rule="restart probability [0, 1)"),
    "pairs for PyG": Mistake(
        lambda graph: PinSAGESampler([3]).sample(graph, np.array([0])).to_pyg(),
        value="pairs",
        rule="not edges graph ids -1",
        remedy="blocks",
    ),
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
        lambda: HeteroPinSAGESampler([3], ["paper", "venue", "paper"]).sample(HETERO, np.array([0])),
        value="venue",
        rule="metapath paper no relation",
        remedy="author:writes:paper paper:on:subject",
    ),
    "a seed that the graph has not": Mistake(
        lambda: HeteroPinSAGESampler([3], PATHS["types"]).sample(HETERO, np.array([90])), value="seed 90", rule="not graph", remedy="0 89"
    ),
    "a path that ends at another type than the seeds": Mistake(
        lambda: SampleLoader(hetero_data(), HeteroPinSAGESampler([3], PATHS["long"])),
        value="author",
        rule="metapath ends seeds mixed papers",
    ),
    "batches without relations for a heterogeneous model": Mistake(
        lambda: hetero_module(hetero_data(), sampler=HeteroPinSAGESampler([3, 3], PATHS["types"])),
        value="HeteroPinSAGESampler",
        rule="batches homogeneous relations",
        remedy="task hetero HeteroSampler",
    ),
    "paths on a GPU": Mistake(
        lambda: HeteroPinSAGESampler([3], PATHS["types"]).sample(HETERO, np.array([0]), device="cuda"),
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
