"""The data set digits-knn: its graph equals a brute-force search and does not depend on library versions."""

import numpy as np
import pytest

from hoptrain.engine.datasets import load_dataset
from hoptrain.engine.datasets.digits import nearest_neighbors


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOPTRAIN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield load_dataset("digits-knn")


def edges(graph):
    dst = np.repeat(np.arange(graph.num_nodes), graph.in_degrees())
    return set(zip(graph.indices.tolist(), dst.tolist(), strict=True))


def test_sizes_and_dtypes(digits):
    assert digits.x.shape == (1797, 64)
    assert digits.x.dtype == np.float32
    assert (digits.x.min(), digits.x.max()) == (0, 1)
    assert np.bincount(digits.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert digits.num_classes == 10


def test_edges_join_nearest_neighbours_both_ways_once(digits):
    found = edges(digits.graph)
    assert len(found) == digits.graph.num_edges
    assert all((b, a) in found for a, b in found)
    assert all(a != b for a, b in found)
    assert digits.graph.in_degrees().min() >= 8
    assert digits.graph.is_sorted
    pixels = np.rint(digits.x * 16).astype(int)
    wanted = set()
    for v in range(0, 1797, 97):
        distances = sorted((int(((pixels[u] - pixels[v]) ** 2).sum()), u) for u in range(1797) if u != v)
        wanted |= {(u, v) for _, u in distances[:8]}
    assert wanted <= found


def test_ties_go_to_the_smaller_id():
    points = np.array([[0], [2], [-2], [2], [9]])
    assert nearest_neighbors(points, 2).tolist() == [[1, 2], [3, 0], [0, 1], [1, 0], [1, 3]]


def test_the_split_is_fixed_and_a_partition(digits):
    parts = [digits.split(name) for name in ("train", "val", "test")]
    assert [len(part) for part in parts] == [1078, 359, 360]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(1797))
    assert [part[:4].tolist() for part in parts] == [[0, 2, 3, 4], [1, 5, 7, 11], [8, 9, 10, 13]]
