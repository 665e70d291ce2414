"""Edge ids: every edge keeps its index in the user's input through all operations on the graph."""

from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import torch
from cases.mistakes import Mistake, each_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.dataset import ONLY
from hoptrain.engine.transforms.link_split import hold_out_links
from hoptrain.samplers.batch.dgl_compat import import_dgl

EDGES = np.array([[3, 0, 2, 0, 3], [1, 1, 0, 1, 3]])


@st.composite
def edge_lists(draw):
    """Draw edges (2, E) with duplicates, self loops, reverse edges and isolated nodes, and the number of nodes."""
    num_nodes = draw(st.integers(1, 8))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=30))
    edges += [(v, u) for u, v in edges[: draw(st.integers(0, len(edges)))]]
    return np.array(edges, draw(st.sampled_from([np.int32, np.int64]))).reshape(-1, 2).T, num_nodes


def check(graph, edges):
    """Check that each edge's id is the index of its column in ``edges`` (2, E), and that ids are unique."""
    ids = graph.ids_of(np.arange(graph.num_edges))
    assert len(set(ids.tolist())) == graph.num_edges
    assert np.stack([graph.indices, graph.destinations()]).tolist() == edges[:, ids].tolist()
    assert graph.csc_positions(ids).tolist() == list(range(graph.num_edges))
    assert graph.ids_of(np.array([-1])).tolist() == [-1]
    if graph.edge_ids is not None:
        assert (graph.edge_ids.dtype, graph.edge_ids.flags.writeable) == (np.int32, False)
    return ids


def doors(edges, num_nodes):
    """Return the graph built by each constructor and conversion."""
    src, dst = torch.from_numpy(edges.astype(np.int64))
    dgl = SimpleNamespace(is_homogeneous=True, edges=lambda: (src, dst), num_nodes=lambda: num_nodes, ndata={})
    data = Data(edge_index=torch.stack([src, dst]), num_nodes=num_nodes)
    y = np.zeros(num_nodes, np.int64)
    return [
        Graph.from_edges(*edges, num_nodes), Graph.from_edge_index(edges, num_nodes), Graph.from_pyg(data), Graph.from_dgl(dgl),
        Dataset.from_pyg(data).graph, Dataset.from_dgl(dgl).graph, Dataset(edge_index=edges, y=y).graph,
        Graph.from_scipy(scipy.sparse.coo_array((np.ones(edges.shape[1]), edges), shape=(num_nodes, num_nodes))),
    ]  # fmt: skip


@settings(max_examples=100)
@given(problem=edge_lists(), seed=st.integers(0, 99))
def test_any_edges_by_any_door(problem, seed):
    edges, num_nodes = problem
    for graph in doors(edges, num_nodes):
        ids = check(graph, edges)
        assert sorted(ids.tolist()) == list(range(edges.shape[1]))
        assert (graph.edge_ids is None) == (ids.tolist() == sorted(ids.tolist()))
    is_kept = np.random.default_rng(seed).random(edges.shape[1]) < 0.5
    part = graph.with_edges(is_kept)
    assert check(part, edges).tolist() == ids[is_kept].tolist()
    assert check(part.with_edges(np.arange(part.num_edges) % 2 == 0), edges).tolist() == ids[is_kept][::2].tolist()
    check(part.in_memory(), edges)


@settings(max_examples=50)
@given(problem=edge_lists())
def test_copies_keep_their_order_and_take_their_weights_along(problem):
    edges, num_nodes = problem
    numbers = np.arange(edges.shape[1])
    graph = Graph.from_edges(*edges, num_nodes, weights=numbers.astype(np.float32), times=numbers)
    ids = check(graph, edges)
    assert (graph.weights.tolist(), graph.times.tolist()) == (ids.tolist(), ids.tolist())
    copies = np.stack([graph.destinations(), graph.indices, ids]).T.tolist()
    assert copies == sorted(copies)


@pytest.mark.skipif(find_spec("dgl") is None, reason="dgl is not installed: pip install hoptrain[dgl]")
def test_a_graph_of_dgl_itself():
    made = import_dgl().graph(tuple(torch.from_numpy(EDGES)), num_nodes=5)
    made.create_formats_()
    check(Graph.from_dgl(made), torch.stack(made.find_edges(torch.arange(5))).numpy())


@settings(max_examples=50)
@given(problem=edge_lists())
def test_pairs(problem):
    (src, dst), num_nodes = problem
    graph = Graph.from_pairs(src, dst, num_nodes)
    both = np.concatenate([[src, dst], [dst, src]], axis=1)
    ids = check(graph, both)
    first = {edge: number for number, edge in reversed(list(enumerate(map(tuple, both.T.tolist()))))}
    assert sorted(ids.tolist()) == sorted(first.values())


