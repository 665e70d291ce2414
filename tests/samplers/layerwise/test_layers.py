"""The layer-wise samplers equal a slow reference and reject invalid arguments."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from cases.relabelling import relabelled_by
from conftest import make_graph
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from reference import layerwise as reference

from hoptrain.engine import Graph
from hoptrain.samplers import ASGCNSampler, FastGCNSampler, LadiesSampler, SampleLoader, Workspace

SAMPLERS = {
    "fastgcn": (lambda sizes: FastGCNSampler(sizes), {"kind": "mean", "global_distribution": True}),
    "fastgcn-gcn": (lambda sizes: FastGCNSampler(sizes, "gcn"), {"kind": "gcn", "global_distribution": True}),
    "ladies": (lambda sizes: LadiesSampler(sizes), {"kind": "mean"}),
    "ladies-gcn": (lambda sizes: LadiesSampler(sizes, "gcn"), {"kind": "gcn"}),
    "ladies-normalize": (lambda sizes: LadiesSampler(sizes, normalize=True), {"kind": "mean", "normalize": True}),
    "asgcn": (lambda sizes: ASGCNSampler(sizes), {"kind": "adaptive"}),
}
every_sampler = pytest.mark.parametrize("name", SAMPLERS)


def as_lists(batch):
    """Return a mini-batch in the form of the reference."""
    blocks = reversed(batch.blocks)
    return [
        (b.indptr.tolist(), b.indices.tolist(), b.edge_ids.tolist(), b.weights.tolist(), b.num_src) for b in blocks
    ], batch.node_ids.tolist()


@st.composite
def problems(draw):
    """Draw a graph with hubs, parallel edges, self loops and isolated nodes, batches of seeds, and numbers of draws."""
    num_nodes = draw(st.integers(1, 40))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, st.integers(0, min(3, num_nodes - 1)) | node), max_size=120))
    src, dst = (np.array([edge[i] for edge in edges], np.int64) for i in (0, 1))
    graph = Graph.from_edges(src, dst, num_nodes)
    bulk = [draw(st.lists(node, min_size=1, max_size=6, unique=True)) for _ in range(draw(st.sampled_from([1, 3])))]
    return graph, bulk, draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=problems(), name=st.sampled_from(list(SAMPLERS)), threads=st.sampled_from([1, 2]), hashed=st.booleans())
@example(problem=(Graph.from_edges([0, 0], [0, 0]), [[0]], [1, 5]), name="ladies", threads=1, hashed=False)
@example(problem=(Graph.from_edges([], [], 1), [[0]], [2]), name="fastgcn", threads=1, hashed=True)
def test_any_problem_is_equal_to_the_reference(problem, name, threads, hashed):
    graph, bulk, sizes = problem
    make, distribution = SAMPLERS[name]
    sampler, address = make(sizes), (2**64 - 3, 7)
    expected = [reference.batch(graph, seeds, sizes, (*address, 2**32 - 9 + i), **distribution)[:2] for i, seeds in enumerate(bulk)]
    with relabelled_by(hashed):
        scratch = Workspace(threads)
        for _ in range(2):  # the second time with used scratch buffers
            batches = sampler.sample_bulk(
                graph, [np.array(s) for s in bulk], seed=address[0], epoch=address[1], first_batch=2**32 - 9, workspace=scratch
            )
            assert [as_lists(batch) for batch in batches] == expected
        alone = sampler.sample(graph, np.array(bulk[0]), seed=address[0], epoch=address[1], batch=2**32 - 9, workspace=scratch)
        assert as_lists(alone) == expected[0]


@every_sampler
def test_columns_longer_than_a_chunk(name):
    """Batches equal the reference's for columns longer than a chunk (3000 in-edges), and with more draws than the smallest filter holds."""
    graph = make_graph(300, 6000)
    make, distribution = SAMPLERS[name]
    sampled = make([700, 40]).sample(graph, np.arange(4), seed=5, epoch=1, batch=2)
    assert as_lists(sampled) == reference.batch(graph, range(4), [700, 40], (5, 1, 2), **distribution)[:2]


