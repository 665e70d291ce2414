"""Synthetic data sets: exact sizes, independence of the number of threads, and their intended properties."""

import math

import numba
import numpy as np
import pytest
from cases.mistakes import refused
from scipy.sparse import csr_array

from hoptrain.engine.datasets import load_dataset
from hoptrain.engine.datasets.synthetic import RECIPES, affine_bijection, law_start
from hoptrain.kernels.cpu import synthetic as kernels

SCALES = {
    "reddit": 0.01,
    "products": 0.02,
    "arxiv": 0.1,
    "papers100M": 0.0002,
    "ppi": 0.2,
    "orkut": 0.002,
    "patents": 0.01,
    "livejournal": 0.005,
}


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOPTRAIN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def load(name):
    return load_dataset(f"synthetic:{name}", scale=SCALES[name])


def destinations(graph):
    return np.repeat(np.arange(graph.num_nodes), graph.in_degrees())


@pytest.mark.parametrize("name", RECIPES)
def test_sizes_are_the_named_set_times_scale(name):
    data, recipe, scale = load(name), RECIPES[name], SCALES[name]
    assert data.graph.num_nodes == round(recipe.counts.num_nodes * scale)
    assert data.graph.num_edges == 2 * round(recipe.counts.num_edges * scale / 2)
    assert (data.num_features, data.num_classes) == (recipe.counts.num_features, recipe.counts.num_classes)
    assert data.x.dtype == np.dtype(recipe.dtype)
    assert [len(data.split(split)) for split in ("train", "val", "test")] == [max(1, round(size * scale)) for size in recipe.split]
    used = np.concatenate(list(data.splits.values()))
    assert len(np.unique(used)) == len(used)


def test_published_sizes():
    assert RECIPES["reddit"].counts == (232_965, 114_615_892, 602, 41)
    assert RECIPES["products"].counts == (2_449_029, 123_718_280, 100, 47)
    assert RECIPES["arxiv"].counts == (169_343, 2_332_486, 128, 40)
    assert RECIPES["papers100M"].counts == (111_059_956, 1_615_685_872, 128, 172)
    assert RECIPES["ppi"].counts == (56_944, 1_637_432, 50, 121)
    assert [RECIPES[name].counts[:2] for name in ("orkut", "patents", "livejournal")] == [
        (3_072_441, 234_370_166),
        (3_774_768, 33_037_896),
        (4_847_571, 68_993_772),
    ]
    for name in RECIPES.keys() - {"papers100M"}:
        assert sum(RECIPES[name].split) == RECIPES[name].counts.num_nodes


@pytest.mark.parametrize("name", RECIPES)
def test_the_graph_is_symmetric_sorted_without_loops_and_mostly_within_classes(name):
    data = load(name)
    graph, dst = data.graph, destinations(data.graph)
    assert np.array_equal(data.graph.indices, np.concatenate([np.sort(column) for column in np.split(graph.indices, graph.indptr[1:-1])]))
    keys, mirrored = dst * graph.num_nodes + graph.indices, graph.indices.astype(np.int64) * graph.num_nodes + dst
    assert np.array_equal(np.sort(keys), np.sort(mirrored))
    assert not (graph.indices == dst).any()
    within = (data.y[graph.indices] == data.y[dst]).mean()
    by_chance = (1 - RECIPES[name].inside) / data.num_classes
    assert within == pytest.approx(RECIPES[name].inside + by_chance, abs=0.01)


@pytest.mark.parametrize("name", RECIPES)
def test_degrees_follow_the_distribution(name):
    graph, offset = load(name).graph, RECIPES[name].offset
    degrees = np.sort(graph.in_degrees())[::-1]
    weights = (np.arange(graph.num_nodes) + offset + 0.5) ** (-2 / 3)
    expected = weights * graph.num_edges / weights.sum()
    assert degrees[0] == pytest.approx(
        expected[0], abs=max(0.25 * expected[0], 4 * math.sqrt(expected[0]))
    )  # the largest degree varies more
    hubs = slice(0, graph.num_nodes // 100)
    assert degrees[hubs].sum() == pytest.approx(expected[hubs].sum(), rel=0.1)


def test_any_number_of_threads_makes_the_same_files(tmp_path, monkeypatch):
    checksums = []
    for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
        monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / str(threads)))
        before = numba.get_num_threads()
        numba.set_num_threads(threads)
        try:
            data = load_dataset("synthetic:products", scale=0.005)
        finally:
            numba.set_num_threads(before)
        checksums.append((data.path / "header.json").read_text())
    assert '"crc32"' in checksums[0]
    assert checksums[0] == checksums[1]


