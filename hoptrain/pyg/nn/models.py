"""PyG's ready-made models with hoptrain's layers: write ``from hoptrain.pyg.nn.models import GraphSAGE`` instead of ``from torch_geometric.nn.models``.

Every other name of ``torch_geometric.nn.models`` is passed through unchanged.
"""

from __future__ import annotations

from typing import Any

import torch_geometric.nn as pyg
from torch_geometric.nn.models.basic_gnn import BasicGNN

from hoptrain.pyg.nn.convs import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv

_CONVS = {each.__base__: each for each in (GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv)}
"""PyG's class of a layer -> hoptrain's."""


class FasterModel(BasicGNN):
    """A model of PyG that is faster on batches of ``hoptrain.pyg``, with PyG's parameters, ``state_dict`` and results."""

    def init_conv(self, *args: Any, **kwargs: Any) -> Any:
        """Build a layer as PyG's model does, with hoptrain's class."""
        conv = super().init_conv(*args, **kwargs)
        conv.__class__ = _CONVS[type(conv)]  # it has the same constructor and attributes, so PyG's code chooses the arguments
        return conv


class GraphSAGE(FasterModel, pyg.GraphSAGE):
    """A drop-in replacement for ``torch_geometric.nn.GraphSAGE`` that is faster on batches of ``hoptrain.pyg``."""


class GCN(FasterModel, pyg.GCN):
    """A drop-in replacement for ``torch_geometric.nn.GCN`` that is faster on batches of ``hoptrain.pyg``."""


class GIN(FasterModel, pyg.GIN):
    """A drop-in replacement for ``torch_geometric.nn.GIN`` that is faster on batches of ``hoptrain.pyg``."""


class GAT(FasterModel, pyg.GAT):
    """A drop-in replacement for ``torch_geometric.nn.GAT``, with GAT's or GATv2's layers, that is faster on batches of ``hoptrain.pyg``."""


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not hasattr(pyg.models, name):
        raise AttributeError(f"neither module 'hoptrain.pyg.nn.models' nor torch_geometric.nn.models has an attribute {name!r}")
    return getattr(pyg.models, name)
