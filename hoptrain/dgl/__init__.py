"""DGL's loader and samplers over hoptrain: ``from hoptrain.dgl import DataLoader, NeighborSampler`` in place of ``from dgl.dataloading``.

Arguments and results are DGL's; sampling is hoptrain's. Without DGL (``pip install hoptrain[dgl]``) it cannot be imported, and says so.
"""

from hoptrain.dgl import negative_sampler
from hoptrain.dgl.blocks import LaborSampler, MultiLayerFullNeighborSampler, MultiLayerNeighborSampler, NeighborSampler
from hoptrain.dgl.edges import as_edge_prediction_sampler
from hoptrain.dgl.loader import DataLoader
from hoptrain.dgl.saint import SAINTSampler
from hoptrain.dgl.subgraphs import ClusterGCNSampler, ShaDowKHopSampler

__all__ = [
    "ClusterGCNSampler",
    "DataLoader",
    "LaborSampler",
    "MultiLayerFullNeighborSampler",
    "MultiLayerNeighborSampler",
    "NeighborSampler",
    "SAINTSampler",
    "ShaDowKHopSampler",
    "as_edge_prediction_sampler",
    "negative_sampler",
]