def test_scores_change_the_distribution_as_in_the_reference(graph):
    scores = np.random.default_rng(0).random(graph.num_nodes)
    scores[:9] = 0
    sampler = ASGCNSampler([30, 30])
    sampler.set_scores(scores)
    integers = [max(1, int(np.ceil(score / scores.max() * 2**16))) for score in scores]
    sampled = sampler.sample(graph, np.arange(20), seed=1)
    blocks, nodes, distributions = reference.batch(graph, range(20), [30, 30], (1, 0, 0), "adaptive", scores=integers)
    assert as_lists(sampled) == (blocks, nodes)
    sampler.set_scores(None)
    assert as_lists(sampler.sample(graph, np.arange(20), seed=1)) == as_lists(ASGCNSampler([30, 30]).sample(graph, np.arange(20), seed=1))
    for hop, (distribution, drawn) in enumerate(distributions):
        block = sampled.blocks[1 - hop]
        counts, probabilities = sampled.extra[f"draws{1 - hop}"], sampled.extra[f"probabilities{1 - hop}"]
        sources = nodes[: block.num_src]
        assert counts.tolist() == [drawn.count(v) for v in sources]
        assert counts.sum() == 30
        total = sum(distribution.values())
        np.testing.assert_allclose(probabilities, [distribution[v] / total if v in drawn else 0 for v in sources], rtol=1e-6)


@every_sampler
def test_blocks_fit_together_and_edges_are_what_they_say(graph, name):
    batch = SAMPLERS[name][0]([60, 50, 40]).sample(graph, np.arange(0, 190, 9))
    assert batch.blocks[0].num_src == len(batch.node_ids) == len(set(batch.node_ids.tolist()))
    assert batch.blocks[-1].num_dst == batch.num_seeds == 22
    for outer, inner in zip(batch.blocks[:-1], batch.blocks[1:], strict=True):
        assert outer.num_dst == inner.num_src
    for block in batch.blocks:
        src, dst = block.edge_index().numpy()
        assert block.num_edges > 0
        assert (graph.indices[block.edge_ids] == batch.node_ids[src]).all()
        assert (np.searchsorted(graph.indptr, block.edge_ids, side="right") - 1 == batch.node_ids[dst]).all()
        assert np.isin(np.arange(block.num_dst, block.num_src), src).all()  # every source that is no destination has an edge
        if name != "ladies-normalize":
            assert all(len(set(block.weights[src == u].tolist())) <= 1 for u in range(block.num_src))


def test_normalized_weights_add_up_to_degrees(graph):
    batch = LadiesSampler([50, 50], normalize=True).sample(graph, np.arange(20))
    for block in batch.blocks:
        sums = np.add.reduceat(np.append(block.weights, 0), block.indptr[:-1].clip(max=block.num_edges))
        degrees = graph.in_degrees()[batch.node_ids[: block.num_dst]]
        has_edges = np.diff(block.indptr) > 0
        assert has_edges.any()
        np.testing.assert_allclose(sums[has_edges], degrees[has_edges], rtol=1e-5)


@every_sampler
def test_seeds_without_in_edges_give_blocks_without_edges(graph, name):
    last = np.arange(graph.num_nodes - 10, graph.num_nodes)
    batch = SAMPLERS[name][0]([5, 5]).sample(graph, last)
    assert batch.node_ids.tolist() == last.tolist()
    assert [block.num_edges for block in batch.blocks] == [0, 0]
    assert batch.blocks[0].weights.dtype == np.float32


@every_sampler
def test_each_part_of_the_address_changes_the_draws(graph, name):
    sampler = SAMPLERS[name][0]([40])

    def draw(**address):
        return as_lists(sampler.sample(graph, np.arange(30), **({"seed": 0, "epoch": 0, "batch": 0} | address)))

    first = draw()
    assert first == draw()
    assert all(first != draw(**{name: 1}) for name in ("seed", "epoch", "batch"))
    blocks = SAMPLERS[name][0]([40, 40]).sample(graph, np.arange(30)).blocks
    assert set(blocks[0].edge_ids.tolist()) != set(blocks[1].edge_ids.tolist())


