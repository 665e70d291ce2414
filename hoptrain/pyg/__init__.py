"""Drop-in replacements for PyG's loaders: write ``from hoptrain.pyg import NeighborLoader`` instead of ``from torch_geometric.loader``.

Arguments and batches are those of PyG; hoptrain does the sampling. Neither pyg-lib nor torch-sparse is needed. Every other name of
``torch_geometric.loader``, such as ``DataLoader``, ``ImbalancedSampler`` or ``ZipLoader``, is passed through unchanged.
"""

from typing import Any

import torch_geometric.loader

from hoptrain.pyg.bidirectional import BidirectionalNeighborSampler
from hoptrain.pyg.hgt import HGTLoader
from hoptrain.pyg.loaders import LinkNeighborLoader, NeighborLoader
from hoptrain.pyg.saint import GraphSAINTEdgeSampler, GraphSAINTNodeSampler, GraphSAINTRandomWalkSampler, GraphSAINTSampler
from hoptrain.pyg.sampler import NeighborSampler
from hoptrain.pyg.subgraphs import ClusterData, ClusterLoader, RandomNodeLoader, ShaDowKHopSampler

__all__ = [
    "BidirectionalNeighborSampler",
    "ClusterData",
    "ClusterLoader",
    "GraphSAINTEdgeSampler",
    "GraphSAINTNodeSampler",
    "GraphSAINTRandomWalkSampler",
    "GraphSAINTSampler",
    "HGTLoader",
    "LinkNeighborLoader",
    "NeighborLoader",
    "NeighborSampler",
    "RandomNodeLoader",
    "ShaDowKHopSampler",
]


def __getattr__(name: str) -> Any:
    if name not in torch_geometric.loader.__all__:
        raise AttributeError(f"neither module 'hoptrain.pyg' nor torch_geometric.loader has an attribute {name!r}")
    return getattr(torch_geometric.loader, name)
