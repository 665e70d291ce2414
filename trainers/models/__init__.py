"""Models on mini-batches: graph neural networks over blocks, decoders, TGN, ViG, and full-neighbour inference."""

from hoptrain.trainers.models.gnn import GNN

__all__ = ["GNN"]