@every_sampler
@pytest.mark.parametrize("threads", [1, 2])
def test_a_used_workspace_gives_the_same_arrays_again(name, threads):
    graph = make_graph(5000, 60_000)
    sampler, scratch = SAMPLERS[name][0]([200, 200]), Workspace(threads)
    seeds = [np.arange(i, i + 50) for i in range(0, 400, 50)]
    first = sampler.sample_bulk(graph, seeds, workspace=scratch)
    addresses = [array.ctypes.data for batch in first for array in batch.arrays().values()]
    copies = [as_lists(batch) for batch in first]
    again = sampler.sample_bulk(graph, seeds, workspace=scratch)
    assert [array.ctypes.data for batch in again for array in batch.arrays().values()] == addresses
    assert [as_lists(batch) for batch in again] == copies


@pytest.mark.parametrize("name", ["fastgcn", "ladies", "asgcn"])
def test_the_loader_gives_the_same_batches_with_workers(dataset, name):
    epochs = []
    for num_workers in (0, 2):
        loader = SampleLoader(dataset, SAMPLERS[name][0]([30, 30]), batch_size=40, num_workers=num_workers, seed=3)
        epochs.append([(as_lists(batch), batch.x.tolist(), {k: v.tolist() for k, v in batch.extra.items()}) for batch in loader])
        loader.close()
    assert epochs[0] == epochs[1]
    assert len(epochs[0]) == 3


def test_new_scores_reach_restarted_workers(dataset):
    sampler = ASGCNSampler([20])
    loader = SampleLoader(dataset, sampler, batch_size=120, num_workers=1)
    (before,) = [as_lists(batch) for batch in loader]
    scores = np.zeros(dataset.graph.num_nodes)
    scores[:5] = 1
    sampler.set_scores(scores)
    loader.close()
    loader.set_epoch(0)
    (after,) = [as_lists(batch) for batch in loader]
    loader.close()
    assert after != before
    assert after == as_lists(next(iter(SampleLoader(dataset, sampler, batch_size=120))))


def scores_of_another_graph(graph):
    sampler = ASGCNSampler([5])
    sampler.set_scores(np.ones(3))
    sampler.sample(graph, np.array([0]))


MISTAKES = {
    "no layers": Mistake(lambda: LadiesSampler([]), value="[]", rule="layer_sizes", remedy="one number draws each layer [512, 512]"),
    "a layer of no draws": Mistake(lambda: FastGCNSampler([5, 0]), value="size 0 in [5, 0]", rule="layer draws", remedy="1 33554431"),
    "a layer of too many draws": Mistake(lambda: ASGCNSampler([1 << 25]), value="33554432", rule="layer size draws", remedy="1 33554431"),
    **{
        f"an unknown norm of {sampler.__name__}": Mistake(
            lambda sampler=sampler: sampler([5], "sum"), value="'sum'", rule="norm degree GCN's", remedy='"mean" "gcn"'
        )
        for sampler in (LadiesSampler, FastGCNSampler)
    },
    **{
        f"scores {name}": Mistake(
            lambda scores=scores: ASGCNSampler([5]).set_scores(scores),
            value=f"{scores.shape}",
            rule="scores float64",
            remedy="vector finite non-negative each node",
        )
        for name, scores in (
            ("below 0", np.array([1, -1.0])),
            ("that are no numbers", np.array([1, np.nan])),
            ("in a matrix", np.ones((2, 2))),
        )
    },
    "scores of another graph": Mistake(scores_of_another_graph, value="3 scores", rule="graph 200 nodes set_scores", remedy="one each"),
    **{
        f"a seed given twice to {name}": Mistake(
            lambda graph, name=name: SAMPLERS[name][0]([5]).sample(graph, np.array([4, 5, 4])),
            value="seed 4",
            rule="given twice",
            remedy="numpy.unique(seeds)",
        )
        for name in SAMPLERS
    },
    **{
        f"a seed given to {name} that the graph has not": Mistake(
            lambda graph, name=name: SAMPLERS[name][0]([5]).sample(graph, np.array([200])),
            value="seed 200",
            rule="not graph",
            remedy="0 199",
        )
        for name in SAMPLERS
    },
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
