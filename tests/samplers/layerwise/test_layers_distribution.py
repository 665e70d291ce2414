"""The distributions of the layer-wise samplers, computed here with dense matrices: probabilities, unbiased estimates, variances."""

import numpy as np
import pytest
from conftest import make_graph

import hoptrain.samplers.layerwise.layers as layerwise
from hoptrain.engine import Graph
from hoptrain.samplers import ASGCNSampler, FastGCNSampler, LadiesSampler, Workspace
from hoptrain.samplers.layerwise.layers import Distribution
from hoptrain.trainers import NodeClassifier, NodeDataModule

CHI_SQUARE_TAIL = 3.7
"""Normal deviate for p = 0.0001; the Wilson-Hilferty transformation makes a chi-square value normal."""
Z_TAIL = 4.5


def entries(graph, norm):
    """Return A[v, u] of every edge u -> v, with shape (E,)."""
    degrees = graph.in_degrees()
    of_dst = np.repeat(degrees, degrees)
    return 1 / of_dst if norm == "mean" else 1 / np.sqrt((of_dst + 1) * (degrees[graph.indices] + 1))


def edges_into(graph, nodes):
    """Return whether each edge leads into one of the nodes, with shape (E,)."""
    return np.repeat(np.isin(np.arange(graph.num_nodes), nodes), graph.in_degrees())


def distribution(graph, nodes, norm, power=2, scores=1.0):
    """Return the probability of each node in one draw for the destinations ``nodes``, with shape (V,)."""
    sums = np.bincount(graph.indices, np.where(edges_into(graph, nodes), entries(graph, norm) ** power, 0), graph.num_nodes) * scores
    return sums / sums.sum()


def draw_counts(graph, sampler, nodes, q, batches):
    """Return the number of draws of each node, with shape (V,), and check the edge weights, count / (t q)."""
    counts, (size,), workspace = np.zeros(graph.num_nodes), sampler.layer_sizes, Workspace()
    for batch in range(batches):
        block = sampler.sample(graph, nodes, batch=batch, workspace=workspace).blocks[0]
        drawn, first = np.unique(graph.indices[block.edge_ids], return_index=True)
        times = block.weights[first] * size * q[drawn]
        np.testing.assert_allclose(times, np.round(times), rtol=1e-4)
        assert (np.round(times) > 0).all()
        assert round(times.sum()) == size
        counts[drawn] += np.round(times)
    return counts


