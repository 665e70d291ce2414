"""PinSAGESampler: bit-identical to a slow reference, with visits that follow personalised PageRank."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from reference import pinsage as reference

from hoptrain.engine import Graph
from hoptrain.samplers import PinSAGESampler, SampleLoader, Workspace


def as_lists(batch):
    """Return a mini-batch in the form of the reference."""
    hops = [(b.indptr.tolist(), b.indices.tolist(), b.num_src, b.weights.tolist()) for b in reversed(batch.blocks)]
    return hops, batch.node_ids.tolist()


@pytest.mark.parametrize("options", [(50, 4, 0.5), (1, 1, 0.0), (3, 7, 0.2), (300, 2, 0.0), (7, 3, 0.999)], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_equal_to_the_reference(graph, options, threads):
    rng = np.random.default_rng(0)
    sampler, scratch = PinSAGESampler([4, 3], *options), Workspace(threads)
    bulk = [rng.choice(graph.num_nodes, 1 + 3 * i, replace=False) for i in range(3)]
    expected = [
        reference.batch([reference.columns_of(graph)], seeds.tolist(), [4, 3], *options, 2**64 - 3, 9, 70 + i)
        for i, seeds in enumerate(bulk)
    ]
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


@pytest.mark.parametrize("restart", [0.2, 0.6])
def test_weights_are_shares_of_the_visits_that_pagerank_tells(graph, restart):
    """Mean weights over many batches equal visit rates computed from powers of the transition matrix."""
    root, length, batches = 3, 5, 300
    transition = np.zeros((graph.num_nodes, graph.num_nodes))
    degrees = graph.in_degrees()
    np.add.at(transition, (np.repeat(np.arange(graph.num_nodes), degrees), graph.indices), 1 / np.repeat(degrees, degrees))
    expected, state = np.zeros(graph.num_nodes), np.eye(graph.num_nodes)[root]
    for step in range(length):
        state = state @ transition
        expected += (1 - restart) ** step * state
    walks, scratch, visits = 400, Workspace(), np.zeros((batches, graph.num_nodes))
    for i in range(batches):
        batch = PinSAGESampler([10_000], walks, length, restart).sample(graph, np.array([root]), batch=i, workspace=scratch)
        visits[i, batch.node_ids[batch.blocks[0].indices]] = batch.blocks[0].weights / degrees[root]
    expected[root] = 0
    expected /= expected.sum()
    error = visits.std(0) / np.sqrt(batches)
    seen = expected * walks * batches > 200
    assert seen.sum() > 50
    z = (visits.mean(0) - expected)[seen] / error[seen]
    assert np.abs(z).max() < 4.5
    assert visits[:, expected == 0].sum() == 0


def test_weights_add_up_to_the_degree(graph):
    block = PinSAGESampler([5]).sample(graph, np.arange(100)).blocks[0]
    sums = np.bincount(np.repeat(np.arange(100), np.diff(block.indptr)), block.weights, minlength=100)
    np.testing.assert_allclose(sums, graph.in_degrees()[:100] * (np.diff(block.indptr) > 0), rtol=1e-5)


def test_workers_change_nothing(dataset):
    epochs = []
    for num_workers in (0, 2):
        loader = SampleLoader(dataset, PinSAGESampler([4, 3]), batch_size=60, num_workers=num_workers, seed=5)
        epochs.append([(as_lists(batch), batch.x.tobytes()) for batch in loader])
        loader.close()
    assert epochs[0] == epochs[1]


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
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
