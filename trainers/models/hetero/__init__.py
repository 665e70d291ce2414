"""Models of heterogeneous graphs and knowledge graphs: layers, models, full-neighbour inference, and the optimiser of embeddings."""
