"""Features computed from the graph alone equal slow versions."""

import numpy as np
import pytest

from hoptrain.engine import Graph
from hoptrain.engine.transforms.made_features import WIDTH, degree_features, make_features, walk_features
from hoptrain.kernels.cpu.projection import sparse_signs
from hoptrain.kernels.shared.philox import HOP_FEATURES, four_words


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path))
    return tmp_path / "datasets"


def signs(num_rows):
    """Compute the random projection slowly: each entry takes four random bits, is 0 unless the lower two are 0, and has the next bit as sign."""
    out = np.zeros((num_rows, WIDTH), np.float32)
    for row in range(num_rows):
        for column in range(WIDTH):
            group, place = divmod(column, 32)
            word = int(four_words(np.uint64(0), np.uint64(0), np.uint64(0), HOP_FEATURES, np.uint64(row), np.uint64(group))[place // 8])
            bits = word >> 4 * (place % 8) & 15
            out[row, column] = 0 if bits % 4 else (-1 if bits & 4 else 1)
    return out


def test_the_projection():
    out = np.empty((50, WIDTH), np.float32)
    sparse_signs(out, np.uint64(0))
    np.testing.assert_array_equal(out, signs(50))


def test_a_quarter_of_the_projection_is_not_zero_and_signs_are_even():
    out = np.empty((2000, WIDTH), np.float32)
    sparse_signs(out, np.uint64(7))
    share, deviation = np.mean(out != 0), np.sqrt(0.25 * 0.75 / out.size)
    assert abs(share - 0.25) < 5 * deviation
    assert abs(out.mean()) < 5 * np.sqrt(0.25 / out.size)


def test_walks_are_the_powers_of_the_transition_matrix(graph):
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    np.add.at(matrix, (np.repeat(np.arange(graph.num_nodes), graph.in_degrees()), graph.indices), 1)
    matrix /= np.maximum(matrix.sum(1, keepdims=True), 1)
    current, total = signs(graph.num_nodes).astype(np.float64), 0
    for _ in range(8):
        current = matrix @ current
        total = total + current / np.maximum(np.linalg.norm(current, axis=1, keepdims=True), 1e-30)
    np.testing.assert_allclose(walk_features(graph), total * np.sqrt(WIDTH) / 8, rtol=1e-4, atol=1e-4)


def test_a_node_without_in_edges_has_no_position(graph):
    lonely = graph.in_degrees() == 0
    assert lonely.any()
    x = walk_features(graph)
    assert not x[lonely].any()
    assert np.isfinite(x).all()


def test_degrees_in_half_octaves():
    """Degree features are one-hot encodings of bins of half an octave.

    In-degrees are 0, 0, 0, 4 and 3, where 3 and 4 share a bin; out-degrees are 2, 2, 2, 1 and 0.
    """
    graph = Graph.from_edges(np.array([0, 1, 2, 3, 0, 1, 2]), np.array([3, 3, 3, 3, 4, 4, 4]), 5)
    x = degree_features(graph)
    assert x.dtype == np.uint8
    np.testing.assert_array_equal(x, [[1, 0, 0, 0, 1], [1, 0, 0, 0, 1], [1, 0, 0, 0, 1], [0, 1, 0, 1, 0], [0, 1, 1, 0, 0]])


@pytest.mark.parametrize("kind", ["degrees", "walks"])
def test_they_are_made_once_a_graph(graph, cache, kind):
    x = make_features(graph, kind)
    np.testing.assert_array_equal(x, walk_features(graph) if kind == "walks" else degree_features(graph))
    assert not x.flags.writeable
    (folder,) = cache.iterdir()
    (folder / "x.npy").touch()
    before = (folder / "x.npy").stat().st_mtime_ns
    np.testing.assert_array_equal(make_features(graph, kind), x)
    assert (folder / "x.npy").stat().st_mtime_ns == before
    make_features(Graph.from_edges(np.array([0]), np.array([1]), 2), kind)
    assert len(list(cache.iterdir())) == 2


def test_a_graph_without_edges():
    graph = Graph.from_edges(np.zeros(0, np.int64), np.zeros(0, np.int64), 3)
    assert not walk_features(graph).any()
    assert degree_features(graph).tolist() == [[1, 1]] * 3
