"""Edge features of a data set: one row for each edge id, from any source and in any storage."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from torch_geometric.data import Data

from hoptrain.engine import BFLOAT16, Dataset, Graph, to_bfloat16

EDGES = np.array([[3, 0, 2, 0, 3], [1, 1, 0, 1, 3]])
ROWS = np.arange(10, dtype=np.float32).reshape(5, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int64])
def test_saved_opened_and_copied(tmp_path, dtype):
    data = Dataset(edge_index=EDGES, edge_attr=ROWS.astype(dtype))
    data.save(tmp_path / "data")
    opened = Dataset.open(tmp_path / "data")
    assert not opened.edge_attr.flags.owndata
    for same in (data, opened, opened.in_memory()):
        assert (same.edge_attr.dtype, same.num_edge_features, same.stores()["edge_attr"] is same.edge_attr) == (dtype, 2, True)
        assert same.edge_attr.tolist() == ROWS.tolist()


def test_of_pyg_dgl_and_torch():
    edge_index, rows = torch.from_numpy(EDGES), torch.from_numpy(ROWS)
    of_dgl = SimpleNamespace(
        is_homogeneous=True, edges=lambda: tuple(edge_index), num_nodes=lambda: 4, ndata={}, edata={"feat": rows, "w": rows[:, 0]}
    )
    for data in (Dataset.from_pyg(Data(edge_index=edge_index, edge_attr=rows, num_nodes=4)), Dataset.from_dgl(of_dgl)):
        assert data.edge_attr.tolist() == ROWS.tolist()
    assert Dataset.from_pyg(Data(edge_index=edge_index, num_nodes=4)).edge_attr is None
    assert Dataset(edge_index=EDGES, edge_attr=ROWS[:, 0]).edge_attr.shape == (5, 1)
    half = Dataset(edge_index=EDGES, edge_attr=rows.bfloat16())
    assert half.edge_attr.dtype == BFLOAT16
    assert np.array_equal(half.edge_attr, to_bfloat16(ROWS))


def test_a_graph_with_fewer_edges_keeps_the_rows():
    graph = Graph.from_edges(*EDGES).with_edges(np.array([True, False, True, True, False]))
    data = Dataset(graph=graph, edge_attr=ROWS)
    assert data.edge_attr[graph.edge_ids].tolist() == ROWS[[2, 3, 0]].tolist()


MISTAKES = {
    "too few rows": Mistake(
        lambda: Dataset(edge_index=EDGES, edge_attr=ROWS[:4]), value="(4, 2)", rule="data edge_attr row edge", remedy="5 more reshape"
    ),
    "rows of two dimensions": Mistake(
        lambda: Dataset(edge_index=EDGES, edge_attr=ROWS.reshape(5, 2, 1)),
        value="(5, 2, 1)",
        rule="data edge_attr row edge",
        remedy="5 more reshape",
    ),
    "rows of text": Mistake(
        lambda: Dataset(edge_index=EDGES, edge_attr=np.array([["a"]] * 5)),
        value="<U1",
        rule="data edge_attr features numbers",
        remedy="convert edge_attr.astype",
    ),
    "rows that are not finite": Mistake(
        lambda: Dataset(edge_index=EDGES, edge_attr=np.full((5, 1), np.inf)),
        value=" inf",
        rule="data edge_attr[0, 0] finite",
        remedy="replace nan_to_num",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
