"""Drop-in replacements for PyG's layers: write ``from hoptrain.pyg.nn import SAGEConv`` instead of ``from torch_geometric.nn``.

On a batch of a loader of ``hoptrain.pyg`` they compute only the rows that something reads, and sum neighbours as hoptrain's own models do. On any other
``edge_index`` they are PyG's layers. The models ``GraphSAGE``, ``GCN``, ``GIN`` and ``GAT`` consist of these layers. ``Dropout`` is a faster
``torch.nn.Dropout``. Every other name of ``torch_geometric.nn`` is passed through unchanged.
"""

from typing import Any

import torch_geometric.nn

from hoptrain.pyg.nn.convs import GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv
from hoptrain.pyg.nn.models import GAT, GCN, GIN, GraphSAGE
from hoptrain.trainers.models.layers import Dropout

__all__ = ["GAT", "GCN", "GIN", "Dropout", "GATConv", "GATv2Conv", "GCNConv", "GINConv", "GraphConv", "GraphSAGE", "SAGEConv"]


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not hasattr(torch_geometric.nn, name):
        raise AttributeError(f"neither module 'hoptrain.pyg.nn' nor torch_geometric.nn has an attribute {name!r}")
    return getattr(torch_geometric.nn, name)
