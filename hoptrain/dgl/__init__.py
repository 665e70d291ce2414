"""DGL's loader and samplers over hoptrain: ``from hoptrain.dgl import DataLoader, NeighborSampler`` in place of ``from dgl.dataloading``.

Arguments and results are DGL's; sampling is hoptrain's. What import lines name besides and samples nothing is DGL's own.
Without DGL (``pip install hoptrain[dgl]``) it cannot be imported, and says so.
"""

from typing import Any

from hoptrain.dgl import negative_sampler, sampling
from hoptrain.dgl.blocks import LaborSampler, MultiLayerFullNeighborSampler, MultiLayerNeighborSampler, NeighborSampler
from hoptrain.dgl.edges import as_edge_prediction_sampler
from hoptrain.dgl.loader import DataLoader
from hoptrain.dgl.outputs import dgl as _dgl
from hoptrain.dgl.saint import SAINTSampler
from hoptrain.dgl.subgraphs import ClusterGCNSampler, ShaDowKHopSampler

BlockSampler: Any = _dgl.dataloading.BlockSampler
GraphDataLoader: Any = _dgl.dataloading.GraphDataLoader
Sampler: Any = _dgl.dataloading.Sampler
SpotTarget: Any = _dgl.dataloading.SpotTarget

__all__ = [
    "BlockSampler",
    "ClusterGCNSampler",
    "DataLoader",
    "GraphDataLoader",
    "LaborSampler",
    "MultiLayerFullNeighborSampler",
    "MultiLayerNeighborSampler",
    "NeighborSampler",
    "SAINTSampler",
    "Sampler",
    "ShaDowKHopSampler",
    "SpotTarget",
    "as_edge_prediction_sampler",
    "negative_sampler",
    "sampling",
]