def check_distribution(graph, sampler, nodes, q, batches=150):
    """Check the counts of drawn nodes against the distribution by a chi-square test."""
    counts = draw_counts(graph, sampler, nodes, q, batches)
    expected = counts.sum() * q
    assert counts[q == 0].sum() == 0
    rare = expected < 10  # rare nodes are counted together
    counts, expected = (np.append(values[~rare], values[rare].sum()) for values in (counts, expected))
    counts, expected = counts[expected > 0], expected[expected > 0]
    degrees = len(counts) - 1
    assert degrees > 20
    statistic = ((counts - expected) ** 2 / expected).sum()
    deviate = ((statistic / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / np.sqrt(2 / (9 * degrees))
    assert deviate < CHI_SQUARE_TAIL


def check_unbiased(graph, sampler, seeds, norm, batches=400):
    """Check that the estimates of A x are unbiased, by z-tests of signed sums over each block and of each seed."""
    rng = np.random.default_rng(1)
    x, signs = rng.standard_normal(graph.num_nodes), rng.choice([-1, 1], graph.num_nodes)
    values = entries(graph, norm) * x[graph.indices]
    totals = np.add.reduceat(np.append(values, 0), graph.indptr[:-1].clip(max=graph.num_edges)) * (graph.in_degrees() > 0)
    errors, of_seeds, workspace = [], [], Workspace()
    for batch in range(batches):
        sampled = sampler.sample(graph, seeds, batch=batch, workspace=workspace)
        row = []
        for block in sampled.blocks:
            nodes = sampled.node_ids[: block.num_dst]
            dst = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
            estimates = np.bincount(dst, block.weights * values[block.edge_ids], block.num_dst)
            row.append(signs[nodes] @ (estimates - totals[nodes]))
        errors.append(row)
        of_seeds.append(estimates - totals[seeds])  # the last block's destinations are the seeds
    for error in (np.array(errors), np.array(of_seeds)[:, graph.in_degrees()[seeds] > 0]):
        z = error.mean(0) / (error.std(0, ddof=1) / np.sqrt(batches))
        assert np.abs(z).max() < Z_TAIL


class UniformLadies(LadiesSampler):
    """A wrong LADIES sampler: it draws every candidate with the same probability, and its weights fit these draws."""

    def _distribution(self, graph, nodes, workspace):
        candidates = super()._distribution(graph, nodes, workspace).candidates
        return Distribution(candidates, np.arange(1, len(candidates) + 1, dtype=np.uint64))


@pytest.fixture(scope="module")
def small():
    return make_graph(60, 900)


SEEDS = np.arange(0, 60, 7)


@pytest.mark.parametrize("norm", ["mean", "gcn"])
def test_ladies_draws_by_the_squares_of_the_layers_columns(small, norm):
    check_distribution(small, LadiesSampler([400], norm), SEEDS, distribution(small, SEEDS, norm))


@pytest.mark.parametrize("norm", ["mean", "gcn"])
def test_fastgcn_draws_by_the_squares_of_all_columns(small, norm):
    everyone = np.arange(60)  # all nodes are seeds, so that every drawn node is visible
    check_distribution(small, FastGCNSampler([2000], norm), everyone, distribution(small, everyone, norm))


def test_fastgcn_draws_the_same_for_any_destinations(small):
    everyone, q = np.arange(60), distribution(small, np.arange(60), "mean")
    seen = {}
    for seeds in (everyone, everyone[40:]):
        block = FastGCNSampler([50]).sample(small, seeds).blocks[0]
        seen[len(seeds)] = {int(u): w for u, w in zip(small.indices[block.edge_ids], block.weights, strict=True)}
    assert set() < seen[20].items() < seen[60].items()
    assert all(w * 50 * q[u] == pytest.approx(round(w * 50 * q[u]), rel=1e-4) for u, w in seen[60].items())


@pytest.mark.parametrize("with_scores", [False, True])
def test_asgcn_draws_by_transition_probability_times_score(small, with_scores):
    sampler = ASGCNSampler([400])
    scores = np.random.default_rng(2).integers(1, 2**8 + 1, 60) / 2**8 if with_scores else np.ones(60)
    scores[0] = 1
    if with_scores:
        sampler.set_scores(scores * 12)  # only ratios of scores count
    check_distribution(small, sampler, SEEDS, distribution(small, SEEDS, "mean", power=1, scores=scores))


def test_a_node_with_score_0_can_be_drawn():
    graph = Graph.from_edges([0, 1], [2, 2])
    sampler, drawn = ASGCNSampler([1 << 18]), np.zeros(2)
    sampler.set_scores(np.array([0.0, 1.0, 1.0]))
    for batch in range(4):
        sampled = sampler.sample(graph, np.array([2]), batch=batch)
        for node, count in zip(sampled.node_ids.tolist(), sampled.extra["draws0"].tolist(), strict=True):
            drawn[node % 2] += count if node < 2 else 0
    assert drawn.sum() == 1 << 20
    assert 0 < drawn[0] < 40  # 16 expected: 2**-16 of the draws


def test_an_edge_of_a_huge_column_keeps_its_share():
    """Nodes with a probability of only 4e-10 are not lost by rounding: 50,000 of them, the in-neighbours of one node, get 2e-5 of all draws."""
    graph = Graph.from_edges(np.arange(2, 50_003), np.append(np.zeros(50_000, np.int64), 1))
    block = LadiesSampler([1 << 20]).sample(graph, np.array([0, 1])).blocks[0]
    drawn = (block.weights[:-1] * (1 << 20) / 50_000**2 / (1 + 1 / 50_000)).round()
    assert drawn.sum() == pytest.approx((1 << 20) / 50_001, abs=5 * np.sqrt(20))


WRONG = [
    ("uniform", lambda: UniformLadies([400]), "mean"),
    ("another norm", lambda: LadiesSampler([400], "gcn"), "mean"),
    ("not squared", lambda: ASGCNSampler([400]), "mean"),
    ("every layer's distribution", lambda: FastGCNSampler([400]), "mean"),
]


@pytest.mark.parametrize(("make", "norm"), [wrong[1:] for wrong in WRONG], ids=[wrong[0] for wrong in WRONG])
def test_a_wrong_distribution_is_found(small, make, norm):
    with pytest.raises(AssertionError):
        check_distribution(small, make(), SEEDS, distribution(small, SEEDS, norm))


def test_draws_that_do_not_follow_the_weights_are_found(small, monkeypatch):
    """The checks of distributions fail for a sampler with the right weights and uniform draws, as in published GPU code."""

    def draw_uniformly(candidates, prefix, words, draws):
        places = np.random.default_rng(words.ravel()).integers(0, len(candidates), len(draws.vertices))
        draws.vertices[:] = candidates[places]
        draws.keys[:] = np.diff(prefix, prepend=np.uint64(0))[places]

    monkeypatch.setattr(layerwise.kernels, "draw", draw_uniformly)
    with pytest.raises(AssertionError):
        check_distribution(small, LadiesSampler([400]), SEEDS, distribution(small, SEEDS, "mean"))
    with pytest.raises(AssertionError):
        check_unbiased(small, LadiesSampler([40, 40]), SEEDS, "mean")


def asgcn_with_scores(sizes):
    sampler = ASGCNSampler(sizes)
    sampler.set_scores(np.random.default_rng(3).random(60) + 0.1)
    return sampler


@pytest.mark.parametrize(
    ("make", "norm"),
    [
        (FastGCNSampler, "mean"),
        (lambda sizes: FastGCNSampler(sizes, "gcn"), "gcn"),
        (LadiesSampler, "mean"),
        (lambda sizes: LadiesSampler(sizes, "gcn"), "gcn"),
        (ASGCNSampler, "mean"),
        (asgcn_with_scores, "mean"),
    ],
    ids=["fastgcn", "fastgcn-gcn", "ladies", "ladies-gcn", "asgcn", "asgcn-scores"],
)
def test_estimates_are_unbiased(small, make, norm):
    check_unbiased(small, make([40, 40]), SEEDS, norm)


def test_normalized_weights_are_biased(small):
    """The check of unbiased estimates fails for normalised weights, whose bias is documented."""
    with pytest.raises(AssertionError):
        check_unbiased(small, LadiesSampler([40, 40], normalize=True), SEEDS, "mean")


def test_one_draw_has_the_mean_one_over_all_outcomes():
    """The mean of an edge's weight over all draws is 1: a draw of node u gives its edges the weight 1 / q(u)."""
    graph = Graph.from_edges([1, 2, 3, 4, 4, 5, 6, 1], [0, 0, 0, 0, 7, 7, 7, 1])
    seeds, workspace = np.array([0, 7]), Workspace()
    q, total, seen = distribution(graph, seeds, "mean"), np.zeros(graph.num_edges), set()
    for batch in range(200):
        block = LadiesSampler([1]).sample(graph, seeds, batch=batch, workspace=workspace).blocks[0]
        node = int(graph.indices[block.edge_ids[0]])
        if node not in seen:
            seen.add(node)
            total[block.edge_ids] += q[node] * block.weights
    assert seen == {1, 2, 3, 4, 5, 6}
    np.testing.assert_allclose(total, edges_into(graph, seeds), atol=1e-6)


def estimates_of_sum(graph, sampler, seeds, x, batches):
    """Return the estimates of the sum of (A x) over the seeds, with shape (batches,); A takes the mean over in-neighbours."""
    values, workspace, found = entries(graph, "mean") * x[graph.indices], Workspace(), []
    for batch in range(batches):
        block = sampler.sample(graph, seeds, batch=batch, workspace=workspace).blocks[0]
        found.append((block.weights * values[block.edge_ids]).sum())
    return np.array(found)


def test_variances_are_those_of_the_distributions():
    """LADIES has a far smaller variance than FastGCN and uniform draws if few hubs feed the destinations, a tenth of the nodes.

    With f(u) the sum of A[v, u] x[u] over the destinations, a mean over t draws of f / q has the variance (sum of f**2 / q - (sum of f)**2)
    / t.
    """
    rng = np.random.default_rng(4)
    src = rng.integers(0, 400, (400, 10))
    src[:40, :5] = rng.integers(0, 10, (40, 5))
    graph, seeds = Graph.from_edges(src.ravel(), np.repeat(np.arange(400), 10), 400), np.arange(40)
    x = rng.random(400) + 0.5
    f = np.bincount(graph.indices, np.where(edges_into(graph, seeds), entries(graph, "mean") * x[graph.indices], 0), 400)
    distributions = {
        FastGCNSampler: distribution(graph, np.arange(400), "mean"),
        LadiesSampler: distribution(graph, seeds, "mean"),
        UniformLadies: (f > 0) / (f > 0).sum(),
    }
    found = {}
    for make, q in distributions.items():
        expected = ((f[q > 0] ** 2 / q[q > 0]).sum() - f.sum() ** 2) / 100
        estimates = estimates_of_sum(graph, make([100]), seeds, x, 1500)
        found[make] = estimates.var(ddof=1)
        assert found[make] == pytest.approx(expected, rel=0.2)
        assert abs(estimates.mean() - f.sum()) < Z_TAIL * np.sqrt(expected / 1500)
    assert 2 * found[LadiesSampler] < found[FastGCNSampler]
    assert 2 * found[LadiesSampler] < found[UniformLadies]


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
@pytest.mark.parametrize("make", [FastGCNSampler, LadiesSampler])
def test_a_model_learns_from_it(make, tmp_path):
    from pytorch_lightning import Trainer, seed_everything

    seed_everything(1)
    module = NodeDataModule("digits-knn", make([400, 400]), batch_size=128, num_workers=0, seed=0)
    model = NodeClassifier(module.num_features, module.num_classes, module.num_hops, arch="gcn", hidden_channels=64, dropout=0.0, lr=0.01)
    trainer = Trainer(
        max_epochs=2, use_distributed_sampler=False, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu"
    )
    trainer.fit(model, module)
    (result,) = trainer.test(model, module, verbose=False)
    assert result["test_acc"] > 0.8
