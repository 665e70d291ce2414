"""Graph neural networks over blocks of several relations: layers, models, exact inference, and the optimiser of their vectors of nodes."""