@pytest.mark.parametrize("ordered", [False, True])
def test_saved_and_opened_again(tmp_path, ordered):
    edges = EDGES[:, np.lexsort(EDGES)] if ordered else EDGES
    graph = Graph.from_edges(*edges)
    graph.save(tmp_path / "graph")
    Dataset(name="data", graph=graph).save(tmp_path / "data")
    for opened in (Graph.open(tmp_path / "graph"), Dataset.open(tmp_path / "data").graph):
        check(opened, edges)
        assert (opened.edge_ids is None) == ordered
        assert ordered or not opened.edge_ids.flags.owndata
        check(opened.in_memory(), edges)


def test_csr_counts_as_the_matrix_stores(tmp_path):
    matrix = scipy.sparse.csr_array((np.ones(5), np.array([1, 1, 0, 1, 3]), np.array([0, 2, 2, 3, 5])), shape=(4, 4))
    rows = np.repeat(np.arange(4), np.diff(matrix.indptr))
    check(Graph.from_scipy(matrix), np.stack([rows, matrix.indices]))


def test_ids_of_ones_own():
    graph = Graph([0, 2, 3], [1, 0, 1], edge_ids=[40, 7, 3_000_000_000])
    assert (graph.edge_ids.dtype, graph.edge_ids.tolist()) == (np.int64, [40, 7, 3_000_000_000])
    assert graph.ids_of(np.array([2, -1, 0])).tolist() == [3_000_000_000, -1, 40]
    assert graph.csc_positions(np.array([7, 40, 7])).tolist() == [1, 0, 1]
    assert graph.csc_positions(np.array([], np.int64)).tolist() == []


def test_links_held_out_leave_the_others_their_ids():
    edges = np.stack([np.arange(40) * 7 % 23, np.arange(40) * 11 % 23])
    graph = Graph.from_edges(*edges)
    graph = graph.with_edges(hold_out_links({ONLY: graph}, {ONLY: ONLY}, {"test": 0.3}).is_kept[ONLY])
    assert graph.num_edges < 40
    check(graph, edges)


# Weights of PyG's data


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (torch.arange(5.0), np.float32),
        (torch.arange(5.0).double()[:, None], np.float64),
        (torch.arange(5), np.float32),
        (torch.arange(5.0).half(), np.float32),
    ],
)
def test_edge_weight_of_pyg_follows_its_edges(given, dtype):
    data = Data(edge_index=torch.from_numpy(EDGES), edge_weight=given, num_nodes=4)
    for graph in (Graph.from_pyg(data), Dataset.from_pyg(data).graph):
        assert (graph.weights.dtype, graph.weights.tolist()) == (dtype, check(graph, EDGES).tolist())
    del data.edge_weight
    assert Dataset.from_pyg(data).graph.weights is None


# Input errors.


def with_ids(edge_ids):
    return Graph([0, 2], [0, 0], edge_ids=edge_ids)


def weighted_pyg(edge_weight):
    Dataset.from_pyg(Data(edge_index=torch.from_numpy(EDGES), edge_weight=edge_weight, num_nodes=4))


MISTAKES = {
    "ids of floats": Mistake(
        lambda: with_ids([1.0, 2.0]), value="float64 of shape (2,)", rule="edge_ids integers 2 edges", remedy="convert"
    ),
    "too few ids": Mistake(lambda: with_ids([1]), value="(1,)", rule="edge_ids one 2 edges", remedy="convert"),
    "an id twice": Mistake(lambda: with_ids([1, 1]), value="1 in edge_ids", rule="edge ids distinct 0 more", remedy="leave out"),
    "a negative id": Mistake(lambda: with_ids([-1, 1]), value="-1 in edge_ids", rule="edge ids distinct 0", remedy="leave out"),
    "a place beyond the edges": Mistake(
        lambda: Graph([0, 2], [0, 0]).csc_positions(np.array([2])), value="edge 2", rule="not exist edge id", remedy="leave out"
    ),
    "an id that no edge has": Mistake(
        lambda: with_ids([5, 4]).csc_positions(np.array([4, 1])), value="edge 1", rule="not exist edge id", remedy="leave out"
    ),
    "a negative weight": Mistake(lambda: weighted_pyg(-torch.ones(5)), value="-1.0", rule="weight edge 0 finite weights", remedy="drop"),
    "weights of two dimensions": Mistake(
        lambda: weighted_pyg(torch.ones(5, 2)), value="float32 of shape (5, 2)", rule="weights one 5 edges", remedy="convert"
    ),
    "too few weights": Mistake(lambda: weighted_pyg(torch.ones(4)), value="(4,)", rule="weights one 5 edges", remedy="convert"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
