"""Drop-in replacements for DGL's samplers: write ``from hoptrain.dgl import DataLoader, NeighborSampler`` instead of ``from dgl.dataloading``.

Arguments and results are those of DGL; hoptrain does the sampling. Every other name of ``dgl.dataloading``, such as ``GraphDataLoader`` or
``EdgePredictionSampler``, is DGL's own.
The import raises ``ImportError`` without DGL (``pip install hoptrain[dgl]``).
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


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not hasattr(_dgl.dataloading, name):
        raise AttributeError(f"neither module 'hoptrain.dgl' nor dgl.dataloading has an attribute {name!r}")
    return getattr(_dgl.dataloading, name)
