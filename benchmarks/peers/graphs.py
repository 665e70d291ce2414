"""A graph in the form of each peer, which has memory of its own. No benchmark times this."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hoptrain.benchmarks.peers import installed
from hoptrain.engine import Graph


def to_dgl(graph: Graph, layout: str = "csc", dtype: Any = None) -> Any:
    """DGL's graph.

    Args:
        graph: the graph.
        layout: "csc", or "csr" for columns taken as rows: DGL walks along out-edges, hoptrain along in-edges.
        dtype: of the ids; None keeps that of ``graph``.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    dgl = installed.dgl()
    indptr, indices = (torch.from_numpy(np.array(array, dtype)) for array in (graph.indptr, graph.indices))
    return dgl.graph((layout, (indptr, indices, indptr.new_empty(0))), num_nodes=graph.num_nodes)


def to_pyg(graph: Graph, *, by_destination: bool = False, **arrays: Any) -> Any:
    """PyG's ``Data`` with int64 ids.

    Args:
        graph: the graph.
        by_destination: an edge leads from its destination to its source, and edges lie by their first end, as PyG's subgraphs and walks ask for it.
        arrays: further tensors of the ``Data``.
    """
    from torch_geometric.data import Data

    sources = torch.from_numpy(graph.indices.astype(np.int64))
    destinations = torch.from_numpy(np.repeat(np.arange(graph.num_nodes), graph.in_degrees()))
    ends = [destinations, sources] if by_destination else [sources, destinations]
    return Data(edge_index=torch.stack(ends), num_nodes=graph.num_nodes, **arrays)


def to_scipy(graph: Graph) -> Any:
    """``csr_array`` (V, V) float32: a row has 1 / d at each of its vertex's d in-neighbours."""
    from scipy.sparse import csr_array  # only here: processes whose memory is measured go without

    degrees = graph.in_degrees()
    values = np.repeat(1 / np.maximum(degrees, 1), degrees).astype(np.float32)
    return csr_array((values, np.array(graph.indices), np.array(graph.indptr)), shape=(graph.num_nodes, graph.num_nodes))
