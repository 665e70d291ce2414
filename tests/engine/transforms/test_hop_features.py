"""Hop features equal products with powers of a dense matrix."""

from dataclasses import replace

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.engine import Dataset
from hoptrain.engine.transforms import hop_features
from hoptrain.engine.transforms.hop_features import open_hop_features


@pytest.fixture
def saved(dataset, tmp_path, monkeypatch):
    """Return the random data set in a folder, with a separate cache."""
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    dataset.save(tmp_path / "random")
    return Dataset.open(tmp_path / "random")


def dense(graph):
    """Return the matrix S: S[v, u] is the weight of the edge u -> v, and S[v, v] that of the node itself."""
    degrees = graph.in_degrees() + 1.0
    adjacency = np.eye(graph.num_nodes)
    for v in range(graph.num_nodes):
        np.add.at(adjacency[v], graph.indices[graph.indptr[v] : graph.indptr[v + 1]], 1)
    return adjacency / np.sqrt(degrees[:, None] * degrees[None, :])


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("block_edges", [1, 100, 1 << 20])
def test_powers_of_the_adjacency(saved, monkeypatch, normalize, block_edges):
    monkeypatch.setattr(hop_features, "BLOCK_EDGES", block_edges)
    hops = open_hop_features(saved, 3, normalize=normalize)
    wanted = saved.x / saved.x.sum(1, keepdims=True) if normalize else saved.x.astype(np.float64)
    assert len(hops) == 4
    for hop in hops:
        assert (hop.dtype, isinstance(hop, np.memmap)) == (np.float32, True)
        np.testing.assert_allclose(hop, wanted, rtol=1e-4, atol=1e-6)
        wanted = dense(saved.graph) @ wanted


def test_computed_once(saved, monkeypatch):
    open_hop_features(saved, 2)
    monkeypatch.setattr(hop_features, "propagate", None)
    assert len(open_hop_features(saved, 2)) == 3


def test_data_in_memory_have_the_features_of_the_same_in_files(saved, dataset):
    in_memory, in_files = open_hop_features(dataset, 2), open_hop_features(saved, 2)
    assert all(np.array_equal(one, other) for one, other in zip(in_memory, in_files, strict=True))
    other = open_hop_features(replace(dataset, x=dataset.x + 1), 2)
    assert not np.array_equal(other[2], in_memory[2])


def test_small_features_are_exact(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    x = np.arange(graph.num_nodes * 2, dtype=np.uint8).reshape(-1, 2)
    Dataset(name="bytes", graph=graph, x=x).save(tmp_path / "bytes")
    (hop,) = open_hop_features(Dataset.open(tmp_path / "bytes"), 0)
    np.testing.assert_array_equal(hop, x)


def test_what_cannot_be(dataset, saved):
    with refused("random", "no features hop computed", "data set x"):
        open_hop_features(replace(dataset, x=None), 1)
    with refused("-1", "num_hops 0", "0 or more"):
        open_hop_features(saved, -1)
