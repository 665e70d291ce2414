"""ViG, a Vision GNN: image classification on graphs of patches."""