def test_the_numbers_never_change():
    """Some pairs and features have the values of the first version, since data of a benchmark must not change."""
    pairs = [kernels.edge_pair(pair, np.uint64(2), 48_981, 47, 0.115, np.uint64(1 << 31)) for pair in (0, 1, 2_000_000_000)]
    assert pairs == [(36752, 1412), (19901, 1054), (3048, 13946)]
    x = load("products").x
    assert [round(float(value), 5) for value in x[1234, [0, 7, 99]]] == [0.13, -2.42073, 2.02831]


def test_features_have_the_stated_means_and_noise():
    data = load("arxiv")
    means = np.empty((data.num_classes, data.num_features))
    kernels.class_means(np.uint64(RECIPES["arxiv"].seed), means)
    noise = data.x - RECIPES["arxiv"].signal * means[data.y]
    assert set(np.unique(means)) == {-1.0, 1.0}
    assert noise.mean() == pytest.approx(0, abs=4 / math.sqrt(noise.size))
    assert noise.std() == pytest.approx(1, abs=0.005)
    correlations = np.corrcoef(noise[:, :64].T) - np.eye(64)
    assert np.abs(correlations).max() < 6 / math.sqrt(len(noise))


def test_classes_are_learnable_with_the_graph_only():
    data = load("products")
    graph, train, test = data.graph, data.split("train"), data.split("test")
    accuracy = []
    smooth = np.array(data.x)
    weights = np.repeat(1 / graph.in_degrees(), graph.in_degrees()).astype(np.float32)
    average = csr_array((weights, graph.indices, graph.indptr))
    for _ in range(3):
        centres = np.stack([smooth[train[data.y[train] == label]].mean(axis=0) for label in range(data.num_classes)])
        distance = (centres**2).sum(axis=1) - 2 * smooth[test] @ centres.T
        accuracy.append((distance.argmin(axis=1) == data.y[test]).mean())
        smooth = average @ smooth
    assert 0.10 < accuracy[0] < 0.25
    assert accuracy[2] > accuracy[0] + 0.4


@pytest.mark.parametrize("num_nodes", [82, 94, 1_000, 232_965, 2_449_029])
def test_ids_are_a_bijection_of_ranks(num_nodes):
    factor, shift = affine_bijection(num_nodes)
    ids = (factor * np.arange(num_nodes) + shift) % num_nodes
    assert np.array_equal(np.sort(ids), np.arange(num_nodes))


def test_the_start_of_the_distribution_is_a_cube_root():
    for offset, num_nodes in ((1, 169_343), (75, 2_449_029), (160, 2_000), (100, 111_059_956)):
        assert law_start(offset, num_nodes) == pytest.approx((offset / num_nodes) ** (1 / 3), abs=2**-16)


@pytest.mark.parametrize("scale", [0, -1, 1.5, float("nan")])
def test_a_scale_outside_the_range_is_refused(scale):
    with refused(f"scale is {float(scale)}", "share synthetic:reddit (0, 1]", "give 0.02"):
        load_dataset("synthetic:reddit", scale=scale)


def test_a_scale_that_leaves_too_few_nodes_is_refused():
    with refused("scale is 1e-05", "2 nodes 41 synthetic:reddit", "larger scale"):
        load_dataset("synthetic:reddit", scale=1e-5)


def test_scales_do_not_share_a_folder():
    assert load_dataset("synthetic:arxiv", scale=0.01).graph.num_nodes == 1693
    assert load_dataset("synthetic:arxiv", scale=0.02).graph.num_nodes == 3387
