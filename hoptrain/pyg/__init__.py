"""PyG's loaders over hoptrain's samplers: ``from hoptrain.pyg import NeighborLoader`` in place of ``from torch_geometric.loader``.

Arguments and batches are PyG's; sampling is hoptrain's. PyG needs neither pyg-lib nor torch-sparse for them.
"""

from hoptrain.pyg.loaders import LinkNeighborLoader, NeighborLoader
from hoptrain.pyg.sampler import NeighborSampler
from hoptrain.pyg.subgraphs import ClusterData, ClusterLoader, RandomNodeLoader, ShaDowKHopSampler

__all__ = [
    "ClusterData",
    "ClusterLoader",
    "LinkNeighborLoader",
    "NeighborLoader",
    "NeighborSampler",
    "RandomNodeLoader",
    "ShaDowKHopSampler",
]
