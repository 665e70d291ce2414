"""Links held out of a graph."""

import numpy as np
import pytest

from hoptrain.engine import Graph, InputError
from hoptrain.engine.derived.link_split import hold_out_links


def edges_of(graph):
    return list(zip(graph.indices.tolist(), np.repeat(np.arange(graph.num_nodes), graph.in_degrees()).tolist(), strict=True))


def test_links_go_with_all_their_edges():
    """Multi-edges, single directions, self loops, weights and times."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 30, (2, 200))
    src, dst = np.r_[src, dst[:80]], np.r_[dst, src[:80]]
    graph = Graph.from_edges(src, dst, 30, weights=np.arange(280.0), times=np.arange(280))
    pairs = {frozenset(edge) for edge in edges_of(graph)} - {frozenset([v]) for v in range(30)}
    train, held = hold_out_links(graph, {"val": 0.1, "test": 0.2}, seed=3)
    seen = []
    for name, share in (("val", 0.1), ("test", 0.2)):
        number = int(share * len(pairs))
        assert held[name].labels.tolist() == [1.0] * number + [0.0] * number
        found = [frozenset(pair) for pair in held[name].pairs.T.tolist()]
        assert set(found[:number]) <= pairs
        assert not set(found[number:]) & pairs
        assert all(len(pair) == 2 for pair in found)
        seen += found[:number]
    assert len(set(seen)) == len(seen)
    kept = [edge not in seen for edge in map(frozenset, edges_of(graph))]
    assert edges_of(train) == [edge for edge, stays in zip(edges_of(graph), kept, strict=True) if stays]
    assert (train.weights == graph.weights[kept]).all()
    assert (train.times == graph.times[kept]).all()
    again, _ = hold_out_links(graph, {"val": 0.1, "test": 0.2}, seed=3)
    assert (again.indices == train.indices).all()
    other, _ = hold_out_links(graph, {"val": 0.1, "test": 0.2}, seed=4)
    assert edges_of(other) != edges_of(train)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"val": 0.5, "test": 0.5}, "together they are below 1"),
        ({"val": -0.1}, "each is at least 0"),
        ({"val": 1e-9}, "the share 1e-09 of 3 links is none: hold out more, or nothing"),
    ],
)
def test_shares_that_cannot_be(shares, message):
    with pytest.raises(InputError, match=message):
        hold_out_links(Graph.from_edges([0, 1, 2], [1, 2, 0]), shares)


def test_a_complete_graph_has_no_negatives():
    src, dst = np.divmod(np.arange(25), 5)
    with pytest.raises(InputError, match="hardly any pair of vertices is without a link"):
        hold_out_links(Graph.from_edges(src, dst, 5), {"val": 0.4})
