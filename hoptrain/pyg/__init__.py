"""PyG's loaders over hoptrain's samplers: ``from hoptrain.pyg import NeighborLoader`` in place of ``from torch_geometric.loader``.

Arguments and batches are PyG's; sampling is hoptrain's. PyG needs neither pyg-lib nor torch-sparse for them. What else an import line for
``torch_geometric.loader`` may name is PyG's own: ``DataLoader``, ``ImbalancedSampler``, ``CachedLoader``, ``ZipLoader`` and so on.
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
        raise AttributeError(f"module 'hoptrain.pyg' has no attribute {name!r}, nor has torch_geometric.loader")
    return getattr(torch_geometric.loader, name)
