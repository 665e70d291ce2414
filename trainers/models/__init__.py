"""Graph neural networks over blocks."""

from hoptrain.trainers.models.gnn import GNN

__all__ = ["GNN"]
